package endpoint

import (
	"mpbond/control/policy"
	"mpbond/core/bond"
	"mpbond/link/wire"
)

// guide is policy's answer to which subflows a stream may use. Guarded by
// Endpoint.mu.
type guide struct {
	up    bool // this end is the primary
	lanes map[wire.PathID]*lane
	list  []policy.Lane
}

// Guide implements bond.Guide.
func (g *guide) Guide(paths []bond.GuidePath, d bond.Demand) string {
	g.list = g.list[:0]
	for _, p := range paths {
		l := policy.Lane{Rate: p.Rate, Delay: p.Delay, Idle: p.Idle, Used: p.Used}
		if e := g.lanes[p.ID]; e != nil {
			t := e.sf.Terms
			l.Own, l.Radio, l.Tier = !e.sf.Helped, t.Radio, t.Tier
			switch {
			case p.Known:
			case t.Rate > 0: // as it was here before
				l.Rate, l.Delay = t.Rate, max(l.Delay, t.RTT/2)
			default:
				l.Window, l.Round = p.Rate.Bytes(p.RTT), p.RTT
			}
		}
		g.list = append(g.list, l)
	}
	why := policy.Choose(g.list, policy.Demand{Pending: d.Pending, Burst: d.Burst, Full: d.Full, Up: g.up})
	for i := range paths {
		paths[i].Allowed = g.list[i].Allowed
	}
	return why
}

// reguide asks policy from now on if there is anything to weigh: while no
// subflow costs anything, the scheduler alone decides.
func (e *Endpoint) reguide() {
	for _, l := range e.lanes {
		if t := l.sf.Terms; t.Tier != wire.TierPrimary || policy.Costs(t.Radio) {
			e.b.SetGuide(&guide{up: e.cfg.Bond.Opens, lanes: e.lanes})
			return
		}
	}
	e.b.SetGuide(nil)
}
