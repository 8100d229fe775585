// SPDX-License-Identifier: Apache-2.0

package bond

import "time"

// wakeTimer is the only timer of a bond: the earliest of the times requested since it was last
// cleared. It holds no clock. The owner of the bond reads it with NextTick; Tick clears it. The
// zero value is not set.
type wakeTimer struct{ next time.Time }

// wakeAt sets the timer to at unless it is set to an earlier time.
func (t *wakeTimer) wakeAt(at time.Time) {
	if t.next.IsZero() || at.Before(t.next) {
		t.next = at
	}
}

// clear unsets the timer.
func (t *wakeTimer) clear() { t.next = time.Time{} }

// overdueBy returns how late it is now; zero if the timer is not set.
func (t *wakeTimer) overdueBy(now time.Time) time.Duration {
	if t.next.IsZero() {
		return 0
	}
	return max(0, now.Sub(t.next))
}
