// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"slices"

	"mpbond/base/unit"
)

// ObjectTimes are the times of equal objects that one transfer moves, one after the other over one
// connection. Cold is that of the first object, which opens the connection. Warm is the median of
// the others. Bounds are fluid bounds of one object; that of a warm one has no round trip to
// connect.
type ObjectTimes struct {
	Cold      float64 `json:"cold_seconds"`
	Warm      float64 `json:"warm_seconds"`
	ColdBound float64 `json:"cold_bound_seconds"`
	WarmBound float64 `json:"warm_bound_seconds"`
}

// expandObjects turns objects into items, and checks them.
func (p *RunSpec) expandObjects() error {
	switch {
	case p.Objects == 0:
		return nil
	case p.Objects < 2 || len(p.Items) > 0 || p.Size <= 0:
		return fmt.Errorf("objects: write at least two, of one size, and no items")
	case p.Stride > 0 || len(p.At) > 0:
		return fmt.Errorf("objects need links that do not change: else the later ones have other links than the first")
	}
	p.Items, p.Size = slices.Repeat([]unit.Bytes{p.Size}, p.Objects), 0
	return nil
}

// objectTimes returns the times of a transfer's objects, nil unless all have arrived.
func (s *session) objectTimes(r Result) *ObjectTimes {
	if len(r.Items) != len(s.spec.Items) {
		return nil
	}
	var each []float64
	before := 0.0
	for _, at := range r.Items {
		each, before = append(each, at-before), at
	}
	o := &ObjectTimes{Cold: each[0]}
	warm := slices.Sorted(slices.Values(each[1:]))
	o.Warm = (warm[(len(warm)-1)/2] + warm[len(warm)/2]) / 2
	// A session without a bound could not have been made.
	bound, _ := Bound(s.topology, s.spec.Items[0], s.spec.Upload)
	rtt, _ := s.topology.directLinkRTT()
	o.ColdBound, o.WarmBound = bound.Seconds(), max(0, bound-rtt).Seconds()
	return o
}
