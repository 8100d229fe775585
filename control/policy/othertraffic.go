// SPDX-License-Identifier: Apache-2.0

package policy

import "time"

// otherTrafficWindow is how long unaccounted bytes must persist before they count. TCP counts bytes
// after a lost packet only when the packet was sent again; the window is longer than that takes.
const otherTrafficWindow = 400 * time.Millisecond

// OtherTraffic measures the traffic of others on a link: its counter minus the known bytes. The two
// are sampled at slightly different points, so the difference fluctuates. It counts by the rise of
// its minimum over otherTrafficWindow. The zero OtherTraffic is ready to use.
type OtherTraffic struct {
	points []otherTrafficPoint
	lowest int64
	known  bool // lowest is valid
	moved  uint64
}

// otherTrafficPoint is a sample of the difference.
type otherTrafficPoint struct {
	at time.Time
	x  int64
}

// Observe takes the total bytes that the link has carried and the known part of them. It returns
// how many bytes of others have moved since the first call.
func (t *OtherTraffic) Observe(now time.Time, total, known uint64) uint64 {
	t.points = append(t.points, otherTrafficPoint{now, int64(total) - int64(known)})
	old := 0
	for old+1 < len(t.points) && now.Sub(t.points[old+1].at) >= otherTrafficWindow {
		old++
	}
	t.points = t.points[:copy(t.points, t.points[old:])]
	if now.Sub(t.points[0].at) < otherTrafficWindow {
		return t.moved
	}
	low := t.points[0].x
	for _, p := range t.points[1:] {
		low = min(low, p.x)
	}
	if t.known && low > t.lowest {
		t.moved += uint64(low - t.lowest)
	}
	t.lowest, t.known = low, true
	return t.moved
}
