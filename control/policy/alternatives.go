// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math/bits"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Alternative is a set of subflows that a stream could use: the forecast for it, and why it is not
// used.
type Alternative struct {
	// Subflows has bit i set if subflow i is in the set.
	Subflows uint64
	Time     time.Duration // until the expected bytes have arrived
	Energy   unit.Joules   // of all radios until then, with the tails that it causes
	// WhyNot says why the set is not used; "" is the choice.
	WhyNot string
}

// Reasons of Alternative.WhyNot.
const (
	WhyNotTier   = "it has a subflow that is to be spared"
	WhyNotSlower = "it takes longer"
	WhyNotWorth  = "its energy is not worth the time that it saves"
	WhyNotNeeded = "it saves nothing"
	WhyNotSooner = "it would be sooner than the app needs it"
	WhyNotSource = "the app does not send faster"
	WhyNotRepeat = "messages like this one follow, and would take longer"
)

// maxAlternatives bounds the subflows that alternatives are listed for.
const maxAlternatives = 64

// AppendAlternatives appends the alternatives for a stream to list: the choice first, then each
// subflow alone and all together. ChooseSubflows must have marked the choice for the same demand.
// It changes nothing, and allocates nothing if list has room.
func AppendAlternatives(list []Alternative, subflows []Subflow, d Demand) []Alternative {
	n := len(subflows)
	if n == 0 || n > maxAlternatives {
		return list
	}
	first := len(list)
	chosen := allowedSet(subflows)
	add := func(set uint64) {
		for _, a := range list[first:] {
			if a.Subflows == set {
				return
			}
		}
		list = append(list, forecastSet(subflows, d, set))
	}
	add(chosen)
	for i := range n {
		add(1 << i)
	}
	add(1<<n - 1)
	markAllowed(subflows, chosen)
	most, _ := usableTiers(subflows, d)
	for i := range list[first:] {
		list[first+i].WhyNot = whyNot(list[first+i], list[first], d, subflows, most)
	}
	return list
}

// BestOther returns the alternative, after the choice at the beginning of a list, whose time and
// energy together cost least for a demand; nil if there is none.
func BestOther(all []Alternative, d Demand) (best *Alternative) {
	least := d.gainsUntil()
	cost := func(a *Alternative) time.Duration { return max(a.Time, least) + energyAsWaitTime(a.Energy) }
	for i := range all {
		if i > 0 && (best == nil || cost(&all[i]) < cost(best)) {
			best = &all[i]
		}
	}
	return best
}

// allowedSet returns the set of allowed subflows.
func allowedSet(subflows []Subflow) (set uint64) {
	for i := range subflows {
		if subflows[i].Allowed {
			set |= 1 << i
		}
	}
	return set
}

// markAllowed allows the subflows of a set alone.
func markAllowed(subflows []Subflow, set uint64) {
	for i := range subflows {
		subflows[i].Allowed = set>>i&1 == 1
	}
}

// forecastSet returns the forecast for a set. It leaves the set allowed.
func forecastSet(subflows []Subflow, d Demand, set uint64) Alternative {
	markAllowed(subflows, set)
	end := jointFinishTime(subflows, d.expectedBytes())
	a := Alternative{Subflows: set, Time: end}
	for i := range subflows {
		if l := &subflows[i]; l.Allowed {
			a.Energy += l.energyUntil(end, d.Upload)
		}
	}
	return a
}

// whyNot returns why a set was not chosen, "" if it was. Subflows up to tier most are usable.
func whyNot(a, chosen Alternative, d Demand, subflows []Subflow, most wire.Tier) string {
	if a.Subflows == chosen.Subflows {
		return ""
	}
	for set := a.Subflows; set != 0; set &= set - 1 {
		if subflows[bits.TrailingZeros64(set)].Tier > most {
			return WhyNotTier
		}
	}
	switch {
	case a.Time > chosen.Time:
		return WhyNotSlower
	case a.Time == chosen.Time && a.Energy < chosen.Energy && d.Repetition.Count > 0:
		return WhyNotRepeat
	case a.Time == chosen.Time:
		return WhyNotNeeded
	case chosen.Time <= d.NeededIn:
		return WhyNotSooner
	case chosen.Time <= d.gainsUntil():
		return WhyNotSource
	case a.Energy > chosen.Energy:
		return WhyNotWorth
	}
	return WhyNotNeeded
}
