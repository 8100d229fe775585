// SPDX-License-Identifier: Apache-2.0

package waittest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fakeTest is a test with a deadline that records how it failed.
type fakeTest struct {
	testing.TB
	deadline time.Time
	failure  string
}

func (f *fakeTest) Helper()                     {}
func (f *fakeTest) Deadline() (time.Time, bool) { return f.deadline, !f.deadline.IsZero() }

func (f *fakeTest) Fatalf(format string, args ...any) {
	f.failure = fmt.Sprintf(format, args...)
	panic(f)
}

// TestWaits checks that a wait ends when its condition holds, however late, and fails before the
// test binary's limit.
func TestWaits(t *testing.T) {
	for name, c := range map[string]struct {
		limit, holds time.Duration
		failure      string
	}{
		"at once":  {time.Minute, 0, ""},
		"late":     {10 * time.Minute, 9 * time.Minute, ""},
		"too late": {10 * time.Minute, 10 * time.Minute, "not within 9m40s: an event"},
		"no limit": {0, time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, f := time.Now(), &fakeTest{TB: t}
				if c.limit > 0 {
					f.deadline = began.Add(c.limit)
				}
				func() {
					defer func() {
						if r := recover(); r != nil && r != any(f) {
							panic(r)
						}
					}()
					Until(f, "an event", func() bool { return time.Since(began) >= c.holds })
				}()
				if took := time.Since(began); f.failure != c.failure || took > c.holds+maxPause {
					t.Errorf("%q after %v", f.failure, took)
				}
			})
		})
	}
}

// TestEmbedded checks that a type that embeds a testing.TB has the limit of the test binary.
func TestEmbedded(t *testing.T) {
	end, ok := t.Deadline()
	if !ok {
		t.Skip("the test binary has no limit")
	}
	limit := waitDeadline(struct{ testing.TB }{t})
	if d := end.Add(-reserve).Sub(limit); d < 0 || d > time.Minute {
		t.Errorf("the limit is %v, that of the test binary %v later", limit, d)
	}
}

// TestUntilSuccess checks that a wait names the last error.
func TestUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTest{TB: t, deadline: time.Now().Add(time.Minute)}
		defer func() {
			if recover() == nil || !strings.HasSuffix(f.failure, ": no answer") {
				t.Errorf("%q", f.failure)
			}
		}()
		UntilSuccess(f, func() error { return errors.New("no answer") })
	})
}
