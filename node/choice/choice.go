// SPDX-License-Identifier: Apache-2.0

// Package choice lets policy decide which subflows a stream may use. It connects package endpoint
// with control/policy, which weighs energy and money.
package choice

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"mpbond/control/policy"
	"mpbond/core/bond"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// ByPolicy decides by package policy. It implements endpoint.Guide for one endpoint. Its lock
// guards it.
type ByPolicy struct {
	// Upload is set at the primary, which sends uploads.
	Upload     bool
	candidates []policy.Subflow
}

var (
	_ endpoint.Guide       = (*ByPolicy)(nil)
	_ endpoint.WakeDelayer = (*ByPolicy)(nil)
)

// Costs implements endpoint.Guide.
func (*ByPolicy) Costs(t wire.Terms) bool {
	return t.Tier != wire.TierPrimary || policy.UsesEnergy(t.Radio)
}

// AllowSubflows implements endpoint.Guide. It sees subflows as PolicySubflow returns them.
func (p *ByPolicy) AllowSubflows(list []endpoint.Candidate, d bond.Demand) string {
	p.candidates = p.candidates[:0]
	for _, c := range list {
		p.candidates = append(p.candidates, PolicySubflow(c))
	}
	reason := policy.ChooseSubflows(p.candidates, p.policyDemand(d))
	for i := range list {
		list[i].Allowed = p.candidates[i].Allowed
	}
	return reason
}

// WakeDelay implements endpoint.WakeDelayer.
func (*ByPolicy) WakeDelay(c endpoint.Candidate) time.Duration {
	s := PolicySubflow(c)
	return s.WakeDelay()
}

// policyDemand returns a demand as package policy sees it.
func (p *ByPolicy) policyDemand(d bond.Demand) policy.Demand {
	return policy.Demand{
		Pending:       d.Pending,
		Burst:         d.Burst,
		BackloggedFor: d.BackloggedFor,
		More:          d.More,
		MoreKnown:     d.MoreKnown,
		Repetition:    policy.Repetition(d.Repetition),
		SourceRate:    d.SourceRate,
		NeededIn:      d.NeededIn,
		Upload:        p.Upload,
	}
}

// Explain implements endpoint.Explainer: the forecast for the subflows in use, and for the best set
// that is not in use.
func (p *ByPolicy) Explain(list []endpoint.Candidate, d bond.Demand) string {
	var subflows []policy.Subflow
	for _, c := range list {
		s := PolicySubflow(c)
		s.Allowed = c.InUse
		subflows = append(subflows, s)
	}
	all := policy.AppendAlternatives(nil, subflows, p.policyDemand(d))
	if len(all) < 2 || all[0].Subflows == 0 {
		return ""
	}
	text := fmt.Sprintf("expected in %s with %.1f J", roundTime(all[0].Time), all[0].Energy)
	if other := policy.BestOther(all, p.policyDemand(d)); other != nil {
		var ids []string
		for s := other.Subflows; s != 0; s &= s - 1 {
			ids = append(ids, fmt.Sprint(list[bits.TrailingZeros64(s)].ID))
		}
		text += fmt.Sprintf("; by subflows %s in %s with %.1f J: %s", strings.Join(ids, ", "), roundTime(other.Time),
			other.Energy, other.WhyNot)
	}
	return text
}

// roundTime rounds a time for people.
func roundTime(t time.Duration) time.Duration {
	if t < time.Second {
		return t.Round(time.Millisecond)
	}
	return t.Round(100 * time.Millisecond)
}

// PolicySubflow returns a candidate as package policy sees it. Until the rate of a subflow is
// measured, it is the rate seen at this location before, else the one that its window allows.
func PolicySubflow(c endpoint.Candidate) policy.Subflow {
	s := policy.Subflow{
		Direct:     !c.Helped,
		Radio:      c.Terms.Radio,
		Tier:       c.Terms.Tier,
		Rate:       c.Rate,
		Delay:      c.Delay,
		LeastDelay: c.MinRTT / 2,
		RoundTrip:  c.RTT,
		Spread:     c.Spread,
		Loss:       c.Loss,
		QuietFor:   c.QuietFor,
		InUse:      c.InUse,
	}
	switch {
	case c.Known:
	case c.Terms.Rate > 0:
		s.Rate, s.Delay = c.Terms.Rate, max(s.Delay, c.Terms.RTT/2)
	default:
		s.Window, s.Ceiling = c.Rate.Bytes(c.RTT), c.Ceiling
	}
	return s
}
