// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"time"

	"mpbond/core/bond"
	"mpbond/link/wire"
)

// Guide decides which subflows a stream may use, as bond.Guide does, but by the terms of each
// subflow too. The scheduler then chooses one of them for each segment. An endpoint calls it with
// its lock held; it must not block or call the endpoint.
type Guide interface {
	// Costs reports whether a subflow with these terms costs energy or money. While none does, the
	// scheduler alone decides.
	Costs(wire.Terms) bool
	// AllowSubflows sets Allowed of the subflows that the stream may use and returns the reason. It
	// keeps no reference to list. If it sets none, all are allowed.
	AllowSubflows(list []Candidate, d bond.Demand) string
}

// Explainer is a Guide that explains its answers, as bond.Explainer does.
type Explainer interface {
	Explain(list []Candidate, d bond.Demand) string
}

// WakeDelayer is a Guide that reports wake delays of radios, as bond.WakeDelayer does.
type WakeDelayer interface {
	WakeDelay(c Candidate) time.Duration
}

// Candidate is a subflow that a Guide considers.
type Candidate struct {
	bond.GuideSubflow
	Helped bool
	Terms  wire.Terms // from its JOIN
}

// NamedCandidate is a candidate with the name of the device that carries it.
type NamedCandidate struct {
	Candidate
	Device string
}

// Candidates returns the subflows that are not silent as a Guide sees them.
func (e *Endpoint) Candidates() []NamedCandidate {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.candidates()
}

// candidates is Candidates with mu held.
func (e *Endpoint) candidates() (list []NamedCandidate) {
	for _, p := range e.bond.ListGuideSubflows(time.Now()) {
		if l := e.subflows[p.ID]; l != nil {
			list = append(list, NamedCandidate{Candidate{p, l.sf.Helped, l.sf.Terms}, l.device})
		}
	}
	return list
}

// bondGuide passes the bond's question to a Guide. Endpoint.mu must be held.
type bondGuide struct {
	guide    Guide
	subflows map[wire.SubflowID]*attachedSubflow
	list     []Candidate
}

// AllowSubflows implements bond.Guide.
func (g *bondGuide) AllowSubflows(subflows []bond.GuideSubflow, d bond.Demand) string {
	g.list = g.appendCandidates(g.list[:0], subflows)
	reason := g.guide.AllowSubflows(g.list, d)
	for i := range subflows {
		subflows[i].Allowed = g.list[i].Allowed
	}
	return reason
}

// Explain implements bond.Explainer.
func (g *bondGuide) Explain(subflows []bond.GuideSubflow, d bond.Demand) string {
	if e, ok := g.guide.(Explainer); ok {
		return e.Explain(g.appendCandidates(nil, subflows), d)
	}
	return ""
}

// WakeDelay implements bond.WakeDelayer.
func (g *bondGuide) WakeDelay(p bond.GuideSubflow) time.Duration {
	w, ok := g.guide.(WakeDelayer)
	if !ok {
		return 0
	}
	g.list = g.appendCandidates(g.list[:0], []bond.GuideSubflow{p})
	return w.WakeDelay(g.list[0])
}

// appendCandidates appends subflows with their terms to list.
func (g *bondGuide) appendCandidates(list []Candidate, subflows []bond.GuideSubflow) []Candidate {
	for _, p := range subflows {
		c := Candidate{GuideSubflow: p}
		if l := g.subflows[p.ID]; l != nil {
			c.Helped, c.Terms = l.sf.Helped, l.sf.Terms
		}
		list = append(list, c)
	}
	return list
}

// updateGuide makes the bond ask the guide while a subflow has costs. mu must be held.
func (e *Endpoint) updateGuide() {
	if e.cfg.Guide == nil {
		return
	}
	for _, l := range e.subflows {
		if e.cfg.Guide.Costs(l.sf.Terms) {
			e.bond.SetGuide(&bondGuide{guide: e.cfg.Guide, subflows: e.subflows})
			return
		}
	}
	e.bond.SetGuide(nil)
}
