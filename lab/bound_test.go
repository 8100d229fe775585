// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"math"
	"testing"
	"time"

	"mpbond/base/unit"
)

func TestBound(t *testing.T) {
	for _, c := range []struct {
		links   string
		changes []string // at 2 s
		size    unit.Bytes
		up      bool
		want    float64
	}{
		// Values computed by hand.
		{"8/10/5", nil, 512 * unit.KB, false, .434},
		{"8/10/5", nil, 1 * unit.MB, false, .768},
		{"8/10/5", nil, 2 * unit.MB, false, 1.437},
		{"8/10/5", nil, 4 * unit.MB, false, 2.774},
		{"8/10/5", nil, 10 * unit.MB, false, 6.785},
		{"8/10/5", nil, 10 * unit.MB, true, 6.785},
		// 4 MB are 34.76 Mbit of IP. The helper's buffer holds 10 Mbit after 2 s, before the path
		// drops to 1, and hides the drop.
		{"8/10/5", []string{"hs1.rate=1Mbit/s"}, 4 * unit.MB, false, 2.774},
		// Upload: the pipe comes first and nothing hides the drop: 26 Mbit in 2 s, then 9 Mbit/s.
		{"8/10/5", []string{"hs1.rate=1Mbit/s"}, 4 * unit.MB, true, 2 + (34.7598-26)/9 + .1},
		{"8/10/5", []string{"pipe1.rate=1Mbit/s"}, 4 * unit.MB, false, 2 + (34.7598-26)/9 + .1},
		{"8/10/5", []string{"ps.outage=on"}, 4 * unit.MB, false, 2 + (34.7598-26)/5 + .1},
		{"8/10/5,10/5", nil, 10 * unit.MB, false, 86.8994/18 + .1},
		{"8/10/5+3", nil, 10 * unit.MB, false, 86.8994/16 + .1},
		{"8", nil, 1 * unit.MB, false, 8.68994/8 + .1},
		{"8/3/50", nil, 1 * unit.MB, false, 8.68994/11 + .1},
	} {
		top, err := Triangle(c.links)
		if err != nil {
			t.Fatal(err)
		}
		for _, ch := range c.changes {
			if err := top.AddChange(2*time.Second, ch); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Bound(top, c.size, c.up)
		if err != nil || math.Abs(got.Seconds()-c.want) > .0011 {
			t.Errorf("bound of %v over %s %v (upload %v) is %v, %v; want %.3f s", c.size, c.links, c.changes, c.up, got,
				err, c.want)
		}
	}
	// Later starts leave less of the 2 s at 13 Mbit/s.
	top, err := Triangle("8/10/5")
	if err == nil {
		err = top.AddChange(2*time.Second, "pipe1.rate=1Mbit/s")
	}
	if err != nil {
		t.Fatal(err)
	}
	for into, want := range map[time.Duration]float64{0: 2 + (34.7598-26)/9 + .1, time.Second: 1 + (34.7598-13)/9 + .1,
		2 * time.Second: 34.7598/9 + .1} {
		if got, err := boundStartingAt(top, 4*unit.MB, false, into); err != nil || math.Abs(got.Seconds()-want) > .0011 {
			t.Errorf("%v into it: %v, %v; want %.3f s", into, got, err, want)
		}
	}
	if n, err := CarriedPayload(top, false, 3*time.Second); err != nil ||
		math.Abs(float64(n)-(26e6+9e6)/8*1448/1500) > 5000 {
		t.Errorf("in 3 s: %v, %v", n, err)
	}
	dead, _ := ParseTopology(
		[]byte("[node.primary]\n[node.server]\n[link.ps]\nends=[\"primary\",\"server\"]\nrate=\"0\""), ".")
	if _, err := Bound(dead, 1, false); err == nil {
		t.Error("a dead link has a bound")
	}
}

// Two devices of one cell get two shares of it, limited by their own links.
func TestBoundOfCell(t *testing.T) {
	for _, c := range []struct {
		cell RadioCell
		pipe string
		size unit.Bytes
		up   bool
		want float64
	}{
		// 10 MB are 86.9 Mbit of IP.
		{RadioCell{CellSettings: CellSettings{Rate: "30Mbit/s", Others: 2}}, "-", 10 * unit.MB, false, 86.8994/15 + .1},
		{RadioCell{CellSettings: CellSettings{Rate: "30Mbit/s", Others: 2}}, "-", 10 * unit.MB, true, 86.8994/15 + .1},
		{RadioCell{CellSettings: CellSettings{Rate: "12Mbit/s"}}, "-", 10 * unit.MB, false, 86.8994/12 + .1},
		// With a pipe of 5 the primary gets at most its 10.
		{RadioCell{CellSettings: CellSettings{Rate: "30Mbit/s", Others: 2}}, "5", 10 * unit.MB, false, 86.8994/15 + .1},
		{RadioCell{CellSettings: CellSettings{Rate: "30Mbit/s", Others: 2}}, "2", 10 * unit.MB, false, 86.8994/12 + .1},
		// 30 Mbit in 2 s, then two of four shares of 16.
		{RadioCell{CellSettings: CellSettings{Rate: "30Mbit/s", Others: 2, Schedule: []string{"at 2s: rate 16Mbit/s"}}},
			"-", 10 * unit.MB, false, 2 + 56.8994/8 + .1},
		// The other direction does not count.
		{RadioCell{CellSettings: CellSettings{Rate: "1Mbit/s"}, Down: &CellSettings{Rate: "12Mbit/s"}}, "-",
			10 * unit.MB, false, 86.8994/12 + .1},
	} {
		top, err := Triangle("8/10/" + c.pipe)
		if err != nil {
			t.Fatal(err)
		}
		top.Cell = map[string]*RadioCell{"lte": &c.cell}
		for _, name := range []string{"ps", "hs1"} {
			l := top.Link[name]
			l.Cell, l.Rate, l.Queue = "lte", "", "200KB"
		}
		if err := top.Check(); err != nil {
			t.Fatal(err)
		}
		got, err := Bound(top, c.size, c.up)
		if err != nil || math.Abs(got.Seconds()-c.want) > .0011 {
			t.Errorf("bound in cell %+v, pipe %s (upload %v) is %v, %v; want %.3f s", c.cell, c.pipe, c.up, got, err,
				c.want)
		}
	}
}
