// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/wire"
)

// scenario describes a network, its events, and the data to carry. It is plain data: it can be
// printed, and reduced as long as it fails.
type scenario struct {
	seed         uint64
	stable       bool // nothing happens to the network: its time says how well it was used
	scheduler    string
	eta          float64
	meta         unit.Bytes // 0: the default
	buffered     unit.Bytes
	subflows     []subflowPlan // the first one stays and works in the end
	streams      []streamPlan
	freezes      []freezePlan
	flows        []flowPlan
	guide        bool        // a guide allows each stream changing subsets of subflows
	plans        []classPlan // in order
	classChanges []classChange
	lag          [2]time.Duration // how long the writers of each end take to begin
}

type subflowPlan struct {
	join   [2]time.Duration // at each end
	leave  [2]time.Duration // 0: stays
	drain  bool             // what is under way when it leaves still arrives
	hops   []hopPlan        // from the opener's side: pipe, HS-path
	buffer unit.Bytes       // of the helper
	relay  bool             // its reports go by the opener
}

type hopPlan struct {
	rate   [2]unit.Rate // by direction
	delay  [2]time.Duration
	window [2]unit.Bytes
	loss   float64
	wait   time.Duration // of a retransmission, beyond the round trip
	faults []faultPlan   // in order, none overlaps another
}

// faultPlan is a change of a hop: of its rate for a time, then of rate and delay for good. A pipe
// that breaks and moves has rate 0, then the rate and delay of the new pipe.
type faultPlan struct {
	at, lasts time.Duration
	dirs      [2]bool
	rate      unit.Rate     // meanwhile
	after     unit.Rate     // 0: as before
	delay     time.Duration // 0: as before
	forever   bool
}

type streamPlan struct {
	at    time.Duration
	talk  [2]talk
	mode  wire.Mode
	group wire.GroupID
	await int // bytes that the opener requests each time it has received the last ones; 0: none
}

// classPlan is a change of the class table: the subflows that groups 1 and 2 may use, a bit for
// each; 0 is no limit.
type classPlan struct {
	at       time.Duration
	subflows [2]uint
	class    wire.Priority // of group 1
	weight   uint8
}

// classChange is a change of a stream's class.
type classChange struct {
	at     time.Duration
	stream wire.StreamID
	mode   wire.Mode
	group  wire.GroupID
}

type freezePlan struct {
	end       int
	at, lasts time.Duration
}

// dice draws what a scenario is made of.
type dice struct{ *rand.Rand }

// logUniform is log-uniform.
func (r dice) logUniform(lo, hi float64) float64 { return lo * math.Exp(r.Float64()*math.Log(hi/lo)) }
func (r dice) rate(lo, hi unit.Rate) unit.Rate {
	return unit.Rate(r.logUniform(float64(lo), float64(hi)))
}
func (r dice) duration(lo, hi time.Duration) time.Duration {
	return time.Duration(r.logUniform(float64(lo), float64(hi)))
}
func (r dice) durationUpTo(d time.Duration) time.Duration {
	return time.Duration(r.Float64() * float64(d))
}
func (r dice) chance(p float64) bool { return r.Float64() < p }

const ms = time.Millisecond

