// SPDX-License-Identifier: Apache-2.0

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

// radioMeters estimate the energy that the radio of each helper spent on its link to the server for
// this primary, from the bytes of its subflows. The energy of pipes is not included: the helper
// counts it. The last second of an ended subflow is not counted. Safe for concurrent use; no other
// lock is taken while mu is held.
type radioMeters struct {
	mu        sync.Mutex
	byHelper  map[identity.PublicKey]*radioMeter
	lastFlows map[subflowOf]helpedBytes // at the last update
}

type radioMeter struct {
	policy.EnergyMeter
	energy unit.Joules
}

// subflowOf identifies a subflow across bonds, since subflow IDs start again with each bond.
type subflowOf struct {
	bond    wire.BondID
	subflow wire.SubflowID
}

// helpedBytes counts what a helped subflow has carried since it joined.
type helpedBytes struct {
	helper   identity.PublicKey
	radio    wire.Radio // when it joined
	down, up unit.Bytes
}

// updateMeters takes the current byte counts of helped subflows and the radio that each helper
// reports. It forgets helpers that are missing from helpers.
func (m *radioMeters) updateMeters(
	now time.Time,
	helpers map[identity.PublicKey]wire.Radio,
	flows map[subflowOf]helpedBytes,
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	type sum struct {
		down, up unit.Bytes
		newest   wire.SubflowID // a roaming helper may have joined over another radio since
		radio    wire.Radio
	}
	sums := map[identity.PublicKey]sum{}
	for id, f := range flows {
		s, was := sums[f.helper], m.lastFlows[id]
		s.down, s.up = s.down+f.down-was.down, s.up+f.up-was.up
		if id.subflow >= s.newest {
			s.newest, s.radio = id.subflow, f.radio
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

// energyOfHelper returns the radio kind of a helper and the energy it spent. wire.RadioNone means
// unknown or a cable, which spends nothing.
func (m *radioMeters) energyOfHelper(helper identity.PublicKey) (wire.Radio, unit.Joules) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.byHelper[helper]; one != nil {
		return one.Radio(), one.energy
	}
	return wire.RadioNone, 0
}
