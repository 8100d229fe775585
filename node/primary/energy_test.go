// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"math"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/link/wire"
)

// TestRadioMeters: bytes of a helper's subflows, counted for each bond, cost energy of its radio,
// by the radio that the helper reports.
func TestRadioMeters(t *testing.T) {
	var m radioMeters
	phone, tablet, box := identity.PublicKey{1}, identity.PublicKey{2}, identity.PublicKey{3}
	helpers := map[identity.PublicKey]wire.Radio{phone: wire.RadioNone, tablet: wire.RadioWiFi, box: wire.RadioNone}
	now, bond := time.Unix(1e9, 0), wire.BondID{1}
	flows := map[wire.SubflowID]helpedBytes{
		2: {helper: phone, radio: wire.RadioCellular},
		3: {helper: phone, radio: wire.RadioCellular},
		4: {helper: tablet},
		5: {helper: box},
		6: {helper: identity.PublicKey{4}, radio: wire.RadioCellular, down: 1 << 40},
	} // no longer trusted
	seconds := func(n int, rx, tx unit.Bytes) {
		for range n {
			now = now.Add(time.Second)
			all := map[subflowOf]helpedBytes{}
			for id, f := range flows {
				f.down, f.up = f.down+rx, f.up+tx
				flows[id] = f
				all[subflowOf{bond, id}] = f
			}
			m.updateMeters(now, helpers, all)
		}
	}
	check := func(when string, want map[byte]float64) {
		t.Helper()
		for key, j := range want {
			if _, took := m.energyOfHelper(identity.PublicKey{key}); math.Abs(float64(took)-j) > 1e-3 {
				t.Errorf("%s: helper %d took %v, want %v J", when, key, float64(took), j)
			}
		}
	}
	seconds(5, 0, 0)
	check("idle", map[byte]float64{1: 0, 2: 0, 3: 0, 4: 0})
	seconds(2, 62_500, 62_500) // Mbit/s: 1 of the phone, half of the tablet
	active := 0.31491 + 1.5*1.28804 + 2*(0.05197+0.43839)
	wifi := 0.00984 + 1.5*0.13286 + 2*(0.13701+0.28317)/2
	check("carrying", map[byte]float64{1: active, 2: wifi, 3: 0, 4: 0})
	seconds(30, 0, 0)
	active, wifi = active+1.06*11.576, wifi+0.1193*0.238
	check("asleep", map[byte]float64{1: active, 2: wifi, 3: 0})
	for key, want := range map[byte]wire.Radio{1: wire.RadioCellular, 2: wire.RadioWiFi, 3: wire.RadioNone,
		4: wire.RadioNone} {
		if got, _ := m.energyOfHelper(identity.PublicKey{key}); got != want {
			t.Errorf("helper %d has %v, want %v", key, got, want)
		}
	}

	bond = wire.BondID{2} // a new one starts from zero
	flows = map[wire.SubflowID]helpedBytes{2: {helper: phone, radio: wire.RadioCellular}}
	seconds(1, 125_000, 0)
	flows = nil // and the subflow ends
	seconds(30, 0, 0)
	active += 0.31491 + 0.64402 + 0.05197 + 1.06*11.576
	check("a new bond", map[byte]float64{1: active, 2: wifi, 3: 0})
	delete(helpers, phone)
	seconds(1, 0, 0)
	check("forgotten", map[byte]float64{1: 0, 2: wifi})
}

// TestHelperThatRoams: if a helper's subflows joined over different radios, the newest one counts,
// with the time that it stays awake.
func TestHelperThatRoams(t *testing.T) {
	var m radioMeters
	phone := identity.PublicKey{1}
	now := time.Unix(1e9, 0)
	for second := range 40 {
		rx := unit.Bytes(0)
		if second > 0 {
			rx = 62_500
		}
		m.updateMeters(
			now.Add(time.Duration(second)*time.Second),
			map[identity.PublicKey]wire.Radio{phone: wire.RadioNone},
			map[subflowOf]helpedBytes{
				{subflow: 2}: {
					helper: phone,
					radio:  wire.RadioWiFi,
					down:   rx,
				}, {subflow: 3}: {helper: phone, radio: wire.RadioCellular, down: rx}},
		)
	}
	want := 0.31491 + 0.64402 + 0.05197 + 1.06*11.576
	if kind, took := m.energyOfHelper(phone); kind != wire.RadioCellular || math.Abs(float64(took)-want) > 1e-3 {
		t.Errorf("%v took %v, want %v J", kind, float64(took), want)
	}
}
