// SPDX-License-Identifier: Apache-2.0

//go:build !race

package virtual

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"mpbond/pbe/cc"
)

var (
	locationsFlag = flag.Int("locations", 3, "locations of TestLocations; the paper has 40")
	lengthFlag    = flag.Duration("length", 12*time.Second, "time of each flow of TestLocations; the paper has 20s")
	lossFlag      = flag.Float64("loss", 0,
		"part of the packets that TestLocations loses before the cells: then it checks nothing")
)

// fortyLocations are the results of forty locations with 20 s each: the median over all runs of
// PBE-CC's rate and delay relative to another controller.
var fortyLocations = map[string]struct{ rate, delay float64 }{
	"bbr": {1.01, 0.37}, "cubic": {0.99, 0.11}, "copa": {1.23, 1.12}, "allegro": {1.01, 0.1}, "vivace": {1.15, 0.12},
	"sprout": {2.39, 1.24}, "verus": {0.99, 0.15},
}

// TestLocations runs locations with each controller, as often as -seeds says. It compares PBE-CC's
// rate and p95 of the one-way delay with theirs, location by location. Flows are long enough for
// the RTT probes of BBR and others every 10 s. All forty locations must match
// docs/explanation/pbe.md within a tenth (minutes; row p1 of mpbond-lab exp has them too):
//
//	go test -run TestLocations -v -timeout 30m ./lab/virtual -locations 40 -length 20s -seeds 5
func TestLocations(t *testing.T) {
	rates, delays := map[string][]float64{}, map[string][]float64{}
	activated, second := 0, 0
	var internet, all time.Duration
	for run := range uint64(*seedsFlag) {
		for location := range uint64(*locationsFlag) {
			for _, name := range cc.Names {
				c := Location(location, run)
				c.Length, c.Flows[0].Loss = *lengthFlag, *lossFlag
				o := c.Run(name)
				r := o.Flows[0]
				rates[name] = append(rates[name], float64(r.Rate(0, c.Length))/1e6)
				delays[name] = append(delays[name], milliseconds(r.Delay(0, c.Length, 0.95)))
				p := o.PBE[0]
				if p == nil {
					continue
				}
				if len(c.Network.Cells) > 1 {
					second++
					if o.Cell.Monitor(0).Estimate().Activated > 0 {
						activated++
					}
				}
				_, spent := p.State()
				internet += spent[cc.Drain] + spent[cc.Internet]
				all += c.Length
			}
		}
	}
	middle := func(v []float64) float64 { return median(slices.Sorted(slices.Values(v))) }
	for _, name := range cc.Names {
		var rate, delay []float64
		for j := range rates[name] {
			rate = append(rate, rates["pbe"][j]/rates[name][j])
			delay = append(delay, delays["pbe"][j]/delays[name][j])
		}
		// The range of the runs' own medians.
		var runs [2][]float64
		for i := 0; i < len(rate); i += *locationsFlag {
			runs[0] = append(runs[0], middle(rate[i:i+*locationsFlag]))
			runs[1] = append(runs[1], middle(delay[i:i+*locationsFlag]))
		}
		line := fmt.Sprintf("%-8s median %.1f Mbit/s, p95 %.0f ms; PBE-CC has %.2f (%.2f to %.2f) times the rate, "+
			"%.2f (%.2f to %.2f) of the delay", name, middle(rates[name]), middle(delays[name]),
			middle(rate), slices.Min(runs[0]), slices.Max(runs[0]), middle(delay), slices.Min(runs[1]),
			slices.Max(runs[1]))
		low, high := 0.9, 0.9 // of a few locations
		switch x, ok := fortyLocations[name]; {
		case *locationsFlag >= 40 && ok:
			low, high = 0.9*x.rate, 1.1*x.delay
		case name == "pbe":
			high = 1
		case name == "copa", name == "sprout":
			high = 1.4 // these leave much of the cell unused and have no queue
		}
		if *lossFlag == 0 && (middle(rate) < low || middle(delay) > high) {
			t.Errorf("%s (at least %.2f, at most %.2f)", line, low, high)
		} else {
			t.Log(line)
		}
	}
	t.Logf("a second carrier was activated at %d of %d locations that have one; %.1f %% of the time in drain and internet",
		activated, second, 100*internet.Seconds()/all.Seconds())
	if activated != second {
		t.Errorf("a second carrier was activated at %d of %d locations", activated, second)
	}
}
