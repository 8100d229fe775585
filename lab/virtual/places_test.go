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
	places      = flag.Int("places", 3, "places of TestPlaces; the paper has 40")
	placeLength = flag.Duration("place", 3*time.Second, "time of each flow of TestPlaces; the paper has 20s")
)

// TestPlaces goes through places with each controller and compares PBE-CC's rate
// and p95 of the one-way delay with theirs, place by place. Row p1 of mpbond exp
// has all forty.
//
//	go test -run TestPlaces -v ./lab/virtual -places 40 -place 20s
func TestPlaces(t *testing.T) {
	// In the median place: times the rate at least, and the p95 of the delay at most,
	// of PBE-CC against it.
	bounds := map[string]struct{ rate, delay float64 }{
		"pbe": {1, 1}, "bbr": {0.9, 0.8}, "cubic": {0.85, 0.9}, "copa": {1.05, 1.6}, "allegro": {0.85, 0.7},
		"vivace": {0.85, 1.6}, "sprout": {0.9, 1.7}, "verus": {0.85, 0.8},
	}
	rates, delays := map[string][]float64{}, map[string][]float64{}
	activated, second := 0, 0
	var internet time.Duration
	for place := range uint64(*places) {
		for _, name := range cc.Names {
			c := Place(place, 0)
			c.Length = *placeLength
			o := c.Run(name)
			r := o.Flows[0]
			rates[name] = append(rates[name], float64(r.Rate(0, c.Length)))
			delays[name] = append(delays[name], r.Delay(0, c.Length, 0.95).Seconds())
			p := o.PBE[0]
			if p != nil && len(c.Network.Cells) > 1 {
				second++
				if o.Cell.Monitor(0).Estimate().Activated > 0 {
					activated++
				}
			}
			if p != nil {
				_, spent := p.State()
				internet += spent[cc.Drain] + spent[cc.Internet]
			}
		}
	}
	median := func(v []float64) float64 {
		v = slices.Sorted(slices.Values(v))
		return v[len(v)/2]
	}
	for _, name := range cc.Names {
		var rate, delay []float64
		for j := range rates[name] {
			rate = append(rate, rates["pbe"][j]/rates[name][j])
			delay = append(delay, delays["pbe"][j]/delays[name][j])
		}
		line := fmt.Sprintf("%-8s median %.1f Mbit/s, p95 %.0f ms; PBE-CC has %.2f times the rate, %.2f of the delay", name, median(rates[name])/1e6, 1000*median(delays[name]), median(rate), median(delay))
		if x := bounds[name]; median(rate) < x.rate || median(delay) > x.delay {
			t.Errorf("%s (at least %.2f, at most %.2f)", line, x.rate, x.delay)
		} else {
			t.Log(line)
		}
	}
	t.Logf("a second carrier was activated at %d of %d places that have one; %.1f %% of the time in drain and internet", activated, second, 100*internet.Seconds()/(placeLength.Seconds()*float64(*places)))
}