// newScenario is the scenario of a seed.
func newScenario(seed uint64) *scenario {
	r := dice{rand.New(rand.NewPCG(seed, 7))}
	if seed%8 == 7 {
		return stableScenario(seed, r)
	}
	sc := &scenario{seed: seed, eta: []float64{-1, 0.2, 0.2, r.logUniform(0.02, 5)}[r.IntN(4)]}
	if r.chance(0.2) {
		sc.meta = unit.Bytes(r.logUniform(2e3, 1e6))
	}
	if r.chance(0.2) {
		sc.buffered = unit.Bytes(r.logUniform(1e4, 4e6))
	}
	var all unit.Rate
	for i := range 1 + r.IntN(4) {
		p := newSubflowPlan(r, 100*unit.Kbps, 200*unit.Mbps)
		all += p.rate()
		if i > 0 && r.chance(0.6) || r.chance(0.1) {
			p.join[0] = r.duration(ms, 5*time.Second)
			p.join[1] = p.join[0]
			p.join[r.IntN(2)] += r.duration(ms, 300*ms)
		}
		if i > 0 && r.chance(0.5) {
			p.leave[0] = max(p.join[0], p.join[1]) + r.duration(10*ms, 5*time.Second)
			p.leave[1] = p.leave[0]
			p.leave[r.IntN(2)] += r.duration(ms, 2*time.Second)
			p.drain = r.chance(0.5)
		}
		sc.subflows = append(sc.subflows, p)
	}
	// What takes up to some seconds, mostly.
	total := float64(min(all.Bytes(r.duration(20*ms, 10*time.Second)), unit.Bytes(r.logUniform(100, 12e6))))
	sc.addStreams(r, total)
	horizon := 2*time.Second + all.Time(unit.Bytes(total))
	for i := range sc.subflows {
		for j := range sc.subflows[i].hops {
			if r.chance(0.5) {
				sc.subflows[i].hops[j].addFaults(r, horizon, i > 0)
			}
		}
	}
	for r.chance(0.15) {
		sc.freezes = append(sc.freezes, freezePlan{r.IntN(2), r.durationUpTo(horizon), r.duration(ms, 4*time.Second)})
	}
	names := sched.Names()
	sc.scheduler = names[r.IntN(len(names))]
	for r.chance(0.3) {
		f := flowPlan{at: r.durationUpTo(2 * time.Second), every: r.duration(ms, 100*ms), size: r.IntN(1400),
			redundant: r.chance(0.3)}
		for d := range 2 {
			f.count[d] = int(r.duration(10*ms, 4*time.Second)/f.every) + 1
		}
		if r.chance(0.2) {
			f.end = r.durationUpTo(4 * time.Second)
		}
		sc.flows = append(sc.flows, f)
	}
	sc.guide = r.chance(0.4)
	for d := range 2 {
		// Subflows are held to what a stream may use when its writer begins.
		if !sc.guide && r.chance(0.1) {
			sc.lag[d] = r.duration(ms, 100*ms)
		}
	}
	if sc.lag == [2]time.Duration{} && r.chance(0.4) {
		sc.addPlans(r)
	}
	for sc.lag == [2]time.Duration{} && r.chance(0.4) {
		t := classChange{at: r.durationUpTo(horizon), stream: wire.StreamID(1 + r.IntN(len(sc.streams))),
			mode: wire.Mode(r.IntN(3))}
		if len(sc.plans) > 0 {
			t.group = wire.GroupID(r.IntN(3))
		}
		sc.classChanges = append(sc.classChanges, t)
	}
	return sc
}

func stableScenario(seed uint64, r dice) *scenario {
	sc := &scenario{seed: seed, stable: true, eta: []float64{-1, 0.2}[r.IntN(2)],
		scheduler: []string{"auto", "pams"}[r.IntN(2)]}
	var all unit.Rate
	for range 1 + r.IntN(3) {
		p := newSubflowPlan(r, unit.Mbps, 100*unit.Mbps)
		for i := range p.hops {
			p.hops[i].loss = 0
		}
		all += p.rate()
		sc.subflows = append(sc.subflows, p)
	}
	size := min(all.Bytes(r.duration(time.Second, 8*time.Second)), unit.Bytes(r.logUniform(256e3, 8e6)))
	st := streamPlan{}
	st.talk[r.IntN(2)].Bytes = int(size)
	sc.streams = append(sc.streams, st)
	return sc
}

func newSubflowPlan(r dice, lo, hi unit.Rate) (p subflowPlan) {
	p.hops = []hopPlan{newHopPlan(r, lo, hi, 300*ms)}
	if r.chance(0.6) {
		p.hops = append([]hopPlan{newHopPlan(r, lo, hi, 30*ms)}, p.hops...)
		p.buffer = unit.Bytes(r.logUniform(32e3, 4e6))
		p.relay = r.chance(0.5)
	}
	return p
}

func newHopPlan(r dice, lo, hi unit.Rate, delay time.Duration) (h hopPlan) {
	for d := range 2 {
		if d == 0 || r.chance(0.5) {
			h.rate[d], h.delay[d] = r.rate(lo, hi), r.duration(200*time.Microsecond, delay)
		} else {
			h.rate[d], h.delay[d] = h.rate[0], h.delay[0]
		}
	}
	for d := range 2 {
		h.window[d] = max(32*unit.KB, min(6*unit.MB,
			unit.Bytes(r.logUniform(1, 6)*float64(h.rate[d].Bytes(h.delay[0]+h.delay[1])))))
	}
	if r.chance(0.3) {
		h.loss, h.wait = r.logUniform(0.001, 0.1), r.durationUpTo(200*ms)
	}
	return h
}

// rate is that of the slower hop, of the quicker direction.
func (p *subflowPlan) rate() unit.Rate {
	least := p.hops[0].rate
	for _, h := range p.hops {
		for d := range 2 {
			least[d] = min(least[d], h.rate[d])
		}
	}
	return max(least[0], least[1])
}

