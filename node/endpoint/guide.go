// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"mpbond/core/bond"
	"mpbond/link/wire"
)

// Chooser chooses which subflows a stream may use. An endpoint calls it with its lock held; it must
// not block or call the endpoint.
type Chooser interface {
	// Costs reports whether a subflow with these terms costs energy or money. While none does, the
	// scheduler alone decides.
	Costs(wire.Terms) bool
	// Choose sets Allowed of the subflows that the stream may use and returns the reason. It keeps
	// no reference to list. If it sets none, all are allowed.
	Choose(list []Candidate, d bond.Demand) string
}

// Candidate is a subflow that a Chooser considers.
type Candidate struct {
	bond.GuideSubflow
	Helped bool
	Terms  wire.Terms // from its JOIN
}

// guide passes the bond's question to a Chooser. Endpoint.mu must be held.
type guide struct {
	chooser  Chooser
	subflows map[wire.SubflowID]*attachedSubflow
	list     []Candidate
}

// AllowSubflows implements bond.Guide.
func (g *guide) AllowSubflows(subflows []bond.GuideSubflow, d bond.Demand) string {
	g.list = g.list[:0]
	for _, p := range subflows {
		c := Candidate{GuideSubflow: p}
		if l := g.subflows[p.ID]; l != nil {
			c.Helped, c.Terms = l.sf.Helped, l.sf.Terms
		}
		g.list = append(g.list, c)
	}
	reason := g.chooser.Choose(g.list, d)
	for i := range subflows {
		subflows[i].Allowed = g.list[i].Allowed
	}
	return reason
}

// updateGuide makes the bond ask the chooser while a subflow has costs. mu must be held.
func (e *Endpoint) updateGuide() {
	if e.cfg.Chooser == nil {
		return
	}
	for _, l := range e.subflows {
		if e.cfg.Chooser.Costs(l.sf.Terms) {
			e.bond.SetGuide(&guide{chooser: e.cfg.Chooser, subflows: e.subflows})
			return
		}
	}
	e.bond.SetGuide(nil)
}
