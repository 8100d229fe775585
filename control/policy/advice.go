// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"time"

	"mpbond/base/unit"
)

// Transfer is something that a person does with a network.
type Transfer struct {
	Name string
	Size unit.Bytes
	Up   bool
	// Every is the interval at which it is repeated, as the segments of a video are; 0: it is not.
	Every time.Duration
}

// demandForSize returns the demand of a transfer of the kind with another size.
func (t Transfer) demandForSize(size unit.Bytes) Demand {
	return Demand{Pending: size, Upload: t.Up, NeededIn: NeededIn(t.Every)}
}

// UsualTransfers are those that advice is given for.
func UsualTransfers() []Transfer {
	return []Transfer{
		{Name: "message", Size: unit.KB, Up: true},
		{Name: "request", Size: 20 * unit.KB},
		{Name: "page", Size: 3 * unit.MB},
		{Name: "photo", Size: 3 * unit.MB, Up: true},
		{Name: "song", Size: 8 * unit.MB},
		{Name: "video", Size: 2 * unit.MB, Every: 5 * time.Second}, // 3.2 Mbit/s
		{Name: "bulk", Size: 100 * unit.MB},
	}
}

// Advice says which subflows would carry a transfer that starts now, and what other sets would
// take.
type Advice struct {
	Transfer
	Alternatives []Alternative // the choice first
	Reason       string        // of the choice
	// OtherFrom is about the least larger size at which the choice is another one, 0 if there is
	// none up to mostAdvised.
	OtherFrom unit.Bytes
}

// mostAdvised is the largest size that advice looks at.
const mostAdvised = 16 * unit.GB

// Advise returns advice for a transfer over the subflows, which it does not change.
func Advise(subflows []Subflow, t Transfer) Advice {
	own := slices.Clone(subflows)
	choose := func(size unit.Bytes) (set uint64, reason string) {
		reason = ChooseSubflows(own, t.demandForSize(size))
		return allowedSet(own), reason
	}
	set, reason := choose(t.Size)
	a := Advice{Transfer: t, Reason: reason, Alternatives: AppendAlternatives(nil, own, t.demandForSize(t.Size))}
	low, high := t.Size, max(2*t.Size, 1) // the choice is the same at low, and another one at high
	for {
		if high > mostAdvised {
			return a
		}
		if other, _ := choose(high); other != set {
			break
		}
		low, high = high, 2*high
	}
	for high-low > max(low/50, 1) {
		middle := low + (high-low)/2
		if other, _ := choose(middle); other == set {
			low = middle
		} else {
			high = middle
		}
	}
	a.OtherFrom = high
	return a
}
