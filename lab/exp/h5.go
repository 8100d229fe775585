// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
)

const (
	h5Length = 30 * time.Second
	h5Reps   = 4
)

// h5Schemes are the schemes with known held bytes.
var h5Schemes = []string{railLIA, railOLIA, railUncoupled, railOurs}

// rowH5Held measures how many bytes wait for earlier ones at the receiver.
func rowH5Held() Row {
	r := newRailRow("h5", "bytes held out of order", fmt.Sprintf("Downloads of %v, %d at each speed. Bytes that have "+
		"arrived and wait for earlier ones, at each tenth of a second: of MPTCP by the data sequence numbers in captures at "+
		"the device, of mpbond as it reports them itself. What waits for a lost packet of the same subflow counts for MPTCP "+
		"only: mpbond does not see it.", h5Length, h5Reps))
	r.Metrics = []Metric{heldMean, held95, BoundShare}
	cellName := func(speed string) string { return speed + ", held bytes" }
	for _, at := range railTravels {
		name := cellName(at.name)
		rides := func(seed uint64) railRides {
			return drawRides(seed, "h5/"+at.name, at.travel, h5Reps*h5Length+time.Minute)
		}
		mean := at.travel.Down[0] + at.travel.Down[1]
		r.Cells = append(r.Cells, Cell{Name: name, Schemes: h5Schemes, Reps: h5Reps, MaxReps: h5Reps, Quick: at.quick,
			Stride: h5Length, Length: h5Length, Size: h2Headroom * mean.Bytes(h5Length), Held: true,
			Reports: func(seed uint64) []lab.CellReport { return rides(seed).cellReports() },
			Network: func(seed uint64) (*lab.Topology, error) { return rides(seed).buildTopology() }})
	}
	cells := [2]string{cellName(atSpeed), cellName(railTravels[1].name)}
	for _, scheme := range railPublished {
		r.Points = append(r.Points,
			railSignPoint("bytes held by "+scheme+" at speed, relative to those at rest", 1, "more",
				func(d Data) []float64 { return d.cellChanges(cells, scheme, heldMean) }),
			railSignPoint("share of the links that "+scheme+" uses at speed, relative to that at rest", -1, "less",
				func(d Data) []float64 { return d.cellChanges(cells, scheme, BoundShare) }))
	}
	speed := railTravels[0].travel.Down
	limit := (speed[0] + speed[1]).Bytes(500 * time.Millisecond)
	r.Points = append(r.Points, railLimit(atSpeed+": bytes held by "+railOurs+", 95 % point", "KB",
		float64(limit/unit.KB), AimAtMost, func(d Data) []float64 {
			return d.Values(cellName(atSpeed), railOurs, held95)
		}))
	r.tables = func(rec Record) []Table {
		t := Table{Title: "Held bytes over time, first download at speed (KB, the most in each second)",
			Head: []string{"scheme", "by second"}}
		for _, scheme := range h5Schemes {
			if x, ok := rec.Results.resultOfRepetition(cellName(atSpeed), scheme, 0); ok && x.Held != nil {
				t.Add(scheme, heldBySecond(*x.Held))
			}
		}
		return []Table{t}
	}
	return r
}

// Figures of the bytes that wait.
var (
	heldMean = Metric{Name: "held bytes, mean", Unit: "KB", Of: func(r lab.Result) (float64, bool) {
		values := heldKilobytes(r)
		sum := 0.0
		for _, v := range values {
			sum += v
		}
		return sum / float64(max(1, len(values))), len(values) > 0
	}}
	held95 = Metric{Name: "held bytes, 95 % point", Unit: "KB", Of: func(r lab.Result) (float64, bool) {
		values := heldKilobytes(r)
		if len(values) == 0 {
			return 0, false
		}
		return percentile{share: 0.95}.quantileOfSamples(values), true
	}}
)

// heldKilobytes returns the held bytes of each step.
func heldKilobytes(r lab.Result) (all []float64) {
	if r.Held == nil {
		return nil
	}
	for _, n := range r.Held.Bytes {
		all = append(all, float64(n)/float64(unit.KB))
	}
	return all
}

// heldBySecond returns the most that was held in each second.
func heldBySecond(log lab.HeldLog) (text string) {
	steps := max(1, int(1/log.Step+0.5))
	for i := 0; i < len(log.Bytes); i += steps {
		most := unit.Bytes(0)
		for _, n := range log.Bytes[i:min(i+steps, len(log.Bytes))] {
			most = max(most, n)
		}
		if i > 0 {
			text += " "
		}
		text += fmt.Sprint(int64(most / unit.KB))
	}
	return text
}
