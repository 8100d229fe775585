package exp

import (
	"fmt"
	"slices"
	"time"

	"mpbond/lab"
	"mpbond/lab/radio"
	"mpbond/lab/vary"
	"mpbond/unit"
)

// Repetitions of m8 begin each m8Stride later in profiles of m8Length, which go
// round.
const (
	m8Reps   = 10
	m8Stride = 20 * time.Second
	m8Length = 230 * time.Second // no multiple of the stride: more repetitions see new parts
)

// m8Kinds are what varies, and how. All else is that of 8/10/5.
var m8Kinds = []struct {
	name string
	made func(seed uint64) varying
	// recorded are files of links.
	recorded map[string]string
}{
	{"WWAN varies", func(seed uint64) varying {
		return varying{"ps": vary.LTE(vary.Rand(seed, "m8/ps"), 8*unit.Mbps, m8Length), "hs1": vary.LTE(vary.Rand(seed, "m8/hs1"), 10*unit.Mbps, m8Length)}
	}, map[string]string{"ps": "mahimahi/Verizon-LTE-short.down", "hs1": "mahimahi/TMobile-LTE-short.down"}},
	{"WLAN varies", func(seed uint64) varying {
		return varying{"pipe1": vary.WLAN(vary.Rand(seed, "m8/pipe1"), m8Walk, m8Length)}
	}, map[string]string{"pipe1": "wifi-cellular-pairs/8_1_wifi.csv"}},
}

// m8Walk: from beside each other to where the pipe is slower than the HS-path, or
// out of range behind a wall.
var m8Walk = vary.Walk{Near: 1, Far: 35}

// m8Recorded is how long recordings are used.
const m8Recorded = 100 * time.Second

// m8: small files while networks vary.
func m8(set radio.Set) Row {
	active := Energy(set, "", false)
	r := Row{
		ID: "m8", Title: "Small files while WWAN or WLAN vary", Source: mobi + ", varying networks",
		Setup: setup + fmt.Sprintf(" 8/10/5 Mbit/s; \"WWAN\": PS and HS vary as lab/vary makes LTE, with these means, in queues of %v; \"WLAN\": the pipe is that between people who walk %g to %g m from each other. Each repetition begins %v further on. The published figures are of all sizes: so is each of ours, the mean of a repetition, whose sizes all begin at the same moment of the profiles. The fixed ratio of %s is the best mean of a cell, in steps of 10 %% of the bytes. %s",
			cellularQueue, m8Walk.Near, m8Walk.Far, m8Stride, mptcp, energySetup(set)),
		Lacks:   "the paper's profiles, which are not known to us",
		Metrics: []Metric{Time, active, Energy(set, "", true), Stall},
	}
	for _, kind := range m8Kinds {
		var cells []string
		for _, traced := range []bool{false, true} {
			for _, size := range m5Sizes {
				c := Cell{Name: fmt.Sprintf("%s, %v", kind.name, size), Size: size, Schemes: slices.Concat([]string{Product, pams, mptcp}, combines, oraclesWide()),
					Reps: m8Reps, Quick: 1, Stride: m8Stride}
				if traced {
					c.Name += ", recorded"
					c.Traced = func(dir string) (*lab.Topology, error) {
						v, err := recordings(dir, m8Recorded, kind.recorded)
						if err != nil {
							return nil, err
						}
						return v.house("8/10/5", m8Recorded)
					}
				} else {
					c.Net = func(seed uint64) (*lab.Topology, error) { return kind.made(seed).house("8/10/5", m8Length) }
				}
				r.Cells = append(r.Cells, c)
				cells = append(cells, c.Name)
			}
		}
		all := group{kind.name, cells, true}
		r.Points = append(r.Points, all.beside(mptcp, Time, -23, -21), all.beside(mptcp, active, -25, -18),
			all.besideCombine(Time, -35, -29), all.besideCombine(active, -23, -16), all.besideOracle(Time))
	}
	return r
}

// group are cells that are judged as one.
type group struct {
	name  string
	cells []string
	// meet tells that the same repetition of all cells meets the same network, so
	// that they are one case, of which the mean counts.
	meet bool
}

// changes are those of the product beside a scheme of each cell.
func (g group) changes(d Data, other func(cell string) string, m Metric) (percent []float64) {
	var order []int
	cases := map[int][]float64{}
	for i, c := range g.cells {
		d.each(c, [2]string{Product, other(c)}, m, func(rep int, ours, base float64) {
			if base <= 0 {
				return
			}
			if !g.meet {
				rep = i<<16 + rep
			}
			if cases[rep] == nil {
				order = append(order, rep)
			}
			cases[rep] = append(cases[rep], 100*(ours/base-1))
		})
	}
	for _, rep := range order {
		percent = append(percent, Summarize(cases[rep]).Mean)
	}
	return percent
}

// beside is a point: by how many percent the product differs from another scheme in
// the cells, by repetition.
func (g group) beside(other string, m Metric, low, high float64) Point {
	return Point{What: fmt.Sprintf("%s: %s beside %s", g.name, m.Name, other), Unit: "%", Low: low, High: high, Aim: Change,
		Of: func(d Data) []float64 { return g.changes(d, func(string) string { return other }, m) }}
}

// besideCombine is likewise beside COMBINE with the chunks that are the quickest in
// each cell.
func (g group) besideCombine(m Metric, low, high float64) Point {
	return Point{What: fmt.Sprintf("%s: %s beside COMBINE", g.name, m.Name), Unit: "%", Low: low, High: high, Aim: Change,
		Of: func(d Data) []float64 { return g.besideBest(d, combines, m) }}
}

// besideOracle is likewise beside the best fixed ratio of each cell, see the other
// besideOracle.
func (g group) besideOracle(m Metric) Point {
	return Point{What: fmt.Sprintf("%s: %s beside %s with the best fixed ratio", g.name, m.Name, mptcp), Unit: "%", Told: oursLess, Aim: Falls,
		Of: func(d Data) []float64 { return g.besideBest(d, oraclesWide(), m) }}
}

func (g group) besideBest(d Data, others []string, m Metric) []float64 {
	return g.changes(d, func(cell string) string { return d.best(cell, others, Time) }, m)
}
