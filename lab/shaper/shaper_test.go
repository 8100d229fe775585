// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
)

const ms = time.Millisecond

// sent is a packet put on a line. arrived is when it came out (-1: never).
type sent struct {
	at   time.Duration
	size unit.Bytes
}

// playLine sends packets over a line in virtual time. It wakes only when the line or the sender
// needs it, and at extra times that must not matter. It returns the ideal arrival and the index of
// each delivered packet.
func playLine(t *testing.T, l *Line, packets []sent, start time.Duration,
	extra []time.Duration) (arrivals []time.Duration, ids []int) {
	t.Helper()
	started := start < 0
	for now, i, guard := time.Duration(0), 0, 0; ; guard++ {
		if guard > 1_000_000 {
			t.Fatal("the line never ends")
		}
		for {
			p, due, ok := l.Deliver(now)
			if !ok {
				break
			}
			if due > now {
				t.Fatalf("delivered %v before its time %v", now, due)
			}
			arrivals, ids = append(arrivals, due), append(ids, int(p.Data[0])<<8|int(p.Data[1]))
		}
		if !started && start <= now {
			l.Start(start)
			started = true
		}
		for ; i < len(packets) && packets[i].at <= now; i++ {
			l.Enqueue(now, Packet{Size: packets[i].size, Data: []byte{byte(i >> 8), byte(i)}})
		}
		next := never
		if i < len(packets) {
			next = packets[i].at
		}
		if !started {
			next = min(next, start)
		}
		if d, ok := l.Due(); ok {
			next = min(next, d)
		}
		if len(extra) > 0 && extra[0] < next {
			next, extra = max(now, extra[0]), extra[1:]
		}
		if next == never {
			return arrivals, ids
		}
		if next < now {
			t.Fatalf("asked to wake at %v, now is %v", next, now)
		}
		if next == now && guard > 500_000 {
			t.Fatal("the line spins")
		}
		now = next
	}
}

func burst(n int, size unit.Bytes) (p []sent) {
	for range n {
		p = append(p, sent{0, size})
	}
	return p
}

func parseTrack(t *testing.T, texts ...string) Track {
	t.Helper()
	var tr Track
	for _, s := range texts {
		c, err := ParseChange(s)
		if err != nil {
			t.Fatal(err)
		}
		tr.Changes = append(tr.Changes, c)
	}
	return tr
}

