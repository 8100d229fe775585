// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"fmt"
	"strconv"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// ratio gives the direct subflows a fixed share p of the bytes and the helped ones the rest.
// Subflows of one kind share equally. It serves to search for the best constant split (MPBond,
// MobiSys 2020, section 6, "fixed ratio"). It always picks the subflow that is furthest behind its
// share, and waits for it.
//
// Bytes count since the set of usable subflows last changed, so a subflow that joins late does not
// have to catch up.
type ratio struct {
	name         string
	p            float64
	givenAtStart []givenBytes // when the set of subflows last changed
}

// givenBytes is how many stream bytes a subflow had been given at a time.
type givenBytes struct {
	id    wire.SubflowID
	bytes unit.Bytes
}

// newRatioScheduler returns the scheduler "ratio:SHARE" of that name, where share is p as text.
func newRatioScheduler(name, share string) (Scheduler, error) {
	p, err := strconv.ParseFloat(share, 64)
	if err != nil || !(p >= 0 && p <= 1) {
		return nil, fmt.Errorf("scheduler %q: %q is not a share from 0 to 1: write it like ratio:0.6", name, share)
	}
	return &ratio{name: name, p: p}, nil
}

func (r *ratio) Name() string { return r.name }

func (r *ratio) Pick(subflows []Subflow, _ unit.Bytes) Decision {
	if !r.sameSubflows(subflows) {
		r.givenAtStart = r.givenAtStart[:0]
		for i := range subflows {
			r.givenAtStart = append(r.givenAtStart, givenBytes{subflows[i].ID, subflows[i].Given})
		}
	}
	direct := 0
	for i := range subflows {
		if !subflows[i].Helped {
			direct++
		}
	}
	var next *Subflow
	var leastProgress float64
	for i := range subflows {
		share := r.shareOfSubflow(subflows[i].Helped, direct, len(subflows)-direct)
		if share == 0 {
			continue
		}
		if progress := float64(subflows[i].Given-r.givenAtStart[i].bytes) / share; next == nil || progress < leastProgress {
			next, leastProgress = &subflows[i], progress
		}
	}
	switch {
	case next == nil:
		return Decision{Wait: true, Reason: NoIdleSubflow}
	case !next.Idle:
		return Decision{Wait: true, Reason: NotItsTurn}
	}
	return Decision{Subflow: next.ID, Reason: BehindShare}
}

// shareOfSubflow returns the share of one subflow, among that many direct and helped ones. If all
// are of one kind it returns 1: then only their equality counts.
func (r *ratio) shareOfSubflow(isHelped bool, direct, helped int) float64 {
	switch {
	case direct == 0 || helped == 0:
		return 1
	case isHelped:
		return (1 - r.p) / float64(helped)
	}
	return r.p / float64(direct)
}

// sameSubflows reports whether the set of subflows is the one of the last call of Pick. A subflow
// whose count of bytes has fallen is a new one.
func (r *ratio) sameSubflows(subflows []Subflow) bool {
	if len(subflows) != len(r.givenAtStart) {
		return false
	}
	for i := range subflows {
		if subflows[i].ID != r.givenAtStart[i].id || subflows[i].Given < r.givenAtStart[i].bytes {
			return false
		}
	}
	return true
}
