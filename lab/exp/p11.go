// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
	"mpbond/pbe/cell"
)

// Schemes of a bond over two cells, by their subflows.
const (
	p11PBE   = "mpbond:if=cell1+cell2:udp:cc=pbe"
	p11BBR   = "mpbond:if=cell1+cell2:udp:cc=bbr"
	p11CUBIC = "mpbond:if=cell1+cell2:udp:cc=cubic"
	p11TCP   = "mpbond:if=cell1+cell2"
	p11MPTCP = "mptcp:own"
)

const (
	p11Size  = 20 * unit.MB
	p11Pings = 20 * time.Millisecond
)

// rowP11TwoCells returns row p11: mpbond over two emulated cells, in real time.
func rowP11TwoCells(radio.Set) Row { return twoCellsRow(false) }

// rowP11cDetailed returns row p11c: the same over detailed cells.
func rowP11cDetailed(radio.Set) Row {
	r := twoCellsRow(true)
	r.ID, r.Title = r.ID+"c", r.Title+", in cells as they are"
	r.Setup += " The cells are detailed (docs/reference/lab.md): errors follow from signals that fade, few users are " +
		"served in a subframe, devices sleep and wait for uplink grants. The first link moves to another cell every 3 s."
	r.Study, r.isUnpublished = CellRows, true
	return r
}

// twoCellsRow returns row p11, in detailed cells or not.
func twoCellsRow(detailed bool) Row {
	r := Row{
		ID: "p11", Title: "A bond over two mobile cells", Source: "none: ours",
		Setup: "In real time: mpbond itself, with subflows over two own links, which are devices of two emulated " +
			"mobile networks (docs/reference/lab.md): 10 MHz, 18 dB, 25 ms each way before the cell, and 5 MHz, " +
			"15 dB, 35 " +
			"ms; two layers, p = 2·10⁻⁶, control traffic, 750 KB of queue each. Subflows are paced over UDP by " +
			"PBE-CC, which listens to both cells, BBR or CUBIC, or are the kernel's TCP with CUBIC; kernel MPTCP, " +
			"with CUBIC and its default scheduler, has a subflow by each link. 20 MB are fetched, and at the same time " +
			"a packet of 60 bytes goes over each link every 20 ms, there and back: its delay shows the queue that " +
			"the transfer leaves for other traffic of the device. In the second network another device, which " +
			"receives 60 Mbit/s for 2 of each 4 s, shares the first cell.",
		Judged: p11PBE,
	}
	near, far := pingMetric("cell1", "p95", func(d lab.Delays) time.Duration {
		return d.P95
	}), pingMetric("cell2", "p95", func(d lab.Delays) time.Duration { return d.P95 })
	near.alsoCompared = true
	r.Metrics = []Metric{Time, near, far, pingMetric("cell1", "p50", func(d lab.Delays) time.Duration {
		return d.P50
	}), pingMetric("cell2", "p50", func(d lab.Delays) time.Duration { return d.P50 })}
	for _, c := range []struct {
		name  string
		rival bool
	}{{"alone", false}, {"beside a device that comes and goes", true}} {
		x := Cell{Name: c.name, Network: func(seed uint64) (*lab.Topology, error) {
			return p11TwoCellNetwork(seed, c.rival, detailed)
		}, Size: p11Size, Ping: p11Pings,
			Schemes: []string{p11PBE, p11BBR, p11CUBIC, p11TCP, p11MPTCP, "single"}, Reps: 3, Alone: true}.limitSchemeReps(1,
			"single")
		if !c.rival {
			x.Quick = 1
		}
		r.Cells = append(r.Cells, x)
		for _, other := range []struct{ scheme, name string }{{p11BBR, "BBR"}, {p11CUBIC, "CUBIC over UDP"},
			{p11TCP, "CUBIC over TCP"}, {p11MPTCP, "kernel MPTCP"}} {
			for _, m := range []Metric{near, far} {
				r.Points = append(r.Points, Point{What: c.name + ": " + m.Name + " relative to " + other.name,
					Unit: "%", PublishedText: "shorter (required)", Aim: AimAnyReduction,
					Of: func(d Data) []float64 { return d.Changes(c.name, [2]string{p11PBE, other.scheme}, m) }})
			}
			r.Points = append(r.Points, Point{What: c.name + ": time relative to " + other.name, Unit: "%", Low: 15,
				High: 15, PublishedText: "15 % more at most (required)", Aim: AimAtMost, IsLimit: true,
				Of: func(d Data) []float64 { return d.Changes(c.name, [2]string{p11PBE, other.scheme}, Time) }})
		}
	}
	return r
}

// pingMetric returns the metric of small packets' delays from the server over a link during the
// transfer.
func pingMetric(link, which string, of func(lab.Delays) time.Duration) Metric {
	return Metric{Name: "ping over " + link + ", " + which, Unit: "ms", Of: func(r lab.Result) (float64, bool) {
		p, ok := r.Pings[link]
		return of(p.Down).Seconds() * 1000, ok && p.Down.Packets > 0
	}}
}

// p11TwoCellNetwork returns a primary with two links in two mobile networks.
func p11TwoCellNetwork(seed uint64, rival, detailed bool) (*lab.Topology, error) {
	link := func(network string, rnti int, signal, delay, up string) *lab.Link {
		l := &lab.Link{Ends: [2]string{"primary", "server"}, LinkSettings: lab.LinkSettings{Delay: delay},
			Up: &lab.LinkSettings{Rate: up}, LTE: &lab.LTELink{Network: network}}
		l.LTE.RNTI, l.LTE.Signal, l.LTE.ErrorRate = cell.RNTI(rnti), signal, 2e-6
		return l
	}
	t := &lab.Topology{
		Seed: seed,
		Node: map[string]*lab.Node{"primary": {Routes: []string{"default via cell1"}}, "server": {Forward: true},
			"web": {Routes: []string{"default via core"}}},
		Link: map[string]*lab.Link{
			"cell1": link("one", 0x4601, "18dB", "25ms", "20Mbit/s"),
			"cell2": link("two", 0x4602, "15dB", "35ms", "10Mbit/s"),
			"core":  {Ends: [2]string{"server", "web"}},
		},
		LTE: map[string]*lab.LTE{"one": {Carriers: []lab.Carrier{{PRB: 50, Control: 0.4}}},
			"two": {Carriers: []lab.Carrier{{PRB: 25, Control: 0.4}}}},
	}
	if rival {
		t.LTE["one"].User = map[string]*lab.User{"rival": {Rate: "60Mbit/s", On: "2s", Off: "2s",
			Device: lab.Device{Signal: "18dB", ErrorRate: 2e-6}}}
	}
	if detailed {
		t.LTE["one"].Detailed, t.LTE["two"].Detailed = true, true
		t.Link["cell1"].LTE.Handover = "3s"
	}
	return t, t.Check()
}
