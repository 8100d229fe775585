// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
)

// testCell is a cell with lines in virtual time.
type testCell struct {
	*Cell
	lines []*Line
	now   time.Duration
	got   []float64 // arrived bits by line
	late  time.Duration
}

func newTestCell(cell Setting, lines ...Setting) *testCell {
	c := &testCell{Cell: NewCell(Program{Base: cell}), got: make([]float64, len(lines))}
	for _, s := range lines {
		l := New(Program{Base: s}, 1)
		c.Add(l)
		c.lines = append(c.lines, l)
	}
	return c
}

// run advances time to each wake-up that a line asks for. feed, if not nil, is called at each of
// them.
func (c *testCell) run(t *testing.T, until time.Duration, feed func()) {
	t.Helper()
	for guard := 0; ; guard++ {
		if guard > 5_000_000 {
			t.Fatal("the cell spins")
		}
		if feed != nil {
			feed()
		}
		next := until
		for i, l := range c.lines {
			for {
				p, due, ok := l.Deliver(c.now)
				if !ok {
					break
				}
				c.got[i] += float64(p.Size) * 8
				c.late = max(c.late, c.now-due)
			}
			if at, ok := l.Due(); ok {
				next = min(next, at)
			}
		}
		if c.now >= until {
			return
		}
		c.now = max(c.now, next)
	}
}

// backlog returns a function that keeps lines backlogged.
func (c *testCell) backlog(lines ...int) func() {
	return func() {
		for _, i := range lines {
			for c.lines[i].queue.len() < 100 {
				c.lines[i].Enqueue(c.now, Packet{Size: 1500})
			}
		}
	}
}

func wantRates(t *testing.T, c *testCell, seconds float64, mbits ...float64) {
	t.Helper()
	for i, want := range mbits {
		if got := c.got[i] / seconds / 1e6; math.Abs(got-want) > 0.005*want+0.02 {
			t.Errorf("line %d carried %.3f Mbit/s, want %.3f", i, got, want)
		}
		c.got[i] = 0
	}
	if c.late > 0 {
		t.Errorf("a packet was %v late though woken in time", c.late)
	}
}

func TestCellShares(t *testing.T) {
	free := Setting{Rate: Unlimited, Queue: unit.MB, Delay: 3 * ms}
	slow := free
	slow.Rate = 4 * unit.Mbps
	c := newTestCell(Setting{Rate: 30 * unit.Mbps}, free, free, slow)
	c.run(t, 2*time.Second, c.backlog(0)) // one line gets all
	wantRates(t, c, 2, 30, 0, 0)
	c.run(t, 4*time.Second, c.backlog(0, 1)) // both get the same
	wantRates(t, c, 2, 15, 15, 0)
	c.run(t, 6*time.Second, c.backlog(0, 1, 2)) // the others get what the slow one leaves
	wantRates(t, c, 2, 13, 13, 4)

	two := 2
	c = newTestCell(Setting{Rate: 30 * unit.Mbps, Others: 2}, free, free)
	c.run(t, 2*time.Second, c.backlog(1))
	wantRates(t, c, 2, 0, 10)
	c.run(t, 4*time.Second, c.backlog(0, 1))
	wantRates(t, c, 2, 7.5, 7.5)
	six := 18 * unit.Mbps
	c.lines[0].Apply(c.now, Change{Rate: new(2 * unit.Mbps)}) // a line's own change counts at once
	c.run(t, 6*time.Second, c.backlog(0, 1))
	wantRates(t, c, 2, 2, 28.0/3)

	free.Delay = 0 // packets in flight during a change were sent before it
	c = newTestCell(Setting{Rate: 30 * unit.Mbps}, free, free)
	c.player.program.Tracks = []Track{{Changes: []Change{{At: time.Second, Others: &two},
		{At: 2 * time.Second, Rate: &six}}}}
	c.StartAt(0, 0)
	c.run(t, time.Second, c.backlog(0))
	wantRates(t, c, 1, 30, 0)
	c.run(t, 2*time.Second, c.backlog(0))
	wantRates(t, c, 1, 10, 0)
	c.run(t, 3*time.Second, c.backlog(0))
	wantRates(t, c, 1, 6, 0)
	c.Rewind(c.now)
	c.run(t, 4*time.Second, c.backlog(0))
	wantRates(t, c, 1, 30, 0)
	c.StartAt(c.now, 1500*ms)
	c.run(t, 4500*ms, c.backlog(0))
	wantRates(t, c, .5, 10, 0)
	c.run(t, 5500*ms, c.backlog(0))
	wantRates(t, c, 1, 6, 0)
}

