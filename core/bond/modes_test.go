// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// messages is a stream of the test on which the accepting end writes a message
// every interval, for as long as the test runs.
type messages struct {
	s     [2]*Stream
	sent  []time.Time
	read  int // bytes
	delay []time.Duration
}

const messageSize = 400

// addMessages opens such a stream in a mode, beside what carry does.
func (n *simNet) addMessages(mode wire.Mode, every time.Duration) *messages {
	g := &messages{}
	var err error
	if g.s[0], err = n.ends[0].OpenStream("talk:1"); err != nil {
		n.fatal("open: %v", err)
	}
	g.s[0].SetMode(mode)
	n.foreign = g.s[0].ID()
	var tick func()
	tick = func() {
		g.s[1].Write(n.fillPattern(g.s[1].ID(), 1, len(g.sent)*messageSize, messageSize))
		g.sent = append(g.sent, n.now)
		n.after(every, tick)
	}
	before := n.onEnd
	n.onEnd[0] = func(b *Bond) {
		if before[0] != nil {
			before[0](b)
		}
		buf := make([]byte, 4096)
		for k, _ := g.s[0].Read(buf); k > 0; k, _ = g.s[0].Read(buf) {
			g.read += k
		}
		for len(g.delay) < g.read/messageSize {
			g.delay = append(g.delay, n.now.Sub(g.sent[len(g.delay)]))
		}
	}
	n.onEnd[1] = func(b *Bond) {
		if before[1] != nil {
			before[1](b)
		}
		if s := b.streams.all[g.s[0].ID()]; s != nil && s.openReceived && g.s[1] == nil {
			if g.s[1] = s; s.Mode() != mode {
				n.fatal("the other end got mode %v", s.Mode())
			}
			tick()
		}
	}
	return g
}

// p95 is of the messages after the first ones: see pings.quantile.
func (g *messages) p95() time.Duration {
	list := slices.Clone(g.delay[min(40, len(g.delay)):])
	slices.Sort(list)
	if len(list) == 0 {
		return time.Hour
	}
	return list[len(list)*95/100]
}

// TestLatencyMode: messages of a latency stream hardly wait beside a download, and neither do small
// ones of an ordinary stream. The download pays little.
func TestLatencyMode(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(*simNet)
		most  time.Duration // for 95 % of the messages
	}{
		{"8/10/5", func(n *simNet) { n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps) }, 80 * time.Millisecond},
		{"one subflow", func(n *simNet) { n.addTriangle(10 * unit.Mbps) }, 80 * time.Millisecond},
		{"helper only", func(n *simNet) {
			n.addSubflow(1, n.newHopPair(10*unit.Mbps, 35*time.Millisecond), n.newHopPair(5*unit.Mbps, 2500*time.Microsecond))
		}, 120 * time.Millisecond},
	} {
		run := func(mode wire.Mode, every time.Duration) (time.Duration, time.Duration) {
			n := newSim(t, "auto", 0.2)
			c.build(n)
			n.useDeepQueues()
			start := n.now
			tr := &transfer{size: int(6 * unit.MB)}
			done := n.carry([]*transfer{tr})
			g := n.addMessages(mode, every)
			n.run(done)
			return g.p95(), tr.done.Sub(start)
		}
		_, alone := run(wire.ModeBond, time.Hour)
		for _, mode := range []wire.Mode{wire.ModeLatency, wire.ModeBond} {
			delay, took := run(mode, 25*time.Millisecond)
			t.Logf("%s: p95 %v in mode %v; the download takes %v instead of %v", c.name, delay.Round(time.Millisecond), mode,
				took.Round(time.Millisecond), alone.Round(time.Millisecond))
			if delay > c.most {
				t.Errorf("%s: 95 %% of the messages take up to %v, want %v in mode %v", c.name, delay, c.most, mode)
			}
			if took > alone*110/100 {
				t.Errorf("%s: the download takes %v instead of %v in mode %v", c.name, took, alone, mode)
			}
		}
	}
}

// TestLatencyMoves: a latency stream loses nothing when its subflow dies, and continues over
// another one at once.
func TestLatencyMoves(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	tr := &transfer{size: int(4 * unit.MB)}
	done := n.carry([]*transfer{tr})
	g := n.addMessages(wire.ModeLatency, 10*time.Millisecond)
	n.after(time.Second, func() { n.kill(n.subflows[0]) })
	n.run(done)
	sent, worst := len(g.sent), slices.Max(g.delay)
	t.Logf("%d of %d messages, the slowest took %v", len(g.delay), sent, worst.Round(time.Millisecond))
	if len(g.delay) < sent-40 || worst > 600*time.Millisecond {
		t.Errorf("%d of %d messages came, the slowest after %v", len(g.delay), sent, worst)
	}
}

// TestModeChanges: bytes that wait are counted under the mode of the moment.
func TestModeChanges(t *testing.T) {
	b := New(Config{OpensStreams: true})
	s, err := b.OpenStream("a:1")
	if err != nil {
		t.Fatal(err)
	}
	s.Write(make([]byte, 1000))
	for _, c := range []struct {
		mode                     wire.Mode
		pending, lowLatency      unit.Bytes
		ready, lowLatencyStreams int
	}{{wire.ModeLatency, 0, 1000, 0, 1}, {wire.ModeLatency, 0, 1000, 0, 1}, {wire.ModeRedundant, 1000, 0, 1, 0},
		{wire.ModeBond, 1000, 0, 1, 0}} {
		s.SetMode(c.mode)
		if b.backlog.pending != c.pending || b.backlog.lowLatencyPending != c.lowLatency || len(b.backlog.ready) != c.ready ||
			len(b.backlog.lowLatency) != c.lowLatencyStreams {
			t.Errorf("%v: %v pending, %v low-latency, %d ready, %d low-latency streams", c.mode, b.backlog.pending,
				b.backlog.lowLatencyPending,
				len(b.backlog.ready), len(b.backlog.lowLatency))
		}
	}
	s.SetMode(wire.ModeLatency)
	s.Reset(wire.CodeClosed, "")
	if b.backlog.pending != 0 || b.backlog.lowLatencyPending != 0 {
		t.Errorf("after a reset %v are pending, %v low-latency", b.backlog.pending, b.backlog.lowLatencyPending)
	}
}

// runChunked downloads a chunk of 1 MB with more behind it, while the pipe becomes
// slow, and returns when the chunk was complete.
func runChunked(t *testing.T, mark bool) time.Duration {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	h := n.subflows[1].hops[1][1]
	h.steps = append(h.steps, simStep{n.now.Add(500 * time.Millisecond), unit.Mbps / 2})
	chunk := int(unit.MB)
	tr := &transfer{size: 3 * chunk}
	done := n.carry([]*transfer{tr})
	if mark {
		tr.s[0].RequestChunk(unit.Bytes(chunk))
	}
	start, complete := n.now, time.Duration(0)
	n.run(func() bool {
		if complete == 0 && tr.read >= chunk {
			complete = n.now.Sub(start)
		}
		return done()
	})
	return complete
}

// TestChunk: what the reader waits for comes first, though more can be sent.
func TestChunk(t *testing.T) {
	plain, marked := runChunked(t, false), runChunked(t, true)
	t.Logf("1 MB of 3 MB, the pipe slow from 0.5 s on: complete after %v, with a mark after %v",
		plain.Round(time.Millisecond), marked.Round(time.Millisecond))
	if marked > plain*85/100 {
		t.Errorf("the chunk is complete after %v, without the mark after %v", marked, plain)
	}
}