func TestLine(t *testing.T) {
	// 1000 bytes at 8 Mbit/s take 1 ms.
	base := Setting{Rate: 8 * unit.Mbps, Delay: 10 * ms, Queue: 100 * unit.KB}
	for _, c := range []struct {
		name    string
		base    Setting
		tracks  []Track
		grants  string
		packets []sent
		want    []time.Duration
	}{
		{"rate and delay", base, nil, "", burst(3, 1000), []time.Duration{11 * ms, 12 * ms, 13 * ms}},
		{"idle in between", base, nil, "", []sent{{0, 1000}, {5 * ms, 500}}, []time.Duration{11 * ms, 15*ms + ms/2}},
		{"unlimited", Setting{Rate: Unlimited, Delay: ms}, nil, "", burst(3, 1000), []time.Duration{ms, ms, ms}},
		{"rate falls inside a packet", base, []Track{parseTrack(t, "at 500us: rate 800kbit/s")}, "", burst(2, 1000),
			[]time.Duration{10*ms + ms/2 + 5*ms, 10*ms + ms/2 + 5*ms + 10*ms}},
		{"rate rises inside a packet", Setting{Rate: 800 * unit.Kbps, Queue: 9000},
			[]Track{parseTrack(t, "at 5ms: rate=8Mbit/s")}, "", burst(2, 1000),
			[]time.Duration{5*ms + ms/2, 6*ms + ms/2}},
		{"rate 0 holds the queue", base, []Track{parseTrack(t, "at 1ms: rate 0", "at 21ms: rate 8Mbit/s")}, "",
			burst(2, 1000),
			[]time.Duration{11 * ms, 32 * ms}},
		{"drop-tail counts bytes and the packet being sent", Setting{Rate: 8 * unit.Mbps, Queue: 2500}, nil, "",
			burst(4, 1000),
			[]time.Duration{1 * ms, 2 * ms}},
		{"room again after a departure", Setting{Rate: 8 * unit.Mbps, Queue: 2000}, nil, "",
			[]sent{{0, 1000}, {0, 1000}, {ms - 1, 1000}, {ms, 1000}}, []time.Duration{ms, 2 * ms, 3 * ms}},
		{"a queue smaller than a packet passes it alone", Setting{Rate: 8 * unit.Mbps, Queue: 10}, nil, "",
			burst(2, 1000), []time.Duration{ms}},
		{"less delay does not overtake", base, []Track{parseTrack(t, "at 1ms: delay 0s")}, "", burst(2, 1000),
			[]time.Duration{11 * ms, 11 * ms}},
		{"outage loses what is sent and what was queued", base,
			[]Track{parseTrack(t, "at 1500us: outage on", "at 4ms: outage off")}, "",
			append(burst(3, 1000), sent{3900 * time.Microsecond, 1000}, sent{4 * ms, 1000}),
			[]time.Duration{11 * ms, 15 * ms}},
		{"a schedule that loops", Setting{Rate: 8 * unit.Mbps, Queue: 1e6},
			[]Track{{Loop: 4 * ms, Changes: parseTrack(t, "at 0s: rate 8Mbit/s", "at 2ms: rate 0").Changes}}, "",
			burst(5, 1000), []time.Duration{1 * ms, 2 * ms, 5 * ms, 6 * ms, 9 * ms}},
		{"loss of everything", Setting{Rate: Unlimited, Loss: 1}, nil, "", burst(3, 1000), nil},
		{"grants of 1500 bytes", Setting{Queue: 1e6}, nil, "2\n4\n10", burst(4, 1500),
			[]time.Duration{0, 2 * ms, 4 * ms, 10 * ms}},
		{"small packets share a grant, big ones span", Setting{Queue: 1e6}, nil, "5",
			[]sent{{1, 700}, {1, 800}, {1, 1600}},
			[]time.Duration{5 * ms, 5 * ms, 15 * ms}},
		{"unused grants are lost", Setting{Queue: 1e6}, nil, "1\n2\n3\n20", []sent{{10 * ms, 1500}, {10 * ms, 1500}},
			[]time.Duration{20 * ms, 21 * ms}},
		{"several grants at once", Setting{Queue: 1e6}, nil, "1\n5\n5\n9",
			[]sent{{2 * ms, 1500}, {2 * ms, 1500}, {2 * ms, 1500}},
			[]time.Duration{5 * ms, 5 * ms, 9 * ms}},
		{"CSV", Setting{Queue: 1e6}, nil, "seconds,rate\n0,8Mbit/s\n0.002,800kbit/s\n", burst(4, 1000),
			[]time.Duration{1 * ms, 2 * ms, 4*ms + 800*time.Microsecond, 5*ms + 800*time.Microsecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Program{Base: c.base, Tracks: c.tracks}
			if c.grants != "" {
				if err := p.AddTrace(strings.NewReader(c.grants)); err != nil {
					t.Fatal(err)
				}
			}
			got, _ := playLine(t, New(p, 1), c.packets, 0, nil)
			if !slices.Equal(got, c.want) {
				t.Errorf("arrivals %v, want %v", got, c.want)
			}
		})
	}
}

func TestNothingBeforeStart(t *testing.T) {
	l := New(Program{Base: Setting{Rate: 8 * unit.Mbps, Queue: 1e6}, Tracks: []Track{parseTrack(t, "at 1ms: rate 0")}},
		1)
	got, _ := playLine(t, l, burst(4, 1000), 3*ms, nil)
	if want := []time.Duration{1 * ms, 2 * ms, 3 * ms, 4 * ms}; !slices.Equal(got, want) {
		t.Errorf("arrivals %v, want %v", got, want)
	}
	l.Enqueue(10*ms, Packet{Size: 1000})
	if _, ok := l.Due(); ok {
		t.Error("a line of rate 0 is never due")
	}
	l.Rewind(20 * ms)
	if d, ok := l.Due(); !ok || d != 21*ms {
		t.Errorf("after Rewind the packet arrives at %v, %v; want 21ms", d, ok)
	}
	off, rate := true, unit.Rate(80_000)
	l.Apply(20*ms+500*time.Microsecond, Change{Rate: &rate})
	if d, _ := l.Due(); d != 20*ms+500*time.Microsecond+50*ms {
		t.Errorf("after Apply the packet arrives at %v", d)
	}
	l.Apply(21*ms, Change{Outage: &off})
	if l.Enqueue(22*ms, Packet{Size: 1}) || l.Counters.OutageDrops.Packets != 1 {
		t.Error("an outage must swallow new packets")
	}
}

