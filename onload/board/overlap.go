// SPDX-License-Identifier: Apache-2.0

package board

import "mpbond/base/unit"

// maxRoundTrips is how many response latencies the transfer of an item may take for a further
// request to be made meanwhile: at least a fifth of the time would be lost.
const maxRoundTrips = 4

// planOverlap starts an item over a further connection of a device, where items are so small that
// one connection would wait for responses most of the time.
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
	index := planInOrder(v, path)
	size := v.sizeOrMean(v.Waiting[index])
	if size == 0 || size*unit.Bytes(busy) > unit.Bytes(maxRoundTrips*rate*v.Paths[path].Latency.Seconds()) {
		return waitDecision(v, NoGain)
	}
	return Decision{Action: Take, WaitingIndex: index, Reason: Overlaps}
}
