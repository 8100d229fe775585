// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// Our assumptions about the carrier. With this rate and these users, one device alone gets the
// published 10.1 Mbit/s, and two devices get about the published 15.1.
const (
	m15Rate     = 37  // Mbit/s of the cell
	m15Others   = 6   // other users, each busy half of the time
	m15Turn     = 4.0 // mean seconds of their busy and idle times
	m15Queue    = "500KB"
	m15Cells    = 5 // patterns of the others, as cells of the row
	m15Length   = time.Minute
	m15Delay    = "25ms"
	m15Pipe     = "50/50"       // HS-path, which the carrier's cell limits, and pipe
	m15Download = 144 * unit.MB // 20 Mbit/s, more than two devices get
)

// rowM15SharedCell returns row m15: two devices of one carrier, which share a cell.
func rowM15SharedCell(radio.Set) Row {
	r := Row{
		ID: "m15", Title: "Two devices at one carrier (its rate inferred from the published ones)",
		Source: mpbondPaper + ", both devices on one carrier",
		Setup: fmt.Sprintf("Mean rate of %v of a download, once with each of %d patterns of other users (the "+
			"paper 10 times). Both links share a cell of %d Mbit/s. At each moment it is divided equally among "+
			"the users with data to send: the two devices and %d others, which are busy and idle in turn for %g s "+
			"on average (exponential, seeded, the same for all schemes in a repetition). Rate and others are "+
			"chosen so that one device gets about the published 10.1 Mbit/s and two about 15.1. So the row shows "+
			"how much of two shares a scheme uses, not what a carrier gives. Delays %s each way, queues %s, pipe "+
			"50 Mbit/s.", m15Length, m15Cells, m15Rate, m15Others, m15Turn, m15Delay, m15Queue),
		Metrics: []Metric{Rate, deviceRate("primary"), deviceRate("helper1")},
	}
	for i := range m15Cells {
		c := Cell{Name: fmt.Sprintf("pattern %d of other users", i+1), Network: func(seed uint64) (*lab.Topology,
			error) {
			return m15CellNetwork(seed, uint64(i))
		},
			Size: m15Download, Length: m15Length, Reps: 1, Schemes: []string{"mpbond", "mptcp", "single",
				"single:helper1"}}
		if i == 0 {
			c.Quick = 1
		}
		r.Cells = append(r.Cells, c)
	}
	// A pattern is one case with the mean of its repetitions.
	each := func(of func(d Data, cell string) []float64) func(Data) []float64 {
		return func(d Data) (v []float64) {
			for _, c := range r.Cells {
				if s := Summarize(of(d, c.Name)); s.N > 0 {
					v = append(v, s.Mean)
				}
			}
			return v
		}
	}
	all := func(scheme string, m Metric) func(Data) []float64 {
		return each(func(d Data, cell string) []float64 { return d.Values(cell, scheme, m) })
	}
	r.Groups = [][]string{listCellNames(r.Cells)}
	r.Points = []Point{
		{What: "one device", Unit: "Mbit/s", Low: 10.1, High: 10.1, Aim: AimNear, IsFitted: true,
			Of: all("single", Rate)},
		{What: "two devices", Unit: "Mbit/s", Low: 15.1, High: 15.1, Aim: AimAtLeast, IsFitted: true,
			Of: all(Product, Rate)},
		{What: "two devices relative to one", Unit: "%", Low: 49.5, High: 49.5, PublishedText: "49.5 % (derived)",
			Aim: AimIncrease, IsFitted: true, Of: each(func(d Data, cell string) []float64 {
				return d.Changes(cell, [2]string{Product, "single"}, Rate)
			})},
		{What: "of two devices, by the primary", Unit: "Mbit/s", Low: 8.2, High: 8.2, Aim: AimNear,
			Of: all(Product, deviceRate("primary"))},
		{What: "of two devices, by the helper", Unit: "Mbit/s", Low: 6.9, High: 6.9, Aim: AimNear,
			Of: all(Product, deviceRate("helper1"))},
	}
	return r
}

// deviceRate returns the metric of the mean payload rate through a device.
func deviceRate(device string) Metric {
	return Metric{Name: "rate by " + device, Unit: "Mbit/s", More: true, Of: func(r lab.Result) (float64, bool) {
		n, ok := r.Devices[device]
		return lab.PayloadShare * float64(8*n) / 1e6 / r.Seconds, ok && r.Seconds > 0
	}}
}

// m15CellNetwork returns a network whose links share one cell.
func m15CellNetwork(seed, pattern uint64) (*lab.Topology, error) {
	t, err := lab.Triangle("50/" + m15Pipe)
	if err != nil {
		return nil, err
	}
	c := &lab.RadioCell{CellSettings: lab.CellSettings{Rate: fmt.Sprintf("%dMbit/s", m15Rate)}}
	c.Others, c.Schedule = m15UserSchedule(rand.New(rand.NewPCG(seed, pattern)))
	t.Cell = map[string]*lab.RadioCell{"carrier": c}
	for _, name := range []string{"ps", "hs1"} {
		l := t.Link[name]
		l.Cell, l.Rate, l.Delay, l.Queue = "carrier", "", m15Delay, m15Queue
	}
	return t, t.Check()
}

// m15UserSchedule returns how many other users are busy at first, and the schedule of changes.
func m15UserSchedule(rng *rand.Rand) (first int, schedule []string) {
	type step struct {
		at time.Duration
		by int
	}
	var steps []step
	for range m15Others {
		at, by := 0.0, 1
		if rng.IntN(2) == 0 {
			first, by = first+1, -1
		}
		for at += m15Turn * rng.ExpFloat64(); at < m15Length.Seconds(); at += m15Turn * rng.ExpFloat64() {
			steps = append(steps, step{time.Duration(at * float64(time.Second)).Round(time.Millisecond), by})
			by = -by
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	now := first
	for _, s := range steps {
		now += s.by
		schedule = append(schedule, fmt.Sprintf("at %v: others %d", s.at, now))
	}
	return first, schedule
}
