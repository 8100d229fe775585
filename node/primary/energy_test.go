package primary

import (
	"math"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// TestHelpersEnergy: what a helper's subflows carry, of each session anew, has its
// radio take something; who says of itself what radio it has is believed.
func TestHelpersEnergy(t *testing.T) {
	phone, tablet, box := &helperSlot{}, &helperSlot{facts: wire.Facts{Radio: wire.RadioWiFi}}, &helperSlot{}
	p := &Primary{helpers: map[identity.PublicKey]*helperSlot{{1}: phone, {2}: tablet, {3}: box}}
	now := time.Unix(1e9, 0)
	s := &session{names: map[wire.PathID]*linkName{1: {}, 2: {helper: phone}, 3: {helper: phone}, 4: {helper: tablet}, 5: {helper: box}}}
	flows := map[wire.PathID]endpoint.HelpedFlow{2: {Radio: wire.RadioCellular}, 3: {Radio: wire.RadioCellular}, 4: {}, 5: {}, 6: {Radio: wire.RadioCellular, Rx: 1 << 40}}
	seconds := func(n int, rx, tx unit.Bytes) {
		for range n {
			now = now.Add(time.Second)
			for id, f := range flows {
				f.Rx, f.Tx = f.Rx+rx, f.Tx+tx
				flows[id] = f
			}
			p.metered(now, s, flows)
		}
	}
	check := func(when string, want map[byte]float64) {
		t.Helper()
		for key, j := range want {
			if _, took := p.EnergyOf(identity.PublicKey{key}); math.Abs(float64(took)-j) > 1e-3 {
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
	for key, want := range map[byte]wire.Radio{1: wire.RadioCellular, 2: wire.RadioWiFi, 3: wire.RadioNone, 4: wire.RadioNone} {
		if got, _ := p.EnergyOf(identity.PublicKey{key}); got != want {
			t.Errorf("helper %d has %v, want %v", key, got, want)
		}
	}

	s = &session{names: map[wire.PathID]*linkName{2: {helper: phone}}} // a new bond counts from nothing
	flows = map[wire.PathID]endpoint.HelpedFlow{2: {Radio: wire.RadioCellular}}
	seconds(1, 125_000, 0)
	flows = nil // and the subflow ends
	seconds(30, 0, 0)
	active += 0.31491 + 0.64402 + 0.05197 + 1.06*11.576
	check("a new bond", map[byte]float64{1: active, 2: wifi, 3: 0})
}

// TestHelperThatRoams: of a helper whose subflows joined over different radios, that of
// the newest one counts, with the time that it stays awake.
func TestHelperThatRoams(t *testing.T) {
	phone := &helperSlot{}
	p := &Primary{helpers: map[identity.PublicKey]*helperSlot{{1}: phone}}
	s := &session{names: map[wire.PathID]*linkName{2: {helper: phone}, 3: {helper: phone}}}
	now := time.Unix(1e9, 0)
	for second := range 40 {
		rx := unit.Bytes(0)
		if second > 0 {
			rx = 62_500
		}
		p.metered(now.Add(time.Duration(second)*time.Second), s, map[wire.PathID]endpoint.HelpedFlow{2: {Radio: wire.RadioWiFi, Rx: rx}, 3: {Radio: wire.RadioCellular, Rx: rx}})
	}
	want := 0.31491 + 0.64402 + 0.05197 + 1.06*11.576
	if kind, took := p.EnergyOf(identity.PublicKey{1}); kind != wire.RadioCellular || math.Abs(float64(took)-want) > 1e-3 {
		t.Errorf("%v took %v, want %v J", kind, float64(took), want)
	}
}
