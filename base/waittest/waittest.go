// SPDX-License-Identifier: Apache-2.0

// Package waittest lets tests wait for what they cannot be notified of. A wait has no time limit of
// its own, because a test may get little of the processors: it fails shortly before the time limit
// of the test binary. It has no part in the data path.
package waittest

import (
	"errors"
	"flag"
	"testing"
	"time"
)

const (
	// minPause and maxPause bound the time between two polls. Each poll costs processor time, and
	// other tests run beside this one; so the pause grows with the wait and the cost of a poll.
	minPause = time.Millisecond
	maxPause = 50 * time.Millisecond
	// reserve is how long before the limit of the test binary a wait fails: enough to end
	// programs.
	reserve = 20 * time.Second
)

// Until polls ok until it returns true. what names the awaited event or state for the failure.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	UntilSuccess(t, func() error {
		if ok() {
			return nil
		}
		return errors.New(what)
	})
}

// UntilSuccess calls f until it returns nil.
func UntilSuccess(t testing.TB, f func() error) {
	t.Helper()
	began, limit := time.Now(), waitDeadline(t)
	for {
		before := time.Now()
		err := f()
		if err == nil {
			return
		}
		now := time.Now()
		if !limit.IsZero() && now.After(limit) {
			t.Fatalf("not within %v: %v", now.Sub(began).Round(time.Second), err)
		}
		time.Sleep(min(max(now.Sub(before), now.Sub(began)/50, minPause), maxPause))
	}
}

// started is about when the tests of this binary began.
var started = time.Now()

// waitDeadline returns when a wait of t fails; zero: never. A type that embeds a testing.TB has no
// method Deadline: its limit is that of the test binary.
func waitDeadline(t testing.TB) time.Time {
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := d.Deadline(); ok {
			return end.Add(-reserve)
		}
		return time.Time{}
	}
	if f := flag.Lookup("test.timeout"); f != nil {
		if timeout, err := time.ParseDuration(f.Value.String()); err == nil && timeout > 0 {
			return started.Add(timeout - reserve)
		}
	}
	return time.Time{}
}
