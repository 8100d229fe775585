// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/waittest"
	"mpbond/link/wire"
)

// TestRefusals: a device of another version, a paused one and an unknown one are stored with the
// reason, and logged once each, until they are accepted.
func TestRefusals(t *testing.T) {
	s, primary, stop := startServer(t, time.Minute)
	unknown, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	call := func(key *identity.Key, version uint8) {
		t.Helper()
		c := tls.Client(dialServer(t, s), key.ClientConfig(s.handshakes.key.Public(), wire.ALPN))
		defer c.Close()
		if _, err := c.Write(wire.Append(nil, wire.Join{Version: version, Subflow: 1, Device: "laptop"})); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Read(make([]byte, 100)) // the answer, or an alert
	}
	refused := func(device, reason string, count int) {
		t.Helper()
		waittest.UntilSuccess(t, func() error {
			list := s.Refusals()
			if len(list) == 1 && list[0].Device == device && strings.HasPrefix(list[0].Reason, reason) &&
				list[0].Count == count && list[0].Here {
				return nil
			}
			return fmt.Errorf("refusals %+v, want %q", list, reason)
		})
	}
	for range 3 {
		call(primary, wire.Version+1)
	}
	refused(
		"laptop",
		fmt.Sprintf("version %d here, %d there: upgrade mpbond on this device", wire.Version, wire.Version+1),
		3,
	)
	call(primary, wire.Version-1)
	refused(
		"laptop",
		fmt.Sprintf("version %d here, %d there: upgrade mpbond on laptop", wire.Version, wire.Version-1),
		1,
	)
	if err := s.trustFile().SetPaused("laptop", true); err != nil {
		t.Fatal(err)
	}
	call(primary, wire.Version)
	refused("laptop", textPaused, 1)
	if err := s.trustFile().SetPaused("laptop", false); err != nil {
		t.Fatal(err)
	}
	call(primary, wire.Version)
	waittest.Until(t, "the end of the refusal", func() bool { return len(s.Refusals()) == 0 })
	call(unknown, wire.Version)
	refused("", "unknown device", 1)
	if n := strings.Count(stop(), "connection refused"); n < 1 || n > 4 { // the log limits them too
		t.Errorf("%d lines in the log, want 1 to 4", n)
	}
}

// TestCallerLog: calls from this machine do not count. Each refused device is one entry, whose
// reason is logged now and then. Other failures are always logged, within the rate limit.
func TestCallerLog(t *testing.T) {
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	l, now := newCallerLog(trust, slog.New(slog.NewTextHandler(&log, nil))), time.Unix(1e9, 0)
	from := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 5} }
	for _, ip := range []string{"127.0.0.1", "::1", "192.0.2.1", "2001:db8::1", "192.0.2.1"} {
		l.countServerCall(from(ip), now)
	}
	if c := l.serverCallCount(); c.Count != 3 || !c.Last.Equal(now) {
		t.Errorf("calls %+v", c)
	}
	paused := wire.Refuse{Code: wire.CodeLimit, Text: textPaused}
	worth := 0
	for i := range 100 {
		if l.storeRefusedCaller(from("192.0.2.1"), paused, now.Add(time.Duration(i)*time.Second)) {
			worth++
		}
	}
	if list := l.refused.Refusals(now.Add(100 * time.Second)); len(list) != 1 || list[0].Count != 100 ||
		list[0].Reason != textPaused ||
		worth != 1 {
		t.Errorf("%d lines for refusals %+v", worth, list)
	}
	for range 3 {
		if !l.storeRefusedCaller(from("192.0.2.1"), io.EOF, now) {
			t.Error("a connection that broke is worth no line")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	l.logFailure(ctx, near, io.EOF, false)
	if log.Len() > 0 {
		t.Errorf("what the end of the server cut off is logged: %s", log.String())
	}
	for range 5 {
		l.logFailure(t.Context(), near, io.EOF, true)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "too many handshakes") {
		t.Errorf("%d lines: %s", n, log.String())
	}
}
