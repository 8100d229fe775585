// SPDX-License-Identifier: Apache-2.0

package vary

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/shaper"
)

const long = 30 * time.Minute

func allKinds(seed uint64, length time.Duration) map[string]Profile {
	return map[string]Profile{
		"lte":     LTE(Rand(seed, "lte"), 8*unit.Mbps, length),
		"wlan":    WLAN(Rand(seed, "wlan"), Walk{1, 40}, length),
		"handoff": {Gaps: Handoffs(Rand(seed, "handoff"), length)},
	}
}

// TestSeed: the same seed and name give the same profile, others a different one. A shorter walk or
// time of handoffs is the beginning of a longer one.
func TestSeed(t *testing.T) {
	a, b, c := allKinds(5, time.Minute), allKinds(5, time.Minute), allKinds(6, time.Minute)
	for name := range a {
		if !reflect.DeepEqual(a[name], b[name]) {
			t.Errorf("%s: one seed, two results", name)
		}
		if reflect.DeepEqual(a[name], c[name]) {
			t.Errorf("%s: two seeds, one result", name)
		}
	}
	if reflect.DeepEqual(LTE(Rand(5, "ps"), 1e6, time.Second), LTE(Rand(5, "hs1"), 1e6, time.Second)) {
		t.Error("two links vary as one")
	}
	more := allKinds(5, 2*time.Minute)
	if n := len(a["wlan"].Rates); !slices.Equal(more["wlan"].Rates[:n], a["wlan"].Rates) {
		t.Error("a longer walk begins otherwise")
	}
	if n := len(a["handoff"].Gaps); n == 0 || !slices.Equal(more["handoff"].Gaps[:n], a["handoff"].Gaps) {
		t.Error("more handoffs begin otherwise")
	}
}

// moments returns the mean of rates, their coefficient of variation, and their autocorrelation at a
// lag.
func moments(rates []unit.Rate, lag int) (mean, cv, acf float64) {
	for _, r := range rates {
		mean += float64(r) / float64(len(rates))
	}
	var square, product float64
	for i, r := range rates {
		d := float64(r) - mean
		square += d * d
		if i+lag < len(rates) {
			product += d * (float64(rates[i+lag]) - mean)
		}
	}
	return mean, math.Sqrt(square/float64(len(rates))) / mean, product / square
}

// TestLTE: mean, spread and autocorrelation are as documented.
func TestLTE(t *testing.T) {
	for seed := range uint64(5) {
		p := LTE(Rand(seed, "x"), 8*unit.Mbps, long)
		if len(p.Rates) != int(long/Step) {
			t.Fatalf("%d samples", len(p.Rates))
		}
		mean, cv, after := moments(p.Rates, 10)
		_, _, later := moments(p.Rates, 50)
		if math.Abs(mean/8e6-1) > 1e-6 || p.Mean(long) < 7_999_990 || p.Mean(long) > 8_000_010 {
			t.Errorf("seed %d: mean %f", seed, mean)
		}
		if math.Abs(cv-0.69) > 0.06 || math.Abs(after-0.58) > 0.08 || math.Abs(later-0.08) > 0.1 {
			t.Errorf("seed %d: deviation %.2f, correlation after 1 s %.2f, after 5 s %.2f", seed, cv, after, later)
		}
	}
	weight, mean := 0.0, 0.0
	for _, s := range lteStates {
		weight += s.weight
		mean += s.weight * s.share
	}
	if math.Abs(weight-1) > 1e-9 || math.Abs(mean-1) > 0.05 {
		t.Errorf("states weigh %f, and have a mean of %f", weight, mean)
	}
}

// TestHandoffs checks frequency, length and share of failures.
func TestHandoffs(t *testing.T) {
	var all []Gap
	times, bad := 0.0, 0
	var short []float64
	const runs = 40
	for seed := range uint64(runs) {
		gaps := Handoffs(Rand(seed, "x"), long)
		end := time.Duration(0)
		for _, g := range gaps {
			if g.From < end || g.Length < time.Millisecond || g.From >= long {
				t.Fatalf("a gap at %v of %v after one that ended at %v", g.From, g.Length, end)
			}
			end = g.From + g.Length
			times += g.Length.Seconds()
			if g.Length >= handoffFailureMin {
				bad++
			} else {
				short = append(short, g.Length.Seconds())
			}
		}
		all = append(all, gaps...)
	}
	slices.Sort(short)
	every := (runs*long.Seconds() - times) / float64(len(all))
	if math.Abs(every-11) > 0.6 {
		t.Errorf("one each %.2f s", every)
	}
	// 0.2 % of the others are as long.
	if share := float64(bad) / float64(len(all)); math.Abs(share-0.122) > 0.015 {
		t.Errorf("%.3f are bad", share)
	}
	if m := short[len(short)/2]; math.Abs(m-0.15) > 0.01 {
		t.Errorf("half of the others take %.3f s", m)
	}
	// Their share of time: 0.12 · 3.75 s + 0.88 · 0.15 s · exp(0.32), each 11 s more.
	if share := times / (runs * long.Seconds()); math.Abs(share-0.632/11.632) > 0.006 {
		t.Errorf("outages take %.4f of the time", share)
	}
}

