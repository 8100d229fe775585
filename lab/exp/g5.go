// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"

	"mpbond/lab"
	"mpbond/lab/radio"
)

// g5Home is the home line of the comparison with MPTCP.
var g5Home = [2]float64{4, 0.512}

const (
	// g5Buffer is the largest receive buffer of Linux 2.6: the last value of tcp_rmem.
	g5Buffer = "174760"
	g5Small  = "small receive buffers"
)

// rowG5KernelMPTCP returns row g5: onloading compared with kernel MPTCP.
func rowG5KernelMPTCP(radio.Set) Row {
	r := Row{
		ID: "g5", Title: "Onloading compared with kernel MPTCP", Source: golPaper + ", against MPTCP", Judged: onloadScheme,
		Setup: fmt.Sprintf("The video of g2 over ADSL of 4/0.512 Mbit/s and two phones, as there. We read "+
			"the published 2.3 as the speedup over MPTCP; the other reading is relative to the home line. MPTCP "+
			"is that of this machine's kernel, with one subflow by each phone, and fetches segment after segment "+
			"over one connection. No scheme can be faster than perfect links: their speedup over MPTCP is shown "+
			"too and bounds the first reading. The kernel of 2013 was different: a further cell has receive "+
			"buffers of %s bytes, the largest that Linux 2.6 chose by itself, which hold less than three paths "+
			"have in flight.", g5Buffer),
		NotCovered: "the paper's phones, and its kernel's MPTCP",
		Metrics:    []Metric{Time, Rate, BoundShare, helperRate, Wasted, prebufferMetric(0.2)},
	}
	one := []string{mptcp + ":helpers=1", onePhone}
	few := append(append([]string{Product}, one...), phonesAlone...)
	for _, c := range []Cell{
		{Name: "phones connected", Schemes: append([]string{onloadScheme, onloadGRD, mptcp, "single"}, few...),
			Reps: g2Reps, Quick: 1},
		{Name: "phones idle", Schemes: []string{onloadScheme, onloadGRD, mptcp, "single"}, Reps: 2},
		{Name: g5Small, Schemes: []string{onloadScheme, onloadGRD, mptcp}, Reps: 2},
	} {
		c.Items, c.Stride = g2SegmentSizes(g2Kbps), g1Stride
		c = c.limitSchemeReps(1, few...)
		both := c.withPhones3G(g5Home, c.Name == "phones idle")
		if c.Name == g5Small {
			for i := range both {
				both[i].limitBuffers()
			}
		}
		r.Cells = append(r.Cells, both...)
		times := func(what string, published float64, pair [2]string) {
			r.Points = append(r.Points, Point{What: fmt.Sprintf("%s: %s", c.Name, what), Unit: "times", Low: published,
				High: published, Aim: AimFactor,
				Of: func(d Data) []float64 { return changesToSpeedups(d.sourceChanges(c.Name, pair, Time)) }})
		}
		for _, s := range []string{onloadGRD, onloadScheme} {
			times("speedup of "+s+" over "+mptcp, 2.3, [2]string{s, mptcp})
			if c.Name != g5Small {
				times("speedup of "+s+" over the home line", 2.3, [2]string{s, "single"})
			}
		}
		r.Points = append(r.Points, Point{What: c.Name + ": speedup of perfect links over " + mptcp, Unit: "times",
			Low: 2.3, High: 2.3, Aim: AimFactor,
			Of: func(d Data) (all []float64) {
				for _, of := range sourceSuffixes {
					all = append(all, d.Values(c.Name+of, mptcp, timeOfPerfect)...)
				}
				return all
			}})
	}
	return r
}

// timeOfPerfect is how many times as long a transfer took as with perfect links.
var timeOfPerfect = Metric{Name: "time, of perfect links", Unit: "times", Of: func(r lab.Result) (float64, bool) {
	return r.Seconds / r.Bound, r.Bound > 0
}}

// limitBuffers gives the primary small receive buffers.
func (c *Cell) limitBuffers() {
	limited := func(t *lab.Topology, err error) (*lab.Topology, error) {
		if err == nil {
			t.Node["primary"].Sysctl = map[string]string{"net.ipv4.tcp_rmem": "4096 87380 " + g5Buffer}
		}
		return t, err
	}
	if made := c.Network; made != nil {
		c.Network = func(seed uint64) (*lab.Topology, error) { return limited(made(seed)) }
	}
	if read := c.FromRecordings; read != nil {
		c.FromRecordings = func(dir string) (*lab.Topology, error) { return limited(read(dir)) }
	}
}
