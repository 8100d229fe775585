package board

import "mpbond/base/unit"

// roundTrips is how many answers' time an item may take on its line for another request to
// be made meanwhile: a fifth of the time would be lost at least.
const roundTrips = 4

// overlap is to begin an item over a further connection of a line, where items are so small
// that the line would wait for answers most of the time.
func overlap(v *View, path int) Decision {
	line, busy, rate := v.Paths[path].Line, 0, 0.0
	for _, p := range v.Paths {
		if p.Line == line && p.Busy {
			busy++
			rate += float64(p.Rate) / 8
		}
	}
	if busy == 0 || len(v.Waiting) == 0 || v.Waiting[0].Once {
		return waits(v, NoGain)
	}
	mine := inOrder(v, path)
	size := v.size(v.Waiting[mine])
	if size == 0 || size*unit.Bytes(busy) > unit.Bytes(roundTrips*rate*v.Paths[path].Latency.Seconds()) {
		return waits(v, NoGain)
	}
	return Decision{Action: Take, Item: mine, Reason: Overlaps}
}
