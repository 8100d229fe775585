// SPDX-License-Identifier: Apache-2.0

// Package choice lets policy choose the subflows of a stream. It connects package endpoint with
// control/policy, which weighs energy and money.
package choice

import (
	"mpbond/control/policy"
	"mpbond/core/bond"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// ByPolicy chooses by package policy. It implements endpoint.Chooser for one endpoint. Its
// lock guards it.
type ByPolicy struct {
	// Upload is set at the primary, which sends uploads.
	Upload     bool
	candidates []policy.Subflow
}

var _ endpoint.Chooser = (*ByPolicy)(nil)

// Costs implements endpoint.Chooser.
func (*ByPolicy) Costs(t wire.Terms) bool {
	return t.Tier != wire.TierPrimary || policy.UsesEnergy(t.Radio)
}

// Choose implements endpoint.Chooser. Until the rate of a subflow is measured, it uses the rate
// seen at this location before, else the rate that its window allows.
func (c *ByPolicy) Choose(list []endpoint.Candidate, d bond.Demand) string {
	c.candidates = c.candidates[:0]
	for _, s := range list {
		l := policy.Subflow{
			Local: !s.Helped,
			Radio: s.Terms.Radio,
			Tier:  s.Terms.Tier,
			Rate:  s.Rate,
			Delay: s.Delay,
			Idle:  s.Idle,
			InUse: s.InUse,
		}
		switch {
		case s.Known:
		case s.Terms.Rate > 0:
			l.Rate, l.Delay = s.Terms.Rate, max(l.Delay, s.Terms.RTT/2)
		default:
			l.Window, l.RoundTrip = s.Rate.Bytes(s.RTT), s.RTT
		}
		c.candidates = append(c.candidates, l)
	}
	reason := policy.ChooseSubflows(
		c.candidates,
		policy.Demand{Pending: d.Pending, Burst: d.Burst, BackloggedFor: d.BackloggedFor, Upload: c.Upload},
	)
	for i := range list {
		list[i].Allowed = c.candidates[i].Allowed
	}
	return reason
}
