// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"flag"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
)

var (
	homeSeed  = flag.Uint64("home.seed", 8, "TestNeverBehindHome: the first seed; 0: another one each time")
	homeCases = flag.Int("home.cases", 2, "TestNeverBehindHome: cases of each kind")
)

// homeCase is a video, a home line and phones.
type homeCase struct {
	home   *testLine
	phones []*testLine
	n      int
	size   int
	each   time.Duration
	keep   time.Duration
	ranges bool
}

// phoneTroubles are possible problems of phones. Each makes the rates of a phone from its usual
// rate.
var phoneTroubles = map[string]func(r *rand.Rand, usual unit.Rate) []rateStep{
	"steady":                func(*rand.Rand, unit.Rate) []rateStep { return nil },
	"silent from the start": func(*rand.Rand, unit.Rate) []rateStep { return []rateStep{{0, 0}} },
	"silent later": func(r *rand.Rand, _ unit.Rate) []rateStep {
		return []rateStep{{time.Duration(r.IntN(10_000)) * time.Millisecond, 0}}
	},
	"falls to 50 kbit/s": func(r *rand.Rand, _ unit.Rate) []rateStep {
		return []rateStep{{time.Duration(r.IntN(10_000)) * time.Millisecond, 50_000}}
	},
	"spikes": func(r *rand.Rand, usual unit.Rate) (all []rateStep) {
		for at := time.Duration(0); at < 3*time.Minute; {
			at += time.Duration(1000+r.IntN(9000)) * time.Millisecond
			all = append(all, rateStep{at, 0}, rateStep{at + time.Duration(200+r.IntN(700))*time.Millisecond, usual})
		}
		return all
	},
}

func randomHome(r *rand.Rand, trouble func(*rand.Rand, unit.Rate) []rateStep, ranges bool) homeCase {
	home := 1 * mbit * math.Pow(50, r.Float64())
	c := homeCase{n: 15, each: time.Duration(2+r.IntN(5)) * time.Second,
		keep: time.Duration(5+r.IntN(20)) * time.Second, ranges: ranges}
	c.home = &testLine{rate: unit.Rate(home), rtt: time.Duration(10+r.IntN(50)) * time.Millisecond}
	// Segments as small as to last for at least 12 round trips: larger ones take long here and are
	// not a different case.
	c.size = int(home / 8 * min(c.each.Seconds()*(.2+.8*r.Float64()), max(.5, 20*c.home.rtt.Seconds())))
	for range 1 + r.IntN(2) {
		usual := unit.Rate(.3 * mbit * math.Pow(60, r.Float64()))
		c.phones = append(c.phones, &testLine{rate: usual, rtt: time.Duration(30+r.IntN(120)) * time.Millisecond,
			steps: trouble(r, usual)})
	}
	return c
}

// played is the experience of a player.
type played struct {
	start, stalled, whole time.Duration
	result                Result
}

// play plays a video over the home line and a number of phones.
func (c *homeCase) play(t *testing.T, phones int) (p played) {
	synctest.Test(t, func(t *testing.T) {
		rates := []unit.Rate{c.home.rate}
		for _, phone := range c.phones[:phones] {
			rates = append(rates, phone.rate)
		}
		r := newRig(t, 0, rates...)
		r.lines[0].rtt = c.home.rtt
		for i, phone := range c.phones[:phones] {
			r.lines[i+1].rtt, r.lines[i+1].steps = phone.rtt, phone.steps
		}
		data, paths := r.vod("/v", c.n, c.size), hlsPaths("/v", c.n)
		if !c.ranges {
			r.web.wrong = func(w http.ResponseWriter, q *http.Request) bool {
				r.web.mu.Lock()
				all := r.web.files[q.URL.RequestURI()]
				r.web.mu.Unlock()
				w.Header().Set("Content-Length", strconv.Itoa(len(all)))
				_, _ = w.Write(all)
				return true
			}
		}
		r.get("/v/list.m3u8", nil)
		begin := time.Now()
		p.stalled = r.playNoting(paths, data, c.each, c.keep, func(i int) {
			if i == c.n/5-1 {
				p.start = time.Since(begin)
			}
		})
		p.whole = time.Since(begin)
		p.result = r.stop()
	})
	return p
}

// TestNeverBehindHome checks that a player has the first fifth of a video and plays all of it at
// most 5 % later than over the home line alone and does not stall longer, whatever phones do, with
// and without ranges.
func TestNeverBehindHome(t *testing.T) {
	seed := *homeSeed
	if seed == 0 {
		seed = rand.Uint64N(1e9)
	}
	t.Logf("-home.seed %d", seed)
	newCase := func(i uint64, trouble func(*rand.Rand, unit.Rate) []rateStep, ranges bool) homeCase {
		return randomHome(rand.New(rand.NewPCG(seed+i, 9)), trouble, ranges)
	}
	for _, ranges := range []bool{true, false} {
		var byHome []played // of each case: over the home line alone, which no trouble changes
		for i := range uint64(*homeCases) {
			c := newCase(i, phoneTroubles["steady"], ranges)
			byHome = append(byHome, c.play(t, 0))
		}
		for name, trouble := range phoneTroubles {
			var starts, ends, wasted, longer []float64
			for i, alone := range byHome {
				c := newCase(uint64(i), trouble, ranges)
				with := c.play(t, len(c.phones))
				media := time.Duration(c.n) * c.each
				starts = append(starts, with.start.Seconds()/alone.start.Seconds())
				ends = append(ends, (media+with.stalled).Seconds()/(media+alone.stalled).Seconds())
				var lost, all unit.Bytes
				for k, d := range with.result.Devices {
					all += d.Bytes
					if k > 0 {
						lost += d.Wasted
					}
				}
				wasted = append(wasted, float64(lost)/float64(max(1, all)))
				// to notice that a phone is late, and to request again
				slack := max(c.home.rtt*3/2, 150*time.Millisecond) + 100*time.Millisecond + 2*c.home.rtt
				longer = append(longer, (with.stalled - alone.stalled).Seconds())
				if ends[i] > 1.05 || starts[i] > 1.05 || float64(with.stalled-slack) > 1.05*float64(alone.stalled) {
					t.Errorf("%s, ranges %v, seed %d: start %v alone %v, stalled %v alone %v; home %v RTT %v, %d phones, "+
						"%d bytes each %v", name, ranges, seed+uint64(i), with.start, alone.start, with.stalled, alone.stalled,
						c.home.rate, c.home.rtt, len(c.phones), c.size, c.each)
				}
			}
			for _, s := range [][]float64{starts, ends, wasted, longer} {
				slices.Sort(s)
			}
			n := len(starts)
			t.Logf("%-22s ranges %-5v first fifth: median %.3f p95 %.3f p99 %.3f worst %.3f; "+
				"playing: p95 %.3f p99 %.3f worst %.3f; stalls longer by: p95 %.2f s worst %.2f s, of %d; "+
				"wasted by phones: median %.3f worst %.3f", name, ranges,
				starts[n/2], starts[n*95/100], starts[n*99/100], starts[n-1], ends[n*95/100], ends[n*99/100], ends[n-1],
				longer[n*95/100], longer[n-1], n, wasted[n/2], wasted[n-1])
		}
	}
}
