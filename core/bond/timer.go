package bond

import "time"

// wakeTimer is the one timer of a bond: the earliest of the times that were asked for since
// it was cleared. It holds no clock: the owner of the bond reads it by NextTick, and the bond
// clears it when it rings. The zero value is not set.
type wakeTimer struct{ next time.Time }

// wakeAt sets the timer to a time, unless it rings earlier already.
func (t *wakeTimer) wakeAt(at time.Time) {
	if t.next.IsZero() || at.Before(t.next) {
		t.next = at
	}
}

// clear makes the timer one that is not set.
func (t *wakeTimer) clear() { t.next = time.Time{} }

// overdueBy returns how long ago the timer should have rung; zero if it is not set.
func (t *wakeTimer) overdueBy(now time.Time) time.Duration {
	if t.next.IsZero() {
		return 0
	}
	return max(0, now.Sub(t.next))
}
