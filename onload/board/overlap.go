package board

import "mpbond/base/unit"

// maxRoundTrips is how many answers' time an item may take on its line for another request to
// be made meanwhile: a fifth of the time would be lost at least.
const maxRoundTrips = 4

// planOverlap is to begin an item over a further connection of a line, where items are so small
// that the line would wait for answers most of the time.
func planOverlap(v *View, path int) Decision {
	line, busy, rate := v.Paths[path].Device, 0, 0.0
	for _, p := range v.Paths {
		if p.Device == line && p.Busy {
			busy++
			rate += float64(p.Rate) / 8
		}
	}
	if busy == 0 || len(v.Waiting) == 0 || v.Waiting[0].NoCopies {
		return waitDecision(v, NoGain)
	}
	mine := planInOrder(v, path)
	size := v.sizeOrMean(v.Waiting[mine])
	if size == 0 || size*unit.Bytes(busy) > unit.Bytes(maxRoundTrips*rate*v.Paths[path].Latency.Seconds()) {
		return waitDecision(v, NoGain)
	}
	return Decision{Action: Take, Item: mine, Reason: Overlaps}
}