// addFaults lets something happen to a hop.
func (h *hopPlan) addFaults(r dice, horizon time.Duration, mayEnd bool) {
	both := [2]bool{true, true}
	at := r.durationUpTo(horizon)
	switch r.IntN(5) {
	case 0: // outages
		for range 1 + r.IntN(3) {
			f := faultPlan{at: at, lasts: r.duration(10*ms, 5*time.Second), dirs: both}
			if r.chance(0.3) {
				f.dirs[r.IntN(2)] = false
			}
			h.faults = append(h.faults, f)
			at += f.lasts + r.durationUpTo(horizon)
		}
	case 1: // a new rate
		f := faultPlan{at: at, dirs: both, rate: r.rate(100*unit.Kbps, 200*unit.Mbps)}
		f.after = f.rate
		h.faults = append(h.faults, f)
	case 2: // Markov: good and bad by turns
		for range 5 + r.IntN(30) {
			f := faultPlan{at: at, lasts: r.duration(20*ms, time.Second), dirs: both, rate: h.rate[0] / unit.Rate(2+r.IntN(30))}
			if r.chance(0.2) {
				f.rate = 0
			}
			h.faults = append(h.faults, f)
			at += f.lasts + r.duration(20*ms, time.Second)
		}
	case 3: // migrations
		for range 1 + r.IntN(3) {
			f := faultPlan{at: at, lasts: r.durationUpTo(2 * time.Second), dirs: both,
				after: r.rate(100*unit.Kbps, 200*unit.Mbps), delay: r.duration(200*time.Microsecond, 100*ms)}
			h.faults = append(h.faults, f)
			at += f.lasts + r.duration(100*ms, 4*time.Second)
		}
	case 4: // a black hole that is never reported
		f := faultPlan{at: at, lasts: r.duration(time.Second, 20*time.Second), dirs: both, forever: mayEnd}
		h.faults = append(h.faults, f)
	}
}

// addStreams divides total bytes, more or less, over streams.
func (sc *scenario) addStreams(r dice, total float64) {
	count := 1 + r.IntN(4)
	if r.chance(0.05) {
		count = 10 + r.IntN(60)
	}
	for range count {
		st := streamPlan{at: r.durationUpTo(time.Second)}
		if r.chance(0.5) {
			st.at = 0
		}
		main := r.IntN(2)
		for d := range 2 {
			t := &st.talk[d]
			share := total / float64(count)
			if d == main || r.chance(0.3) {
				t.Bytes = int(r.logUniform(1, max(2, share)))
				if r.chance(0.5) {
					t.Bytes = int(share)
				}
			}
			// Apps with a pace take at most some seconds of their own.
			if r.chance(0.1) {
				t.WriteRate = unit.RateOf(unit.Bytes(t.Bytes), r.duration(50*ms, 5*time.Second)) + unit.Kbps
			}
			if r.chance(0.2) {
				t.Delay = r.duration(ms, 2*time.Second)
			}
			if r.chance(0.1) {
				t.CloseLate = r.duration(ms, 2*time.Second)
			}
			if r.chance(0.15) {
				t.PauseAt, t.Pause = r.durationUpTo(time.Second), r.duration(10*ms, 5*time.Second)
			}
			if r.chance(0.2) {
				t.Hold = r.duration(10*time.Microsecond, 20*ms)
			}
			if r.chance(0.05) {
				t.ResetAt = r.duration(ms, 4*time.Second)
			}
		}
		if r.chance(0.2) {
			st.talk[1-main].AfterEOF = true
		}
		for d := range 2 {
			if r.chance(0.1) {
				st.talk[d].ReadRate = unit.RateOf(unit.Bytes(st.talk[1-d].Bytes), r.duration(50*ms, 5*time.Second)) + unit.Kbps
			}
		}
		if r.chance(0.2) {
			st.mode = []wire.Mode{wire.ModeLatency, wire.ModeRedundant}[r.IntN(2)]
		}
		if r.chance(0.2) {
			st.await = 1 + st.talk[1].Bytes/(1+r.IntN(8))
		}
		sc.streams = append(sc.streams, st)
	}
}

// hop makes one direction of a hop.
func (h *hopPlan) make(d int, seed uint64) *simHop {
	s := &simHop{delay: h.delay[d], freeAt: simStart, steps: []simStep{{simStart, h.rate[d]}}, window: h.window[d],
		loss: h.loss, retransmit: h.wait}
	if h.loss > 0 {
		s.rng = rand.New(rand.NewPCG(seed, uint64(d)))
	}
	rate := h.rate[d]
	for _, f := range h.faults {
		if !f.dirs[d] {
			continue
		}
		at, back := simStart.Add(f.at), simStart.Add(f.at+f.lasts)
		s.steps = append(s.steps, simStep{at, f.rate})
		if f.forever {
			break
		}
		if f.after > 0 {
			rate = f.after
		}
		s.steps = append(s.steps, simStep{back, rate})
		if f.delay > 0 {
			s.moves = append(s.moves, simMove{back, f.delay})
		}
	}
	return s
}