// TestStartAt: a line that starts in the middle of its program has the state of that time, for each
// track and loop.
func TestStartAt(t *testing.T) {
	rate := func(r unit.Rate) *unit.Rate { return &r }
	p := Program{Base: Setting{Rate: 1e6, Queue: unit.MB}, Tracks: []Track{
		{Changes: []Change{{At: 0, Rate: rate(2e6)}, {At: 100 * ms, Rate: rate(3e6)}}, Loop: 200 * ms},
		Outage(250*ms, 100*ms)}}
	for _, c := range []struct {
		into, later time.Duration
		rate        unit.Rate
		outage      bool
	}{{0, 0, 2e6, false}, {150 * ms, 0, 3e6, false}, {150 * ms, 50 * ms, 2e6, false}, {260 * ms, 0, 2e6, true},
		{260 * ms, 90 * ms, 3e6, false}, {1100 * ms, 0, 3e6, false}} {
		l := New(p, 1)
		l.StartAt(7*ms, c.into)
		l.Deliver(7*ms + c.later)
		if s := l.Setting(); s.Rate != c.rate || s.Outage != c.outage {
			t.Errorf("%v into it, %v later: %+v", c.into, c.later, s)
		}
	}
}

// TestRandomLines drives lines with random programs and traffic. Nothing is delivered twice, out of
// order, before its delay, or faster than the rate. Every packet is accounted for. Other wake-up
// times change nothing.
func TestRandomLines(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			p := Program{Base: Setting{Rate: unit.Rate(1+rng.IntN(100)) * unit.Mbps,
				Delay: time.Duration(rng.IntN(50)) * ms,
				Queue: unit.Bytes(2000 + rng.IntN(100_000)), Jitter: time.Duration(rng.IntN(3)) * ms}}
			if rng.IntN(3) == 0 {
				p.Base.Loss = rng.Float64() / 5
			}
			var tr Track
			for at := time.Duration(0); rng.IntN(5) > 0; {
				at += time.Duration(rng.IntN(100)) * ms
				r := unit.Rate(1+rng.IntN(100)) * unit.Mbps
				o := rng.IntN(6) == 0
				tr.Changes = append(tr.Changes, Change{At: at, Rate: &r, Outage: &o})
			}
			p.Tracks = []Track{tr}
			var packets []sent
			for at := time.Duration(0); len(packets) < 500; {
				if rng.IntN(4) == 0 {
					at += time.Duration(rng.IntN(20_000_000))
				}
				packets = append(packets, sent{at, unit.Bytes(40 + rng.IntN(1460))})
			}
			var extra []time.Duration
			for at := time.Duration(0); len(extra) < 300; at += time.Duration(rng.IntN(5_000_000)) {
				extra = append(extra, at)
			}
			l := New(p, seed)
			got, ids := playLine(t, l, packets, 0, nil)
			other, otherIDs := playLine(t, New(p, seed), packets, 0, extra)
			if !slices.Equal(got, other) || !slices.Equal(ids, otherIDs) {
				t.Fatal("waking at other times changed what arrived, or when")
			}
			if !slices.IsSorted(got) || !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
				t.Fatal("packets were reordered or repeated")
			}
			for i, id := range ids {
				if got[i] < packets[id].at+p.Base.Delay {
					t.Fatalf("packet %d came before its delay", id)
				}
			}
			c := l.Counters
			if c.Sent.Packets != int64(len(packets)) || c.Delivered.Packets != int64(len(ids)) ||
				c.Sent.Packets != c.Delivered.Packets+c.QueueDrops.Packets+c.LossDrops.Packets+c.OutageDrops.Packets ||
				c.Sent.Bytes != c.Delivered.Bytes+c.QueueDrops.Bytes+c.LossDrops.Bytes+c.OutageDrops.Bytes {
				t.Fatalf("packets are missing: %+v", c)
			}
			if c.MaxQueued > max(p.Base.Queue, 1500) {
				t.Fatalf("the queue held %v of at most %v", c.MaxQueued, p.Base.Queue)
			}
			if q, f := l.Pending(); q != 0 || f != 0 {
				t.Fatalf("left on the line: %v, %d", q, f)
			}
			if n := len(got); n > 0 {
				capacity := NewCapacity(&Program{Base: Setting{Rate: p.Base.Rate}, Tracks: p.Tracks})
				for i := range tr.Changes {
					tr.Changes[i].Outage = nil
				}
				if sum := capacity.BytesUntil(got[n-1] - p.Base.Delay); float64(c.Delivered.Bytes) > sum+1500 {
					t.Fatalf("%v delivered by a line that can carry %.0f B", c.Delivered.Bytes, sum)
				}
			}
		})
	}
}