// TestWLANRate: the rate never grows with distance or loss, and matches the ends of the table.
func TestWLANRate(t *testing.T) {
	last := WLANRate(0.1, 0)
	if last != 39*unit.Mbps {
		t.Errorf("beside each other: %v", last)
	}
	for d := 0.5; d < 200; d += 0.5 {
		r := WLANRate(d, 0)
		if r > last || WLANRate(d, 10) > r {
			t.Fatalf("%v at %.1f m, %v before, %v behind a wall", r, d, last, WLANRate(d, 10))
		}
		last = r
	}
	// 15 − 40.05 − 20 − 35·log10(3) − 10 = −71.75 dBm at 30 m: MCS 3.
	if r := WLANRate(30, 0); r != unit.Rate(0.6*26e6) {
		t.Errorf("at 30 m: %v", r)
	}
	if last != 0 {
		t.Errorf("at 200 m: %v", last)
	}
}

// TestWLAN: near is better than far, and the share of time out of sight is as documented.
func TestWLAN(t *testing.T) {
	near, far := WLAN(Rand(1, "x"), Walk{1, 5}, long), WLAN(Rand(1, "x"), Walk{25, 40}, long)
	if a, b := near.Mean(long), far.Mean(long); a < 36*unit.Mbps || b > a/2 || b < a/10 {
		t.Errorf("near %v, far %v", a, b)
	}
	// At 25 m each state has a rate of its own, but for shadows.
	still := WLAN(Rand(2, "x"), Walk{25, 25}, MaxLength)
	seen := 0
	for _, r := range still.Rates {
		if r >= WLANRate(25, 5) {
			seen++
		}
	}
	if share := float64(seen) / float64(len(still.Rates)); share < 0.6 || share > 0.9 {
		t.Errorf("in sight %.2f of the time", share)
	}
}

// TestBounds: no length takes more memory than MaxLength allows.
func TestBounds(t *testing.T) {
	for name, p := range allKinds(1, 1000*time.Hour) {
		if len(p.Rates) > int(MaxLength/Step) || len(p.Gaps) > int(MaxLength/time.Second) {
			t.Errorf("%s: %d samples, %d gaps", name, len(p.Rates), len(p.Gaps))
		}
	}
	for _, length := range []time.Duration{0, -time.Second} {
		for name, p := range allKinds(1, length) {
			if len(p.Rates)+len(p.Gaps) != 0 || p.Mean(long) != 0 || p.Schedule(0) != nil || p.Outages() != nil {
				t.Errorf("%s of %v: %+v", name, length, p)
			}
		}
	}
}

// TestSchedule: the emulator reads the profile as it is: rates over time, delays after gaps.
func TestSchedule(t *testing.T) {
	p := Profile{Step: time.Second, Rates: []unit.Rate{1e6, 1e6, 2e6, 0},
		Gaps: []Gap{{500 * time.Millisecond, 100 * time.Millisecond}, {time.Second, 200 * time.Millisecond},
			{2 * time.Second, time.Second}}}
	want := []string{"at 0s: rate 1000000", "at 600ms: delay 45ms", "at 1.2s: delay 45ms", "at 1.6s: delay 25ms",
		"at 2s: rate 2000000", "at 2.2s: delay 25ms", "at 3s: rate 0", "at 3s: delay 45ms", "at 4s: delay 25ms"}
	got := p.Schedule(25 * time.Millisecond)
	// The second gap ends 0.6 s after the first: the extra delay ends with the later one.
	want = slices.Delete(want, 3, 4)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, text := range got {
		if _, err := shaper.ParseChange(text); err != nil {
			t.Error(err)
		}
	}
	if got := p.Outages(); !slices.Equal(got, []string{"500ms+100ms", "1s+200ms", "2s+1s"}) {
		t.Errorf("%q", got)
	}
	if c := p.Clipped(15e5); c.Rates[2] != 15e5 || c.Rates[0] != 1e6 || p.Rates[2] != 2e6 {
		t.Errorf("%v of %v", c.Rates, p.Rates)
	}
	if m := p.Mean(3 * time.Second); m != 1_333_333 {
		t.Errorf("mean %d", m)
	}
}

// TestReshaped checks Rotated, Downsampled and Scaled.
func TestReshaped(t *testing.T) {
	p := Profile{Step: Step, Rates: []unit.Rate{1000, 2000, 3000, 6000, 8000}, Gaps: []Gap{{0, time.Second}}}
	for _, c := range []struct {
		what string
		got  Profile
		want Profile
	}{
		{"turned", p.Rotated(3, 4*Step), Profile{Step: Step, Rates: []unit.Rate{6000, 8000, 1000, 2000}}},
		{"coarser", p.Downsampled(2), Profile{Step: 2 * Step, Rates: []unit.Rate{1500, 4500}}},
		{"scaled", p.Scaled(2000), Profile{Step: Step, Rates: []unit.Rate{500, 1000, 1500, 3000, 4000}, Gaps: p.Gaps}},
		{"scaled from nothing", Profile{Step: Step, Rates: []unit.Rate{0, 0}}.Scaled(5),
			Profile{Step: Step, Rates: []unit.Rate{0, 0}}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %+v", c.what, c.got)
		}
	}
	if p.Rates[0] != 1000 {
		t.Error("the profile itself was changed")
	}
}
