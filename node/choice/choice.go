// SPDX-License-Identifier: Apache-2.0

// Package choice lets policy decide which subflows a stream may use. It connects package endpoint
// with control/policy, which weighs energy and money.
package choice

import (
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

var _ endpoint.Guide = (*ByPolicy)(nil)

// Costs implements endpoint.Guide.
func (*ByPolicy) Costs(t wire.Terms) bool {
	return t.Tier != wire.TierPrimary || policy.UsesEnergy(t.Radio)
}

// AllowSubflows implements endpoint.Guide. Until the rate of a subflow is measured, it uses the
// rate seen at this location before, else the rate that its window allows.
func (p *ByPolicy) AllowSubflows(list []endpoint.Candidate, d bond.Demand) string {
	p.candidates = p.candidates[:0]
	for _, s := range list {
		l := policy.Subflow{
			Direct:   !s.Helped,
			Radio:    s.Terms.Radio,
			Tier:     s.Terms.Tier,
			Rate:     s.Rate,
			Delay:    s.Delay,
			QuietFor: s.QuietFor,
			InUse:    s.InUse,
		}
		switch {
		case s.Known:
		case s.Terms.Rate > 0:
			l.Rate, l.Delay = s.Terms.Rate, max(l.Delay, s.Terms.RTT/2)
		default:
			l.Window, l.RoundTrip = s.Rate.Bytes(s.RTT), s.RTT
		}
		p.candidates = append(p.candidates, l)
	}
	reason := policy.ChooseSubflows(
		p.candidates,
		policy.Demand{Pending: d.Pending, Burst: d.Burst, BackloggedFor: d.BackloggedFor, Upload: p.Upload},
	)
	for i := range list {
		list[i].Allowed = p.candidates[i].Allowed
	}
	return reason
}
