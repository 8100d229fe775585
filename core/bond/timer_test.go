// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"
)

func TestWakeTimer(t *testing.T) {
	start := time.Unix(1000, 0)
	var w wakeTimer
	if late := w.wakeOverdueBy(start); late != 0 {
		t.Errorf("a timer that is not set is overdue by %v", late)
	}
	for _, c := range []struct{ at, want time.Duration }{{5, 5}, {7, 5}, {3, 3}, {3, 3}, {4, 3}} {
		w.requestWakeAt(start.Add(c.at))
		if !w.next.Equal(start.Add(c.want)) {
			t.Errorf("after %d it rings at %v, want %d", c.at, w.next.Sub(start), c.want)
		}
	}
	if early, late := w.wakeOverdueBy(start), w.wakeOverdueBy(start.Add(10)); early != 0 || late != 7 {
		t.Errorf("overdue by %v before it rings, %v after it", early, late)
	}
	if w.clearWakeTime(); !w.next.IsZero() {
		t.Error("it rings though it was cleared")
	}
}
