// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"mpbond/base/unit"
)

// Transfer is something that a person does with a network.
type Transfer struct {
	Name string
	Size unit.Bytes
	Up   bool
}

// UsualTransfers are those that advice is given for.
func UsualTransfers() []Transfer {
	return []Transfer{
		{"message", unit.KB, true},
		{"request", 20 * unit.KB, false},
		{"page", 3 * unit.MB, false},
		{"photo", 3 * unit.MB, true},
		{"song", 8 * unit.MB, false},
		{"video", 30 * unit.MB, false},
		{"bulk", 100 * unit.MB, false},
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
		reason = ChooseSubflows(own, Demand{Pending: size, Upload: t.Up})
		return allowedSet(own), reason
	}
	set, reason := choose(t.Size)
	a := Advice{Transfer: t, Reason: reason,
		Alternatives: AppendAlternatives(nil, own, Demand{Pending: t.Size, Upload: t.Up})}
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
