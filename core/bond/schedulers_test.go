// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"math"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// effect is the result of one download over 8/10/5 with a scheduler.
type effect struct {
	took   time.Duration
	ended  [2]time.Duration // last new byte of the direct and of the helped subflow
	given  [2]unit.Bytes
	atMost unit.Bytes // bytes at the helper
}

func (e effect) apart() time.Duration { return (e.ended[0] - e.ended[1]).Abs() }
func (e effect) direct() float64 {
	return float64(e.given[0]) / float64(e.given[0]+e.given[1])
}

func measure(t *testing.T, scheduler string, size unit.Bytes, rates ...unit.Rate) effect {
	t.Helper()
	n := newSim(t, scheduler, -1)
	n.addTriangle(rates[0], rates[1], rates[2])
	begin := n.now
	e := effect{}
	tr := &transfer{size: int(size)}
	done := n.carry([]*transfer{tr})
	n.run(func() bool {
		far := n.subflows[1].hops[1][1]
		e.atMost = max(e.atMost, unit.Bytes(far.written-far.acked))
		return done()
	})
	e.took = tr.done.Sub(begin)
	for i, p := range n.ends[0].ListSubflows(nil, n.now) {
		e.ended[i] = p.LastData.Sub(begin)
	}
	for i, p := range n.ends[1].subflows.list {
		e.given[i] = p.streamBytesSent
	}
	t.Logf("%-15s %.3f s, ended %.3f and %.3f s, %.3f direct, at most %v at the helper", scheduler, e.took.Seconds(),
		e.ended[0].Seconds(), e.ended[1].Seconds(), e.direct(), e.atMost)
	return e
}

// TestEffects: what each scheduler is known for, at 8/10/5 Mbit/s.
func TestEffects(t *testing.T) {
	m := unit.Mbps
	naive := measure(t, "minrtt", 10*unit.MB, 8*m, 10*m, 5*m)
	if naive.apart() < 3*time.Second || naive.atMost < unit.MB {
		t.Errorf("minrtt: subflows end %v apart with %v at the helper; the published gap is 4.5 s", naive.apart(),
			naive.atMost)
	}
	pams := measure(t, "pams", 10*unit.MB, 8*m, 10*m, 5*m)
	if pams.apart() > 200*time.Millisecond {
		t.Errorf("pams: subflows end %v apart", pams.apart())
	}
	windows := measure(t, "minrtt-windows", 10*unit.MB, 8*m, 10*m, 5*m)
	if windows.atMost > 100*unit.KB {
		t.Errorf("minrtt-windows: %v at the helper, want hardly more than its window", windows.atMost)
	}
	for _, c := range []struct {
		name string
		want float64
	}{{"ratio:0.6", .6}, {"ratio:0.25", .25}, {"ratio:1", 1}, {"ratio:0", 0}, {"ratio", .5}} {
		e := measure(t, c.name, 4*unit.MB, 8*m, 10*m, 5*m)
		if off := math.Abs(e.direct()-c.want) * float64(4*unit.MB); off > maxSegment {
			t.Errorf("%s: %.4f of the bytes went by the direct subflow, %.0f bytes off", c.name, e.direct(), off)
		}
	}
	// ECF does not let a filled helper finish last.
	if e := measure(t, "ecf", 10*unit.MB, 8*m, 10*m, 5*m); e.apart() > 500*time.Millisecond || e.took > naive.took*9/10 {
		t.Errorf("ecf: %v, subflows end %v apart", e.took, e.apart())
	}
	// BLEST looks at the send window, so it leaves less at the helper.
	if e := measure(t, "blest", 10*unit.MB, 8*m, 10*m, 5*m); e.atMost > naive.atMost || e.took > naive.took {
		t.Errorf("blest: %v with %v at the helper, minrtt %v with %v", e.took, e.atMost, naive.took, naive.atMost)
	}
}

// TestSlowSubflowIsLeftAlone: once both are known, a small download over a quick
// and a very slow subflow waits for the quick one with ECF, BLEST and PAMS; minPAD,
// which is PAMS without waiting, does not. The slow
// one is still given the first bytes, which it would deliver before the last
// ones of the quick.
func TestSlowSubflowIsLeftAlone(t *testing.T) {
	const size = 512 * unit.KB
	second := func(scheduler string) time.Duration {
		n := newSim(t, scheduler, -1)
		n.addTriangle(20*unit.Mbps, 300*unit.Kbps, 200*unit.Kbps)
		n.run(n.carry([]*transfer{{size: int(size)}}))
		quiet := n.now.Add(5 * time.Second)
		n.run(func() bool { return n.now.After(quiet) })
		begin := n.now
		tr := &transfer{size: int(size)}
		n.run(n.carry([]*transfer{tr}))
		t.Logf("%-8s %.3f s", scheduler, tr.done.Sub(begin).Seconds())
		return tr.done.Sub(begin)
	}
	alone := second("ratio:1")
	for _, name := range []string{"ecf", "blest", "pams", "auto", "minrtt", "minpad", "roundrobin"} {
		waits := name != "minrtt" && name != "minpad" && name != "roundrobin"
		if took := second(name); (took > 2*alone) == waits {
			t.Errorf("%s: %v, alone %v", name, took, alone)
		}
	}
}

