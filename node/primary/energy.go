package primary

import (
	"cmp"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// lentEnergy is what the radio of a helper's link to the server took for this
// primary, as that reckons by the bytes of subflows. What its pipes take is not in
// it: the helper knows, and counts it. Guarded by Primary.mu.
type lentEnergy struct {
	meter policy.Meter
	took  unit.Joules
}

// meter reckons what helpers' radios have taken. It is called each second.
func (p *Primary) meter(now time.Time) {
	p.mu.Lock()
	s := p.cur
	p.mu.Unlock()
	p.metered(now, s, s.e.HelpedFlows())
}

// metered takes what the helped subflows of a session have carried by now. What one
// carried in its last second is not known any more.
func (p *Primary) metered(now time.Time, s *session, flows map[wire.PathID]endpoint.HelpedFlow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	type bytes struct{ down, up unit.Bytes }
	fresh := map[*helperSlot]bytes{}
	newest := map[*helperSlot]wire.PathID{}
	for id, f := range flows {
		n := s.names[id]
		if n == nil || n.helper == nil {
			continue
		}
		b := fresh[n.helper]
		fresh[n.helper] = bytes{b.down + f.Rx - n.rx, b.up + f.Tx - n.tx}
		n.rx, n.tx = f.Rx, f.Tx
		newest[n.helper] = max(newest[n.helper], id)
	}
	for slot, id := range newest { // one that roams has joined over another radio since
		slot.energy.meter.Become(cmp.Or(flows[id].Radio, slot.facts.Radio))
	}
	for _, slot := range p.helpers {
		b := fresh[slot]
		slot.energy.took += slot.energy.meter.Carried(now, b.down, b.up)
	}
}

// EnergyOf is what the radio of a helper's link to the server took for this
// primary, by its kind; wire.RadioNone is not known, or a cable, and took nothing.
func (p *Primary) EnergyOf(helper identity.PublicKey) (wire.Radio, unit.Joules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot := p.helpers[helper]; slot != nil {
		return slot.energy.meter.Radio(), slot.energy.took
	}
	return wire.RadioNone, 0
}
