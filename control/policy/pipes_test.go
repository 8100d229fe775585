// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
)

// pipeWorld is a helper with links a and b, whose subflows share its HS-path
// evenly as far as their links go.
type pipeWorld struct {
	hs, demand unit.Rate
	links      map[string]unit.Rate // 0: it cannot be used
	rtt        map[string]time.Duration
	main       string
	second     string
	moved      map[string]uint64
}

// step moves bytes for some time, and returns what is seen of the pipes.
func (w *pipeWorld) step(d time.Duration, joining bool) (list []Pipe) {
	used := []string{w.main}
	if w.second != "" && !joining {
		used = append(used, w.second)
	}
	left := min(w.hs, w.demand)
	got := map[string]unit.Rate{}
	for range 3 {
		share := left / unit.Rate(len(used))
		for _, l := range used {
			r := min(share, w.links[l]-got[l])
			got[l] += r
			left -= r
		}
	}
	for i, l := range used {
		p := Pipe{Link: l, Use: PipeMain, RTT: w.rtt[l], Moved: w.moved[l]}
		if i > 0 {
			p.Use = PipeSecond
		}
		// Each subflow has its own bytes, on any pipe.
		w.moved[l] += uint64(got[l].Bytes(d))
		if got[l] == w.links[l] && left > 0 {
			p.Waiting = got[l].Bytes(150*time.Millisecond) + 20_000
		}
		list = append(list, p)
	}
	if joining {
		list = append(list, Pipe{Link: w.second, Use: PipeJoining})
	}
	for l, r := range w.links {
		if r > 0 {
			list = append(list, Pipe{Link: l, RTT: w.rtt[l]})
		}
	}
	return list
}

// TestPipes: what is decided over time, as "second:step link".
func TestPipes(t *testing.T) {
	const long = 90 * time.Second
	at := func(at time.Duration, f func(*pipeWorld)) func(*pipeWorld, time.Duration) {
		return func(w *pipeWorld, now time.Duration) {
			if now == at {
				f(w)
			}
		}
	}
	rates := func(a, b float64) map[string]unit.Rate {
		return map[string]unit.Rate{"a": unit.Rate(a * float64(unit.Mbps)), "b": unit.Rate(b * float64(unit.Mbps))}
	}
	far := map[string]time.Duration{"a": 40 * time.Millisecond, "b": 4 * time.Millisecond}
	for _, c := range []struct {
		name   string
		hs     unit.Rate
		links  map[string]unit.Rate
		rtt    map[string]time.Duration
		demand unit.Rate // 0: without end
		event  func(*pipeWorld, time.Duration)
		want   string // steps in order
		reason string // of the last one
	}{
		{name: "two are more than one", hs: 10 * unit.Mbps, links: rates(5, 3), want: "2:try b",
			reason: "more data waits than the 5 Mbit/s"},
		{name: "the HS-path is the limit", hs: 4 * unit.Mbps, links: rates(5, 3), want: ""},
		{name: "it is, together", hs: 5.2 * 1_000_000, links: rates(5, 3),
			want:   "2:try b 6:end b 16:try b 20:end b 40:try b 44:end b 84:try b 88:end b",
			reason: "it raises the rate to 5.2 Mbit/s only, from 5 Mbit/s"},
		{name: "an app that wants less", hs: 10 * unit.Mbps, links: rates(5, 3), demand: 3 * unit.Mbps, want: ""},
		{name: "idle", hs: 10 * unit.Mbps, links: rates(5, 3), demand: 1, want: ""},
		{name: "one link", hs: 10 * unit.Mbps, links: rates(5, 0), want: ""},
		{name: "the other is much better", hs: 20 * unit.Mbps, links: rates(0.3, 10),
			want: "2:try b 6:move b 66:try a 70:end a", reason: "it raises the rate to 10.3 Mbit/s only"},
		{name: "the other is bad", hs: 20 * unit.Mbps, links: rates(5, 0.1), want: "2:try b 6:end b 66:try b 70:end b",
			reason: "it raises the rate to 5.1 Mbit/s only"},
		{name: "the link falls, of two", hs: 10 * unit.Mbps, links: rates(5, 3),
			event: at(20*time.Second, func(w *pipeWorld) { w.links["a"] = 200 * unit.Kbps }),
			want:  "2:try b 23:move b 83:try a 87:end a", reason: "it raises the rate to 3.2 Mbit/s only"},
		{name: "the link falls, alone", hs: 4 * unit.Mbps, links: rates(5, 5),
			event: at(20*time.Second, func(w *pipeWorld) { w.links["a"], w.hs = 300*unit.Kbps, 4*unit.Mbps }),
			want:  "21:move b", reason: "the link in use slowed down from 4 Mbit/s"},
		{name: "the second falls", hs: 10 * unit.Mbps, links: rates(5, 3),
			event: at(20*time.Second, func(w *pipeWorld) { w.links["b"] = 200 * unit.Kbps }),
			want:  "2:try b 22:end b 82:try b 87:end b", reason: "it raises the rate to 5.2 Mbit/s only"},
		{name: "the second breaks", hs: 10 * unit.Mbps, links: rates(5, 3),
			event: at(20*time.Second, func(w *pipeWorld) { w.second, w.links["b"] = "", 0 }),
			want:  "2:try b"},
		{name: "it comes back", hs: 10 * unit.Mbps, links: rates(5, 3),
			event: func(w *pipeWorld, now time.Duration) {
				switch now {
				case 20 * time.Second:
					w.second = ""
				case 40 * time.Second:
					w.second = ""
				}
			},
			want: "2:try b 30:try b 60:try b"},
		{name: "a transfer ends during the trial", hs: 10 * unit.Mbps, links: rates(5, 3),
			event: at(4*time.Second, func(w *pipeWorld) { w.demand = 0 }), want: "2:try b 6:end b",
			reason: "no more data to carry"},
		{name: "one ends late in it", hs: 10 * unit.Mbps, links: rates(5, 3),
			event: at(5*time.Second, func(w *pipeWorld) { w.demand = 0 }), want: "2:try b 7:end b",
			reason: "no more data to carry"},
		{name: "one pauses during the trial", hs: 10 * unit.Mbps, links: rates(5, 3),
			event: func(w *pipeWorld, now time.Duration) {
				w.demand = 1000 * unit.Mbps
				if now >= 3200*time.Millisecond && now < 4500*time.Millisecond {
					w.demand = 0
				}
			}, want: "2:try b"},
		{name: "both rest after a transfer", hs: 10 * unit.Mbps, links: rates(5, 3),
			event: at(10*time.Second, func(w *pipeWorld) { w.demand = 0 }), want: "2:try b 70:end b",
			reason: "no data to carry"},
		{name: "one is enough later", hs: 10 * unit.Mbps, links: rates(5, 3),
			event: at(20*time.Second, func(w *pipeWorld) { w.demand = 2 * unit.Mbps }), want: "2:try b 30:end b",
			reason: "one link could"},
		{name: "the other one is nearer", hs: 10 * unit.Mbps, links: rates(5, 5), rtt: far, demand: unit.Mbps,
			want: "2:move b", reason: "its round trip takes 4ms"},
		{name: "nearer, while nothing is carried", hs: 10 * unit.Mbps, links: rates(5, 5), rtt: far, demand: 1, want: ""},
		{name: "nearer and worse", hs: 4 * unit.Mbps, links: rates(5, 0.5), rtt: far, want: "2:move b 3:move a",
			reason: "it carried 4 Mbit/s, the link in use carries 500 kbit/s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &pipeWorld{hs: c.hs, demand: c.demand, links: c.links, rtt: c.rtt, main: "a", moved: map[string]uint64{}}
			if w.demand == 0 {
				w.demand = 1000 * unit.Mbps
			}
			var p Pipes
			var got []string
			last, join := PipeDecision{}, time.Duration(0)
			const tick = 100 * time.Millisecond
			for now := time.Duration(0); now < long; now += tick {
				if c.event != nil {
					c.event(w, now)
				}
				plan := p.Decide(time.Unix(1000, 0).Add(now), w.step(tick, join > now))
				if plan.Do == PipesStay {
					continue
				}
				last = plan
				got = append(got, fmt.Sprintf("%d:%s %s", int(now.Seconds()), []string{"", "move", "try", "end"}[plan.Do],
					plan.Link))
				switch plan.Do {
				case PipesMove:
					if w.second == plan.Link {
						w.second = ""
					}
					w.main = plan.Link
				case PipesTry:
					w.second, join = plan.Link, now+200*time.Millisecond
				case PipesEnd:
					if w.second != plan.Link {
						t.Errorf("%s is to end and is not there", plan.Link)
					}
					w.second = ""
				}
			}
			if s := strings.Join(got, " "); s != c.want || !strings.Contains(last.Reason, c.reason) {
				t.Errorf("%s\nwant %s; the last because %s", s, c.want, last.Reason)
			}
		})
	}
}