// TestCellTimes has one packet in each of two lines, the second while the first is being sent: 1000
// bytes at 8 Mbit/s take 1 ms alone.
func TestCellTimes(t *testing.T) {
	line := Setting{Rate: Unlimited, Queue: unit.MB}
	c := newTestCell(Setting{Rate: 8 * unit.Mbps}, line, line)
	c.lines[0].Enqueue(0, Packet{Size: 1000})
	c.now = ms / 2
	c.lines[1].Enqueue(c.now, Packet{Size: 1000})
	// Half of the first is left, at half the rate: until 1.5 ms. The second has half
	// left then, at the whole rate: the caller must look again by then.
	if at, ok := c.lines[1].Due(); !ok || at > 2*ms {
		t.Errorf("the second line would be looked at only at %v", at)
	}
	for i, want := range []time.Duration{ms + ms/2, 2 * ms} {
		at, ok := c.lines[i].Due()
		if !ok || at != want {
			t.Errorf("line %d is due at %v, want %v", i, at, want)
		}
		if _, due, ok := c.lines[i].Deliver(want); !ok || due != want {
			t.Errorf("line %d delivers at %v (%v), want %v", i, due, ok, want)
		}
	}
}

// TestCellProperties: whatever is offered, a cell carries no more than its rate in any time, and a
// line no more than its own. The times of wake-ups do not matter. While any line has data, the cell
// is fully used: all packets have left when one queue of the cell's rate would have sent them.
func TestCellProperties(t *testing.T) {
	type offer struct {
		at   time.Duration
		line int
		size unit.Bytes
	}
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rate, limited := unit.Rate(1+rng.IntN(20))*unit.Mbps, seed%2 == 0
		var set []Setting
		for range 3 {
			s := Setting{Rate: Unlimited, Queue: 100 * unit.MB}
			if limited {
				s.Rate = unit.Rate(1+rng.IntN(10)) * unit.Mbps
			}
			set = append(set, s)
		}
		var offers []offer
		var at, served time.Duration // served: when one queue has sent all so far
		for range 2000 {
			at += time.Duration(rng.ExpFloat64() * float64(ms))
			o := offer{at, rng.IntN(3), unit.Bytes(40 + rng.IntN(1461))}
			offers = append(offers, o)
			served = max(served, at) + rate.Time(o.size)
		}
		run := func(extra time.Duration) (due []time.Duration, bits []float64) {
			c := NewCell(Program{Base: Setting{Rate: rate}})
			var lines []*Line
			for _, s := range set {
				l := New(Program{Base: s}, 1)
				c.Add(l)
				lines = append(lines, l)
			}
			last := make([]time.Duration, 3)
			wake := func(now time.Duration) {
				for i, l := range lines {
					for p, at, ok := l.Deliver(now); ok; p, at, ok = l.Deliver(now) {
						due, bits = append(due, at), append(bits, float64(8*p.Size))
						if own := float64(8*p.Size) / float64(set[i].Rate); (at - last[i]).Seconds() < own-2e-9 {
							t.Fatalf("seed %d: line %d, of %v, sent %v in %v", seed, i, set[i].Rate, p.Size, at-last[i])
						}
						last[i] = at
					}
				}
			}
			now := time.Duration(0)
			for _, o := range append(offers, offer{at: at + time.Hour}) {
				for extra > 0 && now+extra < o.at && now < at+time.Second {
					now += extra
					wake(now)
				}
				now = o.at
				wake(now)
				if o.size > 0 {
					lines[o.line].Enqueue(now, Packet{Size: o.size})
				}
			}
			return due, bits
		}
		due, bits := run(0)
		again, _ := run(333 * time.Microsecond)
		slices.Sort(again)
		order := make([]int, len(due))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(due[a], due[b]) })
		if len(due) != len(offers) || len(again) != len(offers) {
			t.Fatalf("seed %d: %d and %d of %d packets arrived", seed, len(due), len(again), len(offers))
		}
		for n, i := range order {
			if due[i] != again[n] {
				t.Fatalf("seed %d: packet %d is due at %v, or %v when the cell is woken more often", seed, n, due[i],
					again[n])
			}
			sum := 0.0
			for m := n; m > max(0, n-200); m-- {
				sum += bits[order[m]]
				// Of each line's packet at either end a part was sent outside.
				if most := float64(rate)*(due[i]-due[order[m]]).Seconds() + 3*2*12000; sum > most {
					t.Fatalf("seed %d: %.0f bits left in %v at %v", seed, sum, due[i]-due[order[m]], rate)
				}
			}
		}
		if end := due[order[len(order)-1]]; !limited && (end-served).Abs() > 10*time.Microsecond {
			t.Errorf("seed %d: all has left at %v, one queue would have sent it by %v", seed, end, served)
		}
	}
}

func TestCheckCell(t *testing.T) {
	good := Program{Base: Setting{Rate: unit.Mbps}, Tracks: []Track{parseTrack(t, "at 1s: rate 2Mbit/s, others 3")}}
	if err := good.CheckCell(); err != nil {
		t.Error(err)
	}
	if good.Check() == nil {
		t.Error("a line has others")
	}
	for _, bad := range []Program{
		{Base: Setting{Rate: Unlimited}},
		{Base: Setting{Rate: unit.Mbps}, Grants: []time.Duration{0}, GrantLoop: ms},
		{Base: Setting{Rate: unit.Mbps}, Tracks: []Track{parseTrack(t, "at 1s: delay 2ms")}},
	} {
		if bad.CheckCell() == nil {
			t.Errorf("%+v is accepted for a cell", bad)
		}
	}
}
