// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"time"

	"mpbond/lab"
	"mpbond/lab/radio"
	"mpbond/lab/virtual"
)

// The default cell with real packets and in virtual time.
const (
	p12Length = 10 * time.Second
	p12Real   = "real packets"
	p12Model  = "virtual time"
	p12Link   = "cell1"
)

// rowP12RealPackets returns row p12: the same case with real packets and in virtual time.
func rowP12RealPackets(radio.Set) Row {
	r := Row{
		ID: "p12", Title: "The default cell with real packets, and in virtual time", Source: "none: ours", Judged: pbe,
		Setup: "One device alone in the default cell of p0, one flow for 10 s, from its first packet on. With " +
			"real packets: sender and receiver are programs in namespaces, over pbe/transport and the lab's " +
			"mobile network (mpbond-lab flow), delays are counted by the link, and PBE-CC reads the network's " +
			"control messages from its socket. Both should agree within 15 %.",
		Metrics: []Metric{Rate, DelayP95, flowMetric("delay, p50", "ms", 0, false, func(f lab.Flow) float64 {
			return f.P50
		})},
	}
	schemes := []string{pbe, "bbr", "cubic"}
	r.Cells = []Cell{
		{Name: p12Real, Flows: p12CellNetwork, Length: p12Length, Schemes: schemes, Reps: pbeReps, Quick: 1},
		{Name: p12Model, Schemes: schemes, Reps: pbeReps, Quick: 1,
			Model: &model{makeCase: func(seed uint64) virtual.Case {
				c := virtual.Default(seed, 1)
				c.Length = p12Length
				return c
			}}},
	}
	for _, s := range schemes {
		for _, m := range r.Metrics[:2] {
			r.Points = append(r.Points, Point{What: s + ": " + m.Name + ", real by virtual", Unit: "times", Low: 1,
				High: 1, PublishedText: "1 ± 0.15 (required)", Aim: AimNear, IsLimit: true,
				Of: func(d Data) (all []float64) {
					for _, change := range d.cellChanges([2]string{p12Real, p12Model}, s, m) {
						all = append(all, 1+change/100)
					}
					return all
				}})
		}
	}
	return r
}

// flowsExperiment returns the experiment of a cell of flows.
func (c Cell) flowsExperiment(reps int, seed uint64) lab.Experiment {
	p := lab.RunSpec{Schemes: c.Schemes, Reps: reps, RepsByScheme: c.RepsByScheme, Seed: seed, Length: c.Length}
	return lab.NewFlowExperiment(c.Name, p, func(rep int) (lab.FlowSpec, error) {
		t := c.Flows(1000*seed + uint64(rep))
		return lab.FlowSpec{Topology: t, Link: t.Links()[0], Length: c.Length, Capacity: c.capacity,
			Seed: seed + uint64(rep)<<16}, t.Check()
	})
}

// p12CellNetwork returns the default cell as a network of the lab.
func p12CellNetwork(seed uint64) *lab.Topology {
	l := &lab.Link{Ends: [2]string{"primary", "server"}, LinkSettings: lab.LinkSettings{Delay: "25ms"},
		Up: &lab.LinkSettings{Delay: "25ms", Rate: "50Mbit/s"}, LTE: &lab.LTELink{Network: "one"}}
	l.LTE.RNTI, l.LTE.Signal, l.LTE.ErrorRate = 0x4000, "18dB", 2e-6
	return &lab.Topology{
		Seed: seed,
		Node: map[string]*lab.Node{"primary": {}, "server": {}},
		Link: map[string]*lab.Link{p12Link: l},
		LTE:  map[string]*lab.LTE{"one": {Carriers: []lab.Carrier{{PRB: 50, Control: 0.4}}}},
	}
}
