// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/vary"
)

const (
	h3Size = 512 * unit.KB
	// h3Window is how long after its first SYN a handoff delays a handshake: both subflows need about as long
	// without one.
	h3Window = 250 * time.Millisecond
	// h3Usual is the number of packets without a loss: three for each subflow.
	h3Usual = 6
	// h3Many is the number that the study counts the connections beyond.
	h3Many = 8
)

// h3Schemes are the version of MPTCP whose handshakes are counted, and mpbond.
var h3Schemes = []string{railLIA, railOurs}

// h3Cell is the cell of row h3: downloads as in row h1.
var h3Cell = h1Cell{name: atSpeed + ", handshakes", size: h3Size, travel: vary.HighSpeedTrain, quick: 1}

// rowH3Handshakes counts the packets until both subflows of a connection are up.
func rowH3Handshakes() Row {
	r := newRailRow("h3", "set-up of subflows", fmt.Sprintf("%d downloads of %v at 300 km/h, each over a connection of "+
		"its own. Counted from captures at the device: SYNs, SYN+ACKs and an ACK for each of these, until both subflows are "+
		"up; all, where the second one never is. A handoff counts if it overlaps the %v after the first SYN. mpbond's "+
		"subflows are set up before the downloads: all packets of handshakes during these count.",
		h1Reps*h1Starts, h3Size, h3Window))
	r.Metrics = []Metric{handshakePackets, handshakeTime, quantileMetric("median", 0.5)}
	r.cellsOf = func(uint64) []Cell {
		c := h3Cell
		return []Cell{{Name: c.name, Schemes: h3Schemes, Reps: h1Reps, MaxReps: h1Reps, Stride: h1Stride, Quick: c.quick,
			Handshakes: true,
			Network:    func(seed uint64) (*lab.Topology, error) { return c.drawCellRides(seed).buildTopology() },
			Reports:    func(seed uint64) []lab.CellReport { return c.drawCellRides(seed).cellReports() },
			App:        c.downloadScript}}
	}
	r.pointsOf = func(seed uint64) []Point {
		rides := sync.OnceValue(func() railRides { return h3Cell.drawCellRides(seed) })
		return []Point{
			{What: "packets of both handshakes without a handoff", Low: h3Usual, High: h3Usual, PublishedText: "3 + 3",
				Aim: AimNear, Of: func(d Data) []float64 { return d.handshakes(rides(), withoutHandoff).bothUp().packets() }},
			railSignPoint("packets of both handshakes with a handoff, relative to those without", 1, "more",
				func(d Data) (all []float64) {
					usual := Summarize(d.handshakes(rides(), withoutHandoff).bothUp().packets())
					for _, n := range d.handshakes(rides(), withHandoff).bothUp().packets() {
						all = append(all, 100*(n/max(1, usual.Mean)-1))
					}
					return all
				}),
			{What: fmt.Sprintf("connections with more than %d packets", h3Many), Unit: "%", Low: 10, High: 10,
				PublishedText: "10 %", Aim: AimNear, Of: func(d Data) (all []float64) {
					for _, n := range d.handshakes(rides(), anyHandoff).packets() {
						all = append(all, map[bool]float64{true: 100}[n > h3Many])
					}
					return all
				}},
			railLimit("packets of handshakes for each download with "+railOurs, "", 0, AimAtMost, func(d Data) []float64 {
				return d.Values(h3Cell.name, railOurs, handshakePackets)
			}),
		}
	}
	r.tables = h3Tables
	return r
}

// handshakePackets is the number of packets of handshakes for each download.
var handshakePackets = Metric{Name: "packets of handshakes for each download", Of: func(r lab.Result) (float64, bool) {
	if r.Handshakes == nil || r.App == nil || len(r.App.Requests) == 0 {
		return 0, false
	}
	return float64(r.Handshakes.Packets) / float64(len(r.App.Requests)), true
}}

// handshakeTime is the median time until both subflows are up.
var handshakeTime = Metric{Name: "time until both subflows are up, median", Unit: "s", Of: func(r lab.Result) (float64,
	bool) {
	var all []float64
	if r.Handshakes != nil {
		for _, c := range r.Handshakes.Connections {
			if c.Took > 0 {
				all = append(all, c.Took)
			}
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return medianOfValues(all), true
}}

// handshakeList are handshakes of connections.
type handshakeList []lab.ConnectionHandshake

// bothUp returns those of connections with two subflows.
func (l handshakeList) bothUp() (some handshakeList) {
	for _, c := range l {
		if c.Took > 0 {
			some = append(some, c)
		}
	}
	return some
}

// packets returns the number of packets of each.
func (l handshakeList) packets() (all []float64) {
	for _, c := range l {
		all = append(all, float64(c.Packets))
	}
	return all
}

// handshakes returns the handshakes of MPTCP's connections. It counts the carriers with a handoff during each, and
// keeps those that accepts wants.
func (d Data) handshakes(rides railRides, accepts func(carriers int) bool) (all handshakeList) {
	for _, r := range d.countedResults(h3Cell.name, railLIA) {
		if r.Handshakes == nil {
			continue
		}
		for _, c := range r.Handshakes.Connections {
			from := time.Duration(r.Rep)*h1Stride + time.Duration(c.At*float64(time.Second))
			carriers := 0
			for carrier := range vary.Carriers {
				if rides.countHandoffs(carrier, from, from+h3Window) > 0 {
					carriers++
				}
			}
			if accepts(carriers) {
				all = append(all, c)
			}
		}
	}
	return all
}

// Which connections count, by the number of carriers with a handoff during the handshakes.
func anyHandoff(int) bool              { return true }
func withoutHandoff(carriers int) bool { return carriers == 0 }
func withHandoff(carriers int) bool    { return carriers > 0 }

// h3Tables returns the distribution of packets and times.
func h3Tables(rec Record) []Table {
	t := Table{Title: "Until both subflows are up", Head: []string{"handoff", "connections", "second subflow never up",
		"packets: median", "95 % point", "most", "time: median", "95 % point", "longest"}}
	rides := h3Cell.drawCellRides(rec.Seed)
	for _, class := range []struct {
		name    string
		accepts func(carriers int) bool
	}{{"all", anyHandoff}, {"none", withoutHandoff}, {"on one or both", withHandoff}} {
		all := rec.Results.handshakes(rides, class.accepts)
		up := all.bothUp()
		if len(up) == 0 {
			continue
		}
		var times []float64
		for _, c := range up {
			times = append(times, c.Took)
		}
		packets := up.packets()
		at := func(v []float64, share float64) float64 { return percentile{share: share}.quantileOfSamples(v) }
		t.Add(class.name, fmt.Sprint(len(all)), fmt.Sprint(len(all)-len(up)), fmt.Sprint(at(packets, 0.5)),
			fmt.Sprint(at(packets, 0.95)), fmt.Sprint(slices.Max(packets)), formatSeconds(at(times, 0.5)),
			formatSeconds(at(times, 0.95)), formatSeconds(slices.Max(times)))
	}
	return []Table{t}
}
