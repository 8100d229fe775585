// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/event"
	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// A network in virtual time: two ends of a bond, and subflows of one or two
// hops between them, each an ideal reliable link with a rate, a delay and a
// window. A full download of seconds takes milliseconds.
//
//	opener ══ direct: one hop ══════════════════ acceptor
//	       ══ helped: pipe ═ ring ═ HS-path ════
//
//	sim_test.go       events, ends, what an end does after an event
//	hop_test.go       hops and subflows
//	app_test.go       the apps at both ends of a stream
//	datagram_test.go  the apps at both ends of a datagram flow
//	oracle_test.go    what must be true all the time
//	diagram_test.go   what happened, for people
//	scenario_test.go  random networks and transfers

// simEvent is something that happens at a time. If end is 0 or 1, that end's
// process handles it: later, if it is frozen then.
type simEvent struct {
	end int
	f   func()
}

// Handlers of an event other than ends 0 and 1.
const (
	everybody = -1 // it may concern both
	nobody    = -2 // the network alone
)

type simNet struct {
	t        testing.TB // nil: a failure is a panic with a simFailure
	now      time.Time
	queue    event.Queue[simEvent] // by the time since simStart
	events   int
	most     int // events, after which the run is broken off; 0: none
	atOnce   int // events since time last passed
	crowd    int // the most of these
	ends     [2]*Bond
	subflows []*simSubflow
	dirty    [2]bool // something happened that this end has not looked at
	frozen   [2]time.Time
	missed   [2][]simEvent // of a frozen end, in the order in which they came
	tickAt   [2]time.Time  // when the end's timer rings; zero: not set
	probed   [2]time.Time
	limit    time.Time

	transfers []*transfer // by stream number, from 1
	woken     [2][]*simApp
	foreign   wire.StreamID  // a stream that a test serves itself
	onEnd     [2]func(*Bond) // called after each event of an end
	over      int            // transfers that have ended at both ends
	flows     []*simFlow     // by flow number, from 1

	granted  [2][]wire.DataSeq // to end d, by stream ID: the window it has received
	checks   int
	diagram  *diagram
	sabotage func(d int) // breaks an end on purpose, after each of its events
	doctor   func(d int, seg []byte) []byte
	spare    [][]byte

	lag       [2]time.Duration // how long an end's writers take to begin with a segment
	blind     bool             // no samples of local hops
	withdrawn int              // segments taken back meanwhile
	disobeys  bool             // writers write what was taken back
	text      []byte           // of fillPattern
	scratch   [64 << 10]byte   // of readers
}

// simFailure is the panic value of a failed run without a testing.TB.
type simFailure struct {
	text  string
	about focus
}

var simStart = time.Unix(1e9, 0)

func newSim(t testing.TB, scheduler string, eta float64) *simNet {
	n := newNet(t, scheduler, Config{Eta: eta})
	n.diagram = &diagram{}
	n.limit = n.now.Add(10 * time.Minute)
	// Time passes also when nothing happens.
	var beat func()
	beat = func() { n.at(n.now.Add(10*time.Millisecond), nobody, beat) }
	beat()
	return n
}

func newNet(t testing.TB, scheduler string, cfg Config) *simNet {
	n := &simNet{t: t, now: simStart, transfers: []*transfer{nil}, flows: []*simFlow{nil}}
	for i := range n.ends {
		s, err := sched.New(scheduler)
		if err != nil {
			n.fatal("%v", err)
		}
		cfg.OpensStreams, cfg.Scheduler = i == 0, s
		n.ends[i] = New(cfg)
	}
	return n
}

// after lets something happen that may concern both ends.
func (n *simNet) after(d time.Duration, f func()) { n.at(n.now.Add(d), everybody, f) }

// at lets something happen; what lies beyond the end of the test is left out.
func (n *simNet) at(t time.Time, end int, f func()) {
	if t.After(n.limit) {
		return
	}
	if t.Before(n.now) {
		t = n.now
	}
	n.queue.Push(t.Sub(simStart), simEvent{end, f})
}

