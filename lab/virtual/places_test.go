// SPDX-License-Identifier: Apache-2.0

//go:build !race

package virtual

import (
	"flag"
	"testing"
	"time"

	"mpbond/base/unit"
)

var placesSeed = flag.Uint64("places-seed", 0, "seed of the places; 0: the time")

// TestPlaces: at places that nobody has seen, in cells as they are, PBE-CC has nearly the rate of BBR and more than
// CUBIC, with half of the delay, and second carriers come as with BBR.
func TestPlaces(t *testing.T) {
	seed := *placesSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	const places = 12
	rate, late, second := map[string]float64{}, map[string]float64{}, map[string]int{}
	for n := range uint64(places) {
		for _, controller := range []string{"pbe", "bbr", "cubic"} {
			c, most := Place(seed, n, 1, AllParts), 0
			c.OnSubframe(func(x *Cell) { most = max(most, x.Truth(0).Carriers) })
			r := c.Run(controller).Flows[0]
			rate[controller] += float64(r.Rate(0, c.Length)) / places
			late[controller] += milliseconds(r.Delay(0, c.Length, 0.95)-c.Flows[0].DelayToLink) / places
			second[controller] += most - 1
		}
	}
	t.Logf("places %d: rates %v, delays %v ms, second carriers %v", seed, rate, late, second)
	if rate["pbe"] < 0.75*rate["bbr"] || rate["pbe"] < rate["cubic"] || late["pbe"] > 0.75*late["bbr"] ||
		second["pbe"] < second["bbr"]-2 {
		t.Errorf("places %d (-places-seed): rates %v, delays %v ms, second carriers %v", seed, rate, late, second)
	}
}

// TestBursts: bursts have the mean that is asked for, and can be read anywhere again.
func TestBursts(t *testing.T) {
	rate := Bursts(1, 10*unit.Mbps, 200*ms, 600*ms)
	on := 0
	for at := range 2_000_000 {
		if rate(time.Duration(at)*ms) > 0 {
			on++
		}
	}
	if part := float64(on) / 2_000_000; part < 0.17 || part > 0.33 {
		t.Errorf("on for %.2f of the time, want a quarter", part)
	}
	again := Bursts(1, 10*unit.Mbps, 200*ms, 600*ms)
	if a, b := again(1234*sec), rate(1234*sec); a != b {
		t.Errorf("%v, %v", a, b)
	}
}

// TestPartsAreIndependent: a place has the same wire and loss with and without other parts, and a case can be run
// again.
func TestPartsAreIndependent(t *testing.T) {
	for n := range uint64(8) {
		all, some := Place(5, n, 1, AllParts), Place(5, n, 1, Parts{Wire: true, Loss: true})
		if all.Flows[0].Loss != some.Flows[0].Loss || len(all.Flows) != len(some.Flows) {
			t.Errorf("place %d: losses %v and %v", n, all.Flows[0].Loss, some.Flows[0].Loss)
		}
		a, b := all.Wire(), some.Wire()
		for range 2000 {
			if a.Offer(0, &Packet{Size: 1500}) != b.Offer(0, &Packet{Size: 1500}) {
				t.Errorf("place %d: another wire", n)
				break
			}
		}
	}
	c := Place(5, 1, 1, Parts{Uplink: true, Handovers: true})
	c.Length = 5 * sec
	first, again := c.Run("cubic").Flows[0], c.Run("cubic").Flows[0]
	if first.Delivered != again.Delivered || first.Delivered == 0 {
		t.Errorf("%v, again %v", first.Delivered, again.Delivered)
	}
}

// TestOthersSkipWire: a flow of a given rate to another device passes the wire, or comes another way.
func TestOthersSkipWire(t *testing.T) {
	for _, skip := range []bool{false, true} {
		c := Beside(1, SteadyRate(10*unit.Mbps))
		c.Length, c.OthersSkipWire = 4*sec, skip
		c.Wire = func() Link { return NewWire(SteadyRate(2*unit.Mbps), 30*unit.KB) }
		o := c.Run("bbr")
		ours, other := o.Flows[0].Rate(sec, c.Length), o.Flows[1].Rate(sec, c.Length)
		if skip && (other < 9*unit.Mbps || ours < 1700*unit.Kbps) || !skip && other > 2*unit.Mbps {
			t.Errorf("skips %v: %v, and %v of the other device", skip, ours, other)
		}
	}
}
