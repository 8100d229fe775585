// SPDX-License-Identifier: Apache-2.0

package bond

import "time"

// wakeTimer is the only timer of a bond: the earliest of the times requested since it was last
// cleared. It holds no clock. The owner of the bond reads it with NextTick; Tick clears it. The
// zero value is not set.
type wakeTimer struct{ next time.Time }

// requestWakeAt sets the timer to at unless it is set to an earlier time.
func (t *wakeTimer) requestWakeAt(at time.Time) {
	if t.next.IsZero() || at.Before(t.next) {
		t.next = at
	}
}

// clearWakeTime unsets the timer.
func (t *wakeTimer) clearWakeTime() { t.next = time.Time{} }

// wakeOverdueBy returns how late it is now; zero if the timer is not set.
func (t *wakeTimer) wakeOverdueBy(now time.Time) time.Duration {
	if t.next.IsZero() {
		return 0
	}
	return max(0, now.Sub(t.next))
}