func (n *simNet) fatal(format string, args ...any) { n.fail(focus{}, format, args...) }

// fail ends the run; about says which bytes it is about.
func (n *simNet) fail(about focus, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if n.t == nil {
		panic(simFailure{text, about})
	}
	n.t.Helper()
	if n.diagram != nil {
		n.t.Log(n.diagram.draw(about))
	}
	n.t.Fatal(text)
}

// run works events off until done; not to be done by the limit is a failure.
func (n *simNet) run(done func() bool) {
	if n.t != nil {
		n.t.Helper()
	}
	n.dirty = [2]bool{true, true}
	n.dispatch()
	for !done() {
		if !n.step() {
			n.fatal("at %v nothing is left to happen before %v, and not done%s", n.now.Sub(simStart), n.limit.Sub(simStart),
				n.unfinished())
		}
	}
}

// Bounds of a run: more events, or more of them at one moment, mean that it does
// not get on. Seeds that are fine stay under a fourth of either.
const (
	maxEvents = 10e6
	maxAtOnce = 20_000
)

// brokenOff is the panic value of a run that exceeds its number of events.
type brokenOff struct{}

// step works one event off, if there is any.
func (n *simNet) step() bool {
	if n.queue.Len() == 0 {
		return false
	}
	since, e := n.queue.Pop()
	if n.atOnce++; simStart.Add(since).After(n.now) {
		n.now, n.crowd, n.atOnce = simStart.Add(since), max(n.crowd, n.atOnce), 0
	}
	if e.end >= 0 && n.now.Before(n.frozen[e.end]) {
		if n.missed[e.end] = append(n.missed[e.end], e); len(n.missed[e.end]) == 1 {
			n.at(n.frozen[e.end], nobody, func() { n.thaw(e.end) })
		}
		return true
	}
	n.handle(e)
	return true
}

// thaw handles the events that an end has missed, unless it was frozen again.
func (n *simNet) thaw(d int) {
	if n.now.Before(n.frozen[d]) {
		n.at(n.frozen[d], nobody, func() { n.thaw(d) })
		return
	}
	missed := n.missed[d]
	n.missed[d] = nil
	for _, e := range missed {
		n.handle(e)
	}
}

// handle lets an end handle an event.
func (n *simNet) handle(e simEvent) {
	switch n.events++; {
	case n.most > 0 && n.events > n.most:
		panic(brokenOff{})
	case n.events > maxEvents:
		n.fatal("more than %d events%s", n.events, n.unfinished())
	case n.atOnce > maxAtOnce:
		n.fatal("%d events at one moment: time does not pass%s", n.atOnce, n.unfinished())
	}
	e.f()
	if e.end != nobody {
		if e.end == everybody {
			n.dirty = [2]bool{true, true}
		} else {
			n.dirty[e.end] = true
		}
		n.dispatch()
	}
}

func (n *simNet) dispatch() {
	for d := range n.ends {
		if !n.dirty[d] {
			continue
		}
		if n.now.Before(n.frozen[d]) {
			n.at(n.frozen[d], d, func() {})
			n.dirty[d] = false
			continue
		}
		n.dirty[d] = false
		n.runEnd(d)
	}
}