// TestReorder: a packet overtakes earlier packets in flight and takes their earliest arrival time.
func TestReorder(t *testing.T) {
	p := Program{Base: Setting{Rate: Unlimited, Delay: 10 * ms, Queue: unit.MB}}
	half, none := .5, 0.0
	order := func(share *float64) (arrivals []time.Duration, ids []int) {
		p.Base.Reorder = *share
		return playLine(t, New(p, 1), burst(100, 1000), -1, nil)
	}
	at, ids := order(&none)
	if !slices.IsSorted(ids) {
		t.Error("reordered without being asked")
	}
	at2, ids2 := order(&half)
	if slices.IsSorted(ids2) || !slices.Equal(at, at2) {
		t.Errorf("order %v, times %v", ids2, at2)
	}
	early := 0
	for i, id := range ids2 {
		if id-i > reorderBy {
			t.Errorf("packet %d came as number %d", id, i)
		}
		if id-i == reorderBy {
			early++
		}
	}
	slices.Sort(ids2)
	if !slices.Equal(ids, ids2) || early < 20 {
		t.Errorf("%d were early: %v", early, ids2)
	}
}

func TestExactRate(t *testing.T) {
	for _, mbit := range []unit.Rate{1, 7, 10, 33, 100, 999} {
		l := New(Program{Base: Setting{Rate: mbit * unit.Mbps, Queue: 1e9}}, 1)
		got, _ := playLine(t, l, burst(20000, 1500), 0, nil)
		want := 20000 * 1500 * 8 / (float64(mbit) * 1e6)
		if e := got[len(got)-1].Seconds()/want - 1; math.Abs(e) > 1e-4 {
			t.Errorf("%d Mbit/s: off by %g", mbit, e)
		}
	}
}

func TestCapacity(t *testing.T) {
	p := Program{Base: Setting{Rate: 8 * unit.Mbps}, Tracks: []Track{parseTrack(t, "at 1s: rate 80kbit/s"),
		Outage(3*time.Second, time.Second)}}
	c := NewCapacity(&p)
	for _, w := range []struct {
		at   time.Duration
		want float64
	}{{0, 0}, {time.Second / 2, 5e5}, {time.Second, 1e6}, {2 * time.Second, 1.01e6}, {4 * time.Second, 1.02e6},
		{5 * time.Second, 1.03e6}} {
		if got := c.BytesUntil(w.at); math.Abs(got-w.want) > 1 {
			t.Errorf("by %v: %.0f bytes, want %.0f", w.at, got, w.want)
		}
	}
	var g Program
	if err := g.AddTrace(strings.NewReader("10\n20\n")); err != nil {
		t.Fatal(err)
	}
	c = NewCapacity(&g) // grants at 0, 10, 20 …
	if got := c.BytesUntil(95 * ms); got != 15000 {
		t.Errorf("mahimahi: %.0f bytes by 95 ms, want 15000", got)
	}
}

func TestBadTraces(t *testing.T) {
	for _, bad := range []string{"", "# nothing\n", "0\n", "5\n3\n", "x\n", "-1\n", "1\n0.5,8\n",
		"0,8Mbit/s\n0,9Mbit/s\n", "0,8 parsecs\n", "1,8\nx,9\n", "seconds,rate\n", "99999999999999999999\n"} {
		var p Program
		if err := p.AddTrace(strings.NewReader(bad)); err == nil {
			t.Errorf("trace %q was taken", bad)
		}
	}
	for _, bad := range []string{"", "2s", "at 2s", "at x: rate 1Mbit/s", "at 2s: rate", "at 2s: speed 1",
		"at -2s: rate 1", "at 2s: loss 2", "at 2s: loss NaN", "at 2s: outage maybe", "at 2s: delay -1s"} {
		if c, err := ParseChange(bad); err == nil {
			t.Errorf("change %q was taken: %+v", bad, c)
		}
	}
}

func FuzzTrace(f *testing.F) {
	f.Add("1\n5\n5\n9")
	f.Add("seconds,rate\n0,8Mbit/s\n0.002,800kbit/s\n")
	f.Fuzz(func(t *testing.T, s string) {
		var p Program
		if p.AddTrace(strings.NewReader(s)) == nil {
			if err := p.Check(); err != nil {
				t.Fatalf("a trace that was taken is bad: %v", err)
			}
		}
	})
}
