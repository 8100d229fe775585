// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestDelay checks that the back-off of a device grows with each failure and is at least what the
// server asks for; any response clears the unanswered failures.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{times: testTimes}
		busy := &Refusal{Err: errors.New("503")}
		for i, c := range []struct {
			atLeast, want time.Duration
			err           error
			unanswered    int
		}{
			{0, 500 * time.Millisecond, errLine, 1},
			{0, time.Second, errLine, 2},
			{0, 2 * time.Second, busy, 0},
			{time.Second, 4 * time.Second, errLine, 1},
			{time.Minute, time.Minute, busy, 0},
			{0, 16 * time.Second, errLine, 1},
			{0, maxBackoff, errLine, 2},
		} {
			got := w.BackOff(c.atLeast, c.err)
			if got != c.want || w.unanswered != c.unanswered ||
				!errors.Is(w.lastError, c.err) || w.responded != (i >= 2) {
				t.Errorf("%d: back-off of %v: %+v", i, got, w)
			}
			if strings.Contains(w.lastError.Error(), "retry after") != (c.atLeast > 0) {
				t.Errorf("%d: %v", i, w.lastError)
			}
			if w.MayRetry(time.Now().Add(c.want-1)) || !w.MayRetry(time.Now().Add(c.want)) {
				t.Errorf("%d: MayRetry changes at another time than in %v", i, c.want)
			}
		}
	})
}

// TestReasons checks that an exclusion takes precedence over the last failure, and that nil is
// returned without a reason.
func TestReasons(t *testing.T) {
	a, b := &Worker{Device: testDevice(0)}, &Worker{Device: testDevice(1), lastError: errLine}
	x := Excluded{}
	if err := x.Reasons([]*Worker{a}); err != nil {
		t.Error(err)
	}
	x[a] = errStalled
	if err := x.Reasons([]*Worker{a, b}); !errors.Is(err, errStalled) || !errors.Is(err, errLine) ||
		!strings.Contains(err.Error(), "b: no line") {
		t.Error(err)
	}
	if x[b] = errTest; errors.Is(x.Reasons([]*Worker{a, b}), errLine) {
		t.Error(x.Reasons([]*Worker{a, b}))
	}
}