// TestHelperBufferHidesAFade: while the HS-path is slow, a filled helper keeps the pipe busy. The
// strawman with both windows has an empty one.
func TestHelperBufferHidesAFade(t *testing.T) {
	fade := func(scheduler string) time.Duration {
		n := newSim(t, scheduler, -1)
		n.addTriangle(5*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
		h := n.subflows[1].hops[1][0]
		h.steps = append(h.steps, simStep{n.now.Add(time.Second), unit.Mbps},
			simStep{n.now.Add(2 * time.Second), 10 * unit.Mbps})
		begin := n.now
		tr := &transfer{size: int(4 * unit.MB)}
		n.run(n.carry([]*transfer{tr}))
		t.Logf("%-15s %.3f s", scheduler, tr.done.Sub(begin).Seconds())
		return tr.done.Sub(begin)
	}
	if with, without := fade("pams"), fade("minrtt-windows"); without-with < 150*time.Millisecond {
		t.Errorf("pams %v, minrtt-windows %v: the helper's buffer brought nothing", with, without)
	}
}

// measureTrickle returns the share of subflow 1 in a download whose source writes little at a time,
// so that all subflows are idle for each piece.
func measureTrickle(t *testing.T, scheduler string, join func(n *simNet)) float64 {
	t.Helper()
	n := newSim(t, scheduler, -1)
	join(n)
	tr := &transfer{size: 200_000, talk: [2]talk{1: {WriteRate: 400 * unit.Kbps}}}
	n.run(n.carry([]*transfer{tr}))
	p := n.ends[1].subflows.list
	share := float64(p[0].streamBytesSent) / float64(p[0].streamBytesSent+p[1].streamBytesSent)
	t.Logf("%-10s %.3f by subflow 1", scheduler, share)
	return share
}

// TestMinPADSeesThePipe: minRTT gives all to a helper that is near, however far
// away the primary is from that; minPAD to the subflow that delivers first.
func TestMinPADSeesThePipe(t *testing.T) {
	ms := time.Millisecond
	farPipe := func(n *simNet) {
		n.addSubflow(1, n.newHopPair(10*unit.Mbps, 40*ms), nil)
		n.addSubflow(2, n.newHopPair(10*unit.Mbps, 10*ms), n.newHopPair(10*unit.Mbps, 80*ms))
	}
	if s := measureTrickle(t, "minpad", farPipe); s < .98 {
		t.Errorf("minpad: %.3f of the bytes by the subflow that delivers first", s)
	}
	if s := measureTrickle(t, "minrtt", farPipe); s > .02 {
		t.Errorf("minrtt: %.3f of the bytes by the subflow that delivers first: this test shows nothing", s)
	}
}

// TestRoundRobinTakesTurns: for an app that writes little at a time, whatever
// the subflows' delays; others stay with the quicker one. Of a download it gives
// what each hop takes, as minRTT does, and so fills a helper.
func TestRoundRobinTakesTurns(t *testing.T) {
	ms := time.Millisecond
	nearAndFar := func(n *simNet) {
		n.addSubflow(1, n.newHopPair(10*unit.Mbps, 10*ms), nil)
		n.addSubflow(2, n.newHopPair(10*unit.Mbps, 60*ms), nil)
	}
	if s := measureTrickle(t, "roundrobin", nearAndFar); math.Abs(s-.5) > .02 {
		t.Errorf("roundrobin: %.3f of the bytes by the quicker subflow", s)
	}
	for _, name := range []string{"minrtt", "minpad"} {
		if s := measureTrickle(t, name, nearAndFar); s < .98 {
			t.Errorf("%s: %.3f of the bytes by the quicker subflow: this test shows nothing", name, s)
		}
	}
	if e := measure(t, "roundrobin", 10*unit.MB, 8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps); e.apart() < 3*time.Second ||
		e.atMost < unit.MB {
		t.Errorf("roundrobin: subflows end %v apart with %v at the helper", e.apart(), e.atMost)
	}
}

// TestBlind: without samples of a subflow's first hop, as outside Linux, the far end's
// acknowledgements suffice: two local links, or a helper's, give most of their sum.
func TestBlind(t *testing.T) {
	const m, size = unit.Mbps, 10 * unit.MB
	for _, c := range []struct {
		name string
		join func(n *simNet)
		sum  unit.Rate
		rtts []time.Duration // of handshakes
	}{
		{"direct", func(n *simNet) {
			n.addSubflow(1, n.newHopPair(8*m, 25*time.Millisecond), nil)
			n.addSubflow(2, n.newHopPair(4*m, 60*time.Millisecond), nil)
		}, 12 * m, []time.Duration{50 * time.Millisecond, 120 * time.Millisecond}},
		{"helped", func(n *simNet) { n.addTriangle(8*m, 10*m, 5*m) }, 13 * m,
			[]time.Duration{50 * time.Millisecond, 75 * time.Millisecond}},
	} {
		for _, scheduler := range []string{"auto", "pams"} {
			n := newSim(t, scheduler, .2)
			n.blind = true
			c.join(n)
			for i, rtt := range c.rtts {
				for d := range 2 {
					n.ends[d].SetJoinRTT(wire.SubflowID(i+1), rtt)
				}
			}
			begin := n.now
			tr := &transfer{size: int(size)}
			n.run(n.carry([]*transfer{tr}))
			took, bound := tr.done.Sub(begin), c.sum.Time(size)
			t.Logf("%s, %s: %v, bound %v", c.name, scheduler, took, bound)
			if took > bound*11/10 {
				t.Errorf("%s, %s: %v, the links could do it in %v", c.name, scheduler, took, bound)
			}
		}
	}
}
