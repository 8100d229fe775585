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
func (r *OtherTraffic) Observe(now time.Time, total, known uint64) uint64 {
	r.points = append(r.points, otherTrafficPoint{now, int64(total) - int64(known)})
	old := 0
	for old+1 < len(r.points) && now.Sub(r.points[old+1].at) >= otherTrafficWindow {
		old++
	}
	r.points = r.points[:copy(r.points, r.points[old:])]
	if now.Sub(r.points[0].at) < otherTrafficWindow {
		return r.moved
	}
	low := r.points[0].x
	for _, p := range r.points[1:] {
		low = min(low, p.x)
	}
	if r.known && low > r.lowest {
		r.moved += uint64(low - r.lowest)
	}
	r.lowest, r.known = low, true
	return r.moved
}