// runEnd does an end's work of package endpoint after an event: it accepts streams, takes segments,
// notifies apps of changes, and sets the timer.
func (n *simNet) runEnd(d int) {
	b := n.ends[d]
	if n.sabotage != nil {
		n.sabotage(d)
	}
	for {
		for s := b.AcceptStream(); s != nil; s = b.AcceptStream() {
			n.accept(s)
		}
		if n.onEnd[d] != nil {
			n.onEnd[d](b)
		}
		if len(n.flows) > 1 {
			for f := b.AcceptFlow(); f != nil; f = b.AcceptFlow() {
				n.acceptFlow(f)
			}
			for f := b.NextChangedFlow(); f != nil; f = b.NextChangedFlow() {
				f.User.(*simFlow).receive(d)
			}
		}
		n.checkProbe(d, time.Millisecond)
		for {
			var buf []byte
			if k := len(n.spare); k > 0 {
				buf, n.spare = n.spare[k-1][:0], n.spare[:k-1]
			}
			id, seg := b.NextSegment(n.now, buf)
			if id == 0 {
				n.recycleSegment(seg)
				break
			}
			p := n.findSubflow(id)
			if p == nil || p.at[d] != joined {
				n.fatal("a segment for subflow %d, which end %d does not have", id, d)
			}
			if n.lag[d] > 0 {
				p.holds[d] = true
				n.at(n.now.Add(n.lag[d]), d, func() { n.beginSegment(p, d, seg) })
			} else {
				n.beginSegment(p, d, seg)
			}
		}
		for s := b.NextChangedStream(); s != nil; s = b.NextChangedStream() {
			if a, ok := s.User.(*simApp); ok {
				a.wake()
			}
		}
		if len(n.woken[d]) == 0 {
			break
		}
		for len(n.woken[d]) > 0 {
			a := n.woken[d][0]
			n.woken[d] = n.woken[d][:copy(n.woken[d], n.woken[d][1:])]
			a.awake = false
			a.run()
		}
	}
	n.checkEnd(d)
	if at := b.NextTick(); !at.IsZero() && (n.tickAt[d].IsZero() || at.Before(n.tickAt[d])) {
		n.tickAt[d] = at
		n.at(at, d, func() {
			if n.tickAt[d].Equal(at) {
				n.tickAt[d] = time.Time{}
			}
			if next := b.NextTick(); !next.IsZero() && !next.After(n.now) {
				n.checkProbe(d, 0)
				b.Tick(n.now)
			}
		})
	}
}

// beginSegment is the moment at which a subflow's writer has got hold of a segment.
func (n *simNet) beginSegment(p *simSubflow, d int, seg []byte) {
	p.holds[d] = false
	if p.at[d] != joined {
		return
	}
	if n.ends[d].BeginSegment(p.id) || n.disobeys {
		n.inspect(p, d, seg)
		n.write(p, d, seg)
		return
	}
	n.withdrawn++
	n.writable(p, d)
}

func (n *simNet) recycleSegment(seg []byte) {
	if cap(seg) > 0 {
		n.spare = append(n.spare, seg)
	}
}

// checkProbe takes samples of the hops at an end, unless they are young enough.
func (n *simNet) checkProbe(d int, age time.Duration) {
	if age > 0 && n.now.Sub(n.probed[d]) < age {
		return
	}
	n.probed[d] = n.now
	for _, p := range n.subflows {
		if p.at[d] == joined {
			n.sampleHop(p, d)
		}
	}
}

func (n *simNet) sampleHop(p *simSubflow, d int) {
	if n.blind {
		n.ends[d].ObserveLocalHop(p.id, n.now, estimate.Hop{Blind: true})
		return
	}
	h := p.hops[d][0]
	q := unit.Bytes(h.written - h.acked)
	limit := unit.Rate(0)
	if r := h.rate(n.now); h.knownRates && h.nowStep > 0 {
		limit = r
	}
	n.ends[d].ObserveLocalHop(p.id, n.now, estimate.Hop{SRTT: h.srtt(n.now, q), MinRTT: h.roundTrip(n.now),
		Rate:        h.rate(n.now),
		PacingLimit: limit, AppLimited: q == 0, Cwnd: h.window, MSS: 1448, Queue: q, Unsent: max(0, q-h.window),
		Acked: h.acked})
}

func (n *simNet) findSubflow(id wire.SubflowID) *simSubflow {
	for _, p := range n.subflows {
		if p.id == id {
			return p
		}
	}
	return nil
}

