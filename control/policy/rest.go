package policy

import "time"

// otherTrafficWindow is how long what is not accounted for must last to be believed:
// longer than TCP waits for a packet that was lost, while those after it have
// come but are not counted as received yet.
const otherTrafficWindow = 400 * time.Millisecond

// OtherTraffic finds what others move over a link: what its counter says, less what is
// known. Both are taken at slightly different places, so that the difference
// sways; it counts by how far its least of the last otherTrafficWindow has risen. The
// zero Rest is ready.
type OtherTraffic struct {
	points []otherTrafficPoint
	lowest int64
	known  bool // low is
	moved  uint64
}

type otherTrafficPoint struct {
	at time.Time
	x  int64
}

// Observe takes how many bytes the link has carried in all and how many of them
// are known. It returns how many others have moved since the first call.
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
