// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/link/wire"
)

// TestWait: waits grow, but less far after a limit.
func TestWait(t *testing.T) {
	refusal, limit := wire.Refuse{Code: wire.CodeVersion}, wire.Refuse{Code: wire.CodeLimit}
	for err, most := range map[error]time.Duration{refusal: LongestWait, limit: LimitedWait} {
		var b backoff.Backoff
		var d time.Duration
		for i := range 20 {
			if d = Wait(&b, err); i == 0 && d > FirstWait {
				t.Errorf("%v: %v at first", err, d)
			}
		}
		if d > most || d < most*3/4 {
			t.Errorf("%v: %v", err, d)
		}
	}
}

func TestExplain(t *testing.T) {
	there := func(v uint8) wire.Refuse { return wire.Refuse{Code: wire.CodeVersion, Version: v, Text: "x"} }
	for _, c := range []struct {
		err     error
		refused bool
		reason  string
	}{
		{there(wire.Version + 1), true, fmt.Sprintf("version %d here, %d there: upgrade mpbond on this device", wire.Version,
			wire.Version+1)},
		{fault.New(fault.Protocol, there(wire.Version-1), "y"), true,
			fmt.Sprintf("version %d here, %d there: upgrade mpbond on home", wire.Version, wire.Version-1)},
		{fmt.Errorf("pipe: %w", wire.VersionMismatch{Peer: "helper", Here: 9, There: 7}), true,
			"version 9 here, 7 there: upgrade mpbond on home"},
		{there(wire.Version), true, "x"}, // about a third device
		{fmt.Errorf("pipe from x: %w", fault.New(fault.UnknownDevice, errors.New("unknown device"), "z")), true,
			"unknown device"},
		{wire.Refuse{Code: wire.CodeLimit, Text: "paused"}, true, "paused"},
		{wire.Refuse{Code: wire.CodeUnreachable, Text: "no route"}, false, "no route"},
		{errors.New("connection refused"), false, "connection refused"},
	} {
		if got, _ := Explain(c.err, "home"); Is(c.err) != c.refused || got != c.reason {
			t.Errorf("%v: %v, %q", c.err, Is(c.err), got)
		}
	}
	if Is(nil) {
		t.Error("nil is a refusal")
	}
}

// TestList: a refusal is logged once, and again when it changes and every hour; unknown devices
// take only a part of the list and of the log, and not for long.
func TestList(t *testing.T) {
	var l List
	now := time.Unix(1e9, 0)
	for i, c := range []struct {
		after  time.Duration
		reason string
		log    bool
	}{{0, "a", true}, {time.Minute, "a", false}, {2 * time.Minute, "b", true}, {3 * time.Minute, "b", false}} {
		if got := l.Note(Record{Key: "k", Device: "phone", Here: true, Reason: c.reason}, now.Add(c.after)); got != c.log {
			t.Errorf("%d: %v", i, got)
		}
	}
	lines := 0
	for i := range 1000 {
		if l.Note(Record{Key: fmt.Sprint(i), Reason: "unknown"}, now.Add(4*time.Minute)) {
			lines++
		}
	}
	if n := len(l.Refusals(now.Add(4 * time.Minute))); n != maxUnknown+1 || lines > maxLogged {
		t.Errorf("%d refusals and %d lines", n, lines)
	}
	for i := range 100 {
		l.Note(Record{Key: fmt.Sprint("d", i), Device: fmt.Sprint("d", i), Reason: "paused"}, now.Add(5*time.Minute))
	}
	if n := len(l.Refusals(now.Add(5 * time.Minute))); n != maxRefusals {
		t.Errorf("%d refusals", n)
	}
	l.Note(Record{Key: "d99", Device: "d99", Here: true, Reason: "version"}, now.Add(6*time.Minute))
	l.Forget("d99", true)
	if n := len(l.Refusals(now.Add(6 * time.Minute))); n != maxRefusals-1 {
		t.Errorf("%d refusals", n)
	}
	if n := len(l.Refusals(now.Add(time.Hour))); n != 0 {
		t.Errorf("%d refusals are kept", n)
	}
}
