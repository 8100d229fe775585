package endpoint

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/subflow"
	"mpbond/link/wire"
)

// TestGuide: policy is told what a subflow costs, and what it was seen to carry
// at this place as long as nothing better is known.
func TestGuide(t *testing.T) {
	wifi := &lane{sf: &subflow.Subflow{Path: 1, Terms: wire.Terms{Radio: wire.RadioWiFi, Rate: unit.Mbps}}}
	phone := &lane{sf: &subflow.Subflow{Path: 2, Helped: true, Terms: wire.Terms{Radio: wire.RadioCellular}}}
	g := &guide{lanes: map[wire.PathID]*lane{1: wifi, 2: phone}}
	ask := func(known bool, pending unit.Bytes) bool {
		paths := []bond.GuidePath{
			{ID: 1, Rate: 20 * unit.Mbps, Known: known, Delay: 25 * time.Millisecond, Idle: time.Minute},
			{ID: 2, Rate: 5 * unit.Mbps, Known: true, Delay: 35 * time.Millisecond, Idle: time.Minute},
		}
		if why := g.Guide(paths, bond.Demand{Pending: pending}); paths[0].Allowed == (wifi.sf.Terms.Tier == wire.TierBackup) || why == "" {
			t.Errorf("%+v: %s", paths, why)
		}
		return paths[1].Allowed
	}
	if ask(true, 100*unit.KB) || !ask(false, 100*unit.KB) {
		t.Error("100 KB over WiFi of 20 Mbit/s want the helper, or over one that was slow here do not")
	}
	if wifi.sf.Terms.Rate = 0; ask(false, 64*unit.KB) || !ask(false, 10*unit.MB) {
		t.Error("without memory 64 KB want the helper, or 10 MB do not")
	}
	wifi.sf.Terms.Tier = wire.TierBackup
	if !ask(true, 100) {
		t.Error("data that costs money is used although a helper works")
	}
}

func TestSteady(t *testing.T) {
	var r rates
	now := time.Unix(1e9, 0)
	for i := range 20 { // 1 Mbit/s, with a pause, then 8 Mbit/s
		now = now.Add(100 * time.Millisecond)
		rx := uint64(i) * 12500
		if i >= 14 {
			now = now.Add(time.Duration(max(0, 15-i)) * 300 * time.Millisecond)
			rx = 14*12500 + uint64(i-14)*100_000
		}
		r.note(now, rx, 0)
	}
	of := func(i int) uint64 { return r.list[i%len(r.list)].rx }
	if got := r.steady(now, of); got < 79e5 || got > 81e5 {
		t.Errorf("%v, want 8 Mbit/s", got)
	}
	if got := r.steady(now, func(i int) uint64 { return r.list[i%len(r.list)].tx }); got != 0 {
		t.Errorf("%v of nothing", got)
	}
	if got := r.steady(now.Add(time.Minute), of); got != 0 {
		t.Errorf("%v after a minute", got)
	}
}