// freeze stops the process of an end for a time: it handles no event.
func (n *simNet) freeze(d int, lasts time.Duration) {
	n.addEntry(entry{end: d, text: fmt.Sprintf("frozen for %v", lasts)})
	if until := n.now.Add(lasts); n.frozen[d].Before(until) {
		n.frozen[d] = until
	}
}

// newHopPair makes the two directions of a hop alike.
func (n *simNet) newHopPair(rate unit.Rate, oneWay time.Duration) *[2]*simHop {
	return &[2]*simHop{n.hop(rate, oneWay), n.hop(rate, oneWay)}
}

// addTriangle joins a direct subflow and helped ones as in the published setup:
// rates PS, HS, pipe, HS, pipe…; round trips about 50, 70 and 5 ms.
func (n *simNet) addTriangle(ps unit.Rate, helpers ...unit.Rate) {
	n.addSubflow(1, n.newHopPair(ps, 25*time.Millisecond), nil)
	for i := 0; i < len(helpers); i += 2 {
		pipe := n.newHopPair(helpers[i+1], 2500*time.Microsecond)
		n.addSubflow(wire.SubflowID(2+i/2), n.newHopPair(helpers[i], 35*time.Millisecond), pipe)
	}
}

// eachFrame calls f for the frames of a segment.
func eachFrame(seg []byte, f func(t wire.Type, payload []byte) error) error {
	for len(seg) > 0 {
		if len(seg) < wire.HeaderLen {
			return fmt.Errorf("a segment ends within a frame")
		}
		size := int(seg[1])<<16 | int(seg[2])<<8 | int(seg[3])
		if size > wire.MaxPayload || len(seg) < wire.HeaderLen+size {
			return fmt.Errorf("a frame of %d bytes in a segment with %d left", size, len(seg))
		}
		if err := f(wire.Type(seg[0]), seg[wire.HeaderLen:wire.HeaderLen+size]); err != nil {
			return err
		}
		seg = seg[wire.HeaderLen+size:]
	}
	return nil
}

// The bytes of a stream: blocks of random bytes, each block begins elsewhere,
// so that any repetition, loss or reordering shows.
const patternBlock = 65521

var patternTable = func() []byte {
	r := rand.NewChaCha8([32]byte{1})
	t := make([]byte, 2*patternBlock)
	_, _ = r.Read(t[:patternBlock])
	copy(t[patternBlock:], t)
	return t
}()

// eachPatternPart calls f with what end d sends on a stream from a position on.
func eachPatternPart(s wire.StreamID, d, at, size int, f func(part []byte)) {
	for size > 0 {
		block, off := at/patternBlock, at%patternBlock
		begin := (uint64(s)*0x9e3779b97f4a7c15 + uint64(block)*0xbf58476d1ce4e5b9 +
			uint64(d)*0x94d049bb133111eb) >> 20 % patternBlock
		k := min(size, patternBlock-off)
		part := patternTable[begin:][off:]
		if len(part) < k {
			k = len(part)
		}
		f(part[:k])
		at, size = at+k, size-k
	}
}

// fillPattern makes bytes to write.
func (n *simNet) fillPattern(s wire.StreamID, d, at, size int) []byte {
	n.text = n.text[:0]
	eachPatternPart(s, d, at, size, func(part []byte) { n.text = append(n.text, part...) })
	return n.text
}

// checkPattern fails unless got is what end d sent from that position.
func (n *simNet) checkPattern(s wire.StreamID, d, at int, got []byte) {
	eachPatternPart(s, d, at, len(got), func(part []byte) {
		if !bytes.Equal(part, got[:len(part)]) {
			i := 0
			for part[i] == got[i] {
				i++
			}
			n.fail(focus{s, d, wire.DataSeq(at + i), wire.DataSeq(at + i + 1)}, "stream %d from %s: the byte at %d is wrong",
				s, endNames[d], at+i)
		}
		at, got = at+len(part), got[len(part):]
	})
}
