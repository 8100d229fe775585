package virtual

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mpbond/lab/lte"
	"mpbond/pbe/cc"
	"mpbond/pbe/cell"
	"mpbond/unit"
)

var (
	places      = flag.Int("places", 3, "places of TestPlaces; the paper has 40")
	placeLength = flag.Duration("place", 3*time.Second, "time of each flow of TestPlaces; the paper has 20s")
)

// somewhere is a place by its seed: 5 to 20 MHz, with a second cell in two of
// three, a signal that wanders, none to three other devices that come and go, and
// the way to the server.
func somewhere(seed uint64) (cfg lte.Config, flows []Flow) {
	r := rand.New(rand.NewPCG(seed, 9))
	widths := []int{25, 50, 75, 100}
	cells := []int{0}
	cfg = lte.Config{Seed: seed, Cells: []lte.CellConfig{{PRB: widths[r.IntN(4)], Layers: 1 + r.IntN(2), Control: 0.4 * r.Float64()}}}
	if r.IntN(3) > 0 {
		cfg.Cells = append(cfg.Cells, lte.CellConfig{PRB: widths[r.IntN(4)], Layers: 1 + r.IntN(2), Control: 0.4 * r.Float64()})
		cells = []int{0, 1}
	}
	cfg.Users = []lte.UserConfig{{RNTI: 0x4000, Cells: cells, SINR: wander(seed, 6+16*r.Float64()), ErrorRate: 1e-6 + 3e-6*r.Float64(), Buffer: 2_000_000}}
	way := 10*ms + time.Duration(r.Int64N(int64(30*ms)))
	flows = []Flow{{Before: way - 2*ms, After: 2 * ms, Back: way}}
	for u := range r.IntN(4) {
		cfg.Users = append(cfg.Users, lte.UserConfig{RNTI: cell.RNTI(0x5000 + u), Cells: cells[:1], SINR: steady(8 + 14*r.Float64()), ErrorRate: 2e-6, Buffer: 300_000})
		rate, on, off := unit.Rate(2+r.IntN(30))*unit.Mbps, 200*ms+time.Duration(r.Int64N(int64(3*sec))), 200*ms+time.Duration(r.Int64N(int64(5*sec)))
		at := time.Duration(r.Int64N(int64(on + off)))
		flows = append(flows, Flow{Before: 10 * ms, Rate: func(now time.Duration) unit.Rate {
			if (now+at)%(on+off) < on {
				return rate
			}
			return 0
		}})
	}
	return cfg, flows
}

// wander is a signal that goes half a decibel up or down every 50 ms, and back
// towards its mean.
func wander(seed uint64, mean float64) func(int64) float64 {
	r := rand.New(rand.NewPCG(seed, 10))
	var list []float64
	v := mean
	return func(n int64) float64 {
		for int64(len(list)) <= n/50 {
			v += 0.05*(mean-v) + r.Float64() - 0.5
			list = append(list, v)
		}
		return list[n/50]
	}
}

// TestPlaces goes through places with each controller and compares PBE-CC's rate
// and p95 of the one-way delay with theirs, place by place.
//
//	go test -run TestPlaces -v ./lab/virtual -places 40 -place 20s
func TestPlaces(t *testing.T) {
	controllers := []struct {
		name string
		make func() cc.Controller
		// In the median place: times the rate at least, and the p95 of the delay at
		// most, of PBE-CC against it.
		rate, delay float64
	}{
		{"PBE-CC", nil, 1, 1},
		{"BBR", func() cc.Controller { return cc.NewBBR(1) }, 0.9, 0.8},
		{"CUBIC", func() cc.Controller { return cc.NewCUBIC() }, 0.85, 0.9},
		{"Copa", func() cc.Controller { return cc.NewCopa(0) }, 1.05, 1.6},
		{"PCC Allegro", func() cc.Controller { return cc.NewAllegro(1) }, 0.85, 0.7},
		{"PCC Vivace", func() cc.Controller { return cc.NewVivace(1) }, 0.85, 1.6},
		{"Sprout", func() cc.Controller { return cc.NewSprout() }, 0.9, 1.7},
		{"Verus", func() cc.Controller { return cc.NewVerus() }, 0.85, 0.8},
	}
	rates, delays := make([][]float64, len(controllers)), make([][]float64, len(controllers))
	activated, second := 0, 0
	var internet time.Duration
	for place := range uint64(*places) {
		for i, x := range controllers {
			cfg, flows := somewhere(place)
			c := NewCell(cfg, toUser, true)
			var p *cc.PBE
			if x.make == nil {
				p = cc.NewPBE(place)
				flows[0].Controller = p
				flows[0].Radio = c.Radio(0, flows[0].Before+flows[0].After+flows[0].Back)
			} else {
				flows[0].Controller = x.make()
			}
			r := Run(c, *placeLength, place, flows...)[0]
			rates[i] = append(rates[i], float64(r.Rate(0, *placeLength)))
			delays[i] = append(delays[i], r.Delay(0, *placeLength, 0.95).Seconds())
			if p != nil && len(cfg.Cells) > 1 {
				second++
				if c.Monitor(0).Estimate().Activated > 0 {
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
	for i, x := range controllers {
		var rate, delay []float64
		for j := range rates[i] {
			rate = append(rate, rates[0][j]/rates[i][j])
			delay = append(delay, delays[0][j]/delays[i][j])
		}
		line := fmt.Sprintf("%-11s median %.1f Mbit/s, p95 %.0f ms; PBE-CC has %.2f times the rate, %.2f of the delay", x.name, median(rates[i])/1e6, 1000*median(delays[i]), median(rate), median(delay))
		if median(rate) < x.rate || median(delay) > x.delay {
			t.Errorf("%s (at least %.2f, at most %.2f)", line, x.rate, x.delay)
		} else {
			t.Log(line)
		}
	}
	t.Logf("a second carrier was activated at %d of %d places that have one; %.1f %% of the time in drain and internet", activated, second, 100*internet.Seconds()/(placeLength.Seconds()*float64(*places)))
}