// network makes the network of a scenario, with all that will happen to it.
func (sc *scenario) network() *simNet {
	n := newNet(nil, sc.scheduler, Config{Eta: sc.eta, MetaBuffer: sc.meta, MaxBuffered: sc.buffered})
	n.lag = sc.lag
	n.limit = simStart.Add(2 * sc.bound())
	for i := range sc.subflows {
		plan := &sc.subflows[i]
		var hops [2][2]*simHop
		for j := range plan.hops {
			for d := range 2 {
				hops[j][d] = plan.hops[j].make(d, sc.seed<<8|uint64(i<<2|j))
			}
		}
		far, pipe := &hops[0], (*[2]*simHop)(nil)
		if len(plan.hops) > 1 {
			far, pipe = &hops[1], &hops[0]
		}
		p := n.newSubflow(wire.SubflowID(i+1), far, pipe)
		p.buffer, p.relay = plan.buffer, plan.relay
		for d := range 2 {
			n.at(simStart.Add(plan.join[d]), d, func() { n.join(p, d) })
			if plan.leave[d] > 0 {
				n.at(simStart.Add(plan.leave[d]), d, func() {
					p.dead = p.dead || !plan.drain
					n.leave(p, d)
				})
			}
		}
	}
	for d := range 2 {
		if sc.guide {
			n.ends[d].SetGuide(&simGuide{dice{rand.New(rand.NewPCG(sc.seed, uint64(d)))}})
		}
	}
	groups := newSimGroups(n)
	for _, p := range sc.plans {
		n.at(simStart.Add(p.at), 0, func() { groups.use(p.buildGroups(len(sc.subflows))) })
	}
	for _, t := range sc.classChanges {
		n.at(simStart.Add(t.at), 0, func() { n.ends[0].SetClass(t.stream, t.mode, groups.of(t.group)) })
	}
	for _, st := range sc.streams {
		tr := &transfer{talk: st.talk, mode: st.mode, await: st.await, up: st.talk[0].Bytes > st.talk[1].Bytes}
		n.at(simStart.Add(st.at), 0, func() {
			tr.group = groups.of(st.group)
			n.open(tr)
		})
	}
	for _, f := range sc.flows {
		n.at(simStart.Add(f.at), 0, func() {
			f.group = groups.of(f.group)
			n.openFlow(f)
		})
	}
	for _, f := range sc.freezes {
		n.at(simStart.Add(f.at), nobody, func() { n.freeze(f.end, f.lasts) })
	}
	return n
}

// String describes a scenario to people.
func (sc *scenario) String() string {
	var w strings.Builder
	fmt.Fprintf(&w, "scheduler %s, η %.2g, meta buffer %v, buffers %v, guide %v\n", sc.scheduler, sc.eta, sc.meta,
		sc.buffered, sc.guide)
	for i := range sc.subflows {
		p := &sc.subflows[i]
		fmt.Fprintf(&w, "subflow %d: joins at %v, leaves at %v, drain %v, helper's buffer %v, relay %v\n", i+1, p.join,
			p.leave, p.drain, p.buffer, p.relay)
		for _, h := range p.hops {
			fmt.Fprintf(&w, "  hop: %v, delay %v, window %v", h.rate, h.delay, h.window)
			if h.loss > 0 {
				fmt.Fprintf(&w, ", loss %.1f %%, again after %v", h.loss*100, h.wait)
			}
			fmt.Fprintln(&w)
			for _, f := range h.faults {
				fmt.Fprintf(&w, "    at %v: %v for %v, directions %v, then %v, delay %v (0: as before); forever %v\n", f.at,
					f.rate, f.lasts, f.dirs, f.after, f.delay, f.forever)
			}
		}
	}
	for i, st := range sc.streams {
		fmt.Fprintf(&w, "stream %d: at %v, mode %v, group %d, awaits %d, opener %+v, acceptor %+v\n", i+1, st.at, st.mode,
			st.group, st.await, st.talk[0], st.talk[1])
	}
	for _, p := range sc.plans {
		fmt.Fprintf(&w, "plan: %+v\n", p)
	}
	for _, t := range sc.classChanges {
		fmt.Fprintf(&w, "class change: %+v\n", t)
	}
	for i, f := range sc.flows {
		fmt.Fprintf(&w, "flow %d: %+v\n", i+1, f)
	}
	if sc.lag != [2]time.Duration{} {
		fmt.Fprintf(&w, "writers begin %v after a segment was given\n", sc.lag)
	}
	for _, f := range sc.freezes {
		fmt.Fprintf(&w, "%s frozen at %v for %v\n", endNames[f.end], f.at, f.lasts)
	}
	return w.String()
}
