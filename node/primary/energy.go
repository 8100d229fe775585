package primary

import (
	"cmp"
	"sync"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/wire"
)

// radioMeters estimate what the radio of each helper's link to the server took for this
// primary, by the bytes of its subflows. What the pipes take is not in it: the helper
// knows, and counts it. What a subflow carried in its last second is not known any more.
// Safe for concurrent use; no other lock is taken while its own is held.
type radioMeters struct {
	mu        sync.Mutex
	byHelper  map[identity.PublicKey]*radioMeter
	lastFlows map[subflowOf]helpedBytes // at the last look
}

type radioMeter struct {
	policy.EnergyMeter
	energy unit.Joules
}

// subflowOf names a subflow for ever: numbers begin anew with each bond.
type subflowOf struct {
	bond wire.BondID
	path wire.SubflowID
}

// helpedBytes is what a helped subflow has carried since it joined.
type helpedBytes struct {
	helper   identity.PublicKey
	radio    wire.Radio // that it joined over
	down, up unit.Bytes
}

// updateMeters takes what the helped subflows have carried by now, with the radio of each helper
// as it reports it; helpers that are left out are forgotten.
func (m *radioMeters) updateMeters(now time.Time, helpers map[identity.PublicKey]wire.Radio, flows map[subflowOf]helpedBytes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	type sum struct {
		down, up unit.Bytes
		newest   wire.SubflowID // one that roams has joined over another radio since
		radio    wire.Radio
	}
	sums := map[identity.PublicKey]sum{}
	for id, f := range flows {
		s, was := sums[f.helper], m.lastFlows[id]
		s.down, s.up = s.down+f.down-was.down, s.up+f.up-was.up
		if id.path >= s.newest {
			s.newest, s.radio = id.path, f.radio
		}
		sums[f.helper] = s
	}
	m.lastFlows = flows
	all := make(map[identity.PublicKey]*radioMeter, len(helpers))
	for key, reported := range helpers {
		one := m.byHelper[key]
		if one == nil {
			one = &radioMeter{}
		}
		s := sums[key]
		if s.newest > 0 {
			one.SetRadio(cmp.Or(s.radio, reported))
		}
		one.energy += one.AddCarried(now, s.down, s.up)
		all[key] = one
	}
	m.byHelper = all
}

// energyOf returns what the radio of a helper took, and its kind; wire.RadioNone is not known,
// or a cable, and took nothing.
func (m *radioMeters) energyOf(helper identity.PublicKey) (wire.Radio, unit.Joules) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.byHelper[helper]; one != nil {
		return one.Radio(), one.energy
	}
	return wire.RadioNone, 0
}