// TestPipesInAnyOrder: the order of three pipes in the snapshot does not matter.
func TestPipesInAnyOrder(t *testing.T) {
	var p Pipes
	rates := map[string]unit.Rate{"a": 5 * unit.Mbps, "b": 3 * unit.Mbps, "c": 100 * unit.Kbps}
	moved := map[string]uint64{}
	used := []string{"a"}
	var got []string
	const tick = 100 * time.Millisecond
	for i := range 150 {
		order := slices.Clone(used)
		if i%2 == 0 {
			slices.Reverse(order)
		}
		var list []Pipe
		for _, l := range order {
			x := Pipe{Link: l, Use: PipeSecond, Waiting: 200_000}
			if l == "a" {
				x.Use = PipeMain
			}
			moved[l] += uint64(rates[l].Bytes(tick))
			x.Moved = moved[l]
			list = append(list, x)
		}
		for _, l := range []string{"a", "b", "c"} {
			list = append(list, Pipe{Link: l})
		}
		now := time.Duration(i) * tick
		switch plan := p.Decide(time.Unix(1000, 0).Add(now), list); plan.Do {
		case PipesStay:
		case PipesTry:
			used = append(used, plan.Link)
			got = append(got, fmt.Sprintf("%d:try %s", int(now.Seconds()), plan.Link))
		case PipesEnd:
			used = slices.DeleteFunc(used, func(l string) bool { return l == plan.Link })
			got = append(got, fmt.Sprintf("%d:end %s", int(now.Seconds()), plan.Link))
		default:
			t.Fatalf("%+v", plan)
		}
	}
	if s, want := strings.Join(got, " "), "2:try b 6:try c 10:end c"; s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
}
