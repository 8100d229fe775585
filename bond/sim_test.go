package bond

import (
	"bytes"
	"container/heap"
	"fmt"
	"io"
	"testing"
	"time"

	"mpbond/estimate"
	"mpbond/sched"
	"mpbond/unit"
	"mpbond/wire"
)

// A network in virtual time: two ends of a bond, and subflows of one or two
// hops between them, each an ideal reliable link with a rate, a delay and a
// window. A full download of seconds takes milliseconds.
//
//	opener ══ direct: one hop ══════════════════ acceptor
//	       ══ helped: pipe ═ ring ═ HS-path ════

type simEvent struct {
	at  time.Time
	seq int
	f   func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].seq < q[j].seq
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *simQueue) Pop() any {
	v := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return v
}

// simHop is one direction of one hop. A rate change is a new value of rate
// from then on; rate 0 is an outage.
type simHop struct {
	delay   time.Duration
	steps   []simStep // rising times; the first one's is the start
	freeAt  time.Time // when the last byte given to it has left
	rtt     time.Duration
	window  unit.Bytes
	written uint64
	acked   uint64
}

type simStep struct {
	at   time.Time
	rate unit.Rate
}

// departs is when size bytes that are ready at t have left the hop.
func (h *simHop) departs(t time.Time, size int) time.Time {
	if h.freeAt.After(t) {
		t = h.freeAt
	}
	bits := float64(size * 8)
	for i, s := range h.steps {
		if i+1 < len(h.steps) && !h.steps[i+1].at.After(t) {
			continue
		}
		if s.rate > 0 {
			need := time.Duration(bits / float64(s.rate) * 1e9)
			if i+1 == len(h.steps) || !t.Add(need).After(h.steps[i+1].at) {
				h.freeAt = t.Add(need)
				return h.freeAt
			}
			bits -= float64(s.rate) * h.steps[i+1].at.Sub(t).Seconds()
		}
		if i+1 == len(h.steps) {
			break
		}
		t = h.steps[i+1].at
	}
	h.freeAt = t.Add(1e6 * time.Hour) // never
	return h.freeAt
}

// srtt is the round trip with q bytes under way, measured when there was a rate.
func (h *simHop) srtt(t time.Time, q unit.Bytes) time.Duration {
	r := h.rate(t)
	for i := len(h.steps) - 1; r == 0 && i >= 0; i-- {
		if !h.steps[i].at.After(t) {
			r = h.steps[i].rate
		}
	}
	if r == 0 {
		return h.rtt
	}
	return h.rtt + r.Time(min(q, h.window))
}

func (h *simHop) rate(t time.Time) unit.Rate {
	r := unit.Rate(0)
	for _, s := range h.steps {
		if !s.at.After(t) {
			r = s.rate
		}
	}
	return r
}

// simPath is a subflow; hops[d] are those of direction d in the order a byte
// takes them (0: from the opener).
type simPath struct {
	id   wire.PathID
	hops [2][]*simHop
	dead bool
}

type simNet struct {
	t     testing.TB
	now   time.Time
	queue simQueue
	seq   int
	ends  [2]*Bond
	paths []*simPath
	onEnd [2]func(*Bond) // called after each event: reads, writes
	log   []string
	limit time.Time
	tick  [2]time.Time
}

func newSim(t testing.TB, scheduler string, eta float64) *simNet {
	n := &simNet{t: t, now: time.Unix(1e9, 0)}
	for i := range n.ends {
		s, err := sched.New(scheduler)
		if err != nil {
			t.Fatal(err)
		}
		n.ends[i] = New(Config{Opens: i == 0, Scheduler: s, Eta: eta})
	}
	n.limit = n.now.Add(10 * time.Minute)
	return n
}

func (n *simNet) after(d time.Duration, f func()) {
	n.seq++
	heap.Push(&n.queue, simEvent{n.now.Add(d), n.seq, f})
}

func (n *simNet) logf(format string, args ...any) {
	if len(n.log) < 4000 {
		n.log = append(n.log, fmt.Sprintf("%9.3fs ", n.now.Sub(time.Unix(1e9, 0)).Seconds())+fmt.Sprintf(format, args...))
	}
}

// hop makes one direction of a hop with a queue of 1.5 delay-bandwidth
// products or 64 KB.
func (n *simNet) hop(rate unit.Rate, oneWay time.Duration) *simHop {
	return &simHop{delay: oneWay, rtt: 2 * oneWay, steps: []simStep{{n.now, rate}}, freeAt: n.now,
		window: max(64*unit.KB, rate.Bytes(3*oneWay))}
}

// addPath joins a subflow at both ends; rates and delays in the order PS or
// HS, pipe.
func (n *simNet) addPath(id wire.PathID, far, pipe *[2]*simHop) *simPath {
	p := &simPath{id: id}
	for d := range 2 {
		p.hops[d] = []*simHop{far[d]}
		if pipe != nil {
			p.hops[d] = []*simHop{far[d], pipe[d]}
			if d == 0 {
				p.hops[d] = []*simHop{pipe[d], far[d]}
			}
		}
	}
	n.paths = append(n.paths, p)
	n.logf("path %d joins", id)
	for d := range 2 {
		n.ends[d].AddPath(id, pipe != nil, n.now)
		n.ends[d].Idle(id)
		n.sample(p, d)
		if pipe != nil {
			n.report(p, d)
		}
	}
	return p
}

// kill ends a subflow; the other end learns of it after a moment.
func (n *simNet) kill(p *simPath) {
	if p.dead {
		return
	}
	p.dead = true
	n.logf("path %d dies", p.id)
	n.ends[0].RemovePath(p.id, n.now)
	n.after(30*time.Millisecond, func() { n.ends[1].RemovePath(p.id, n.now) })
}

func (n *simNet) sample(p *simPath, d int) {
	h := p.hops[d][0]
	q := unit.Bytes(h.written - h.acked)
	n.ends[d].Local(p.id, n.now, estimate.Hop{SRTT: h.srtt(n.now, q), MinRTT: h.rtt, Rate: h.rate(n.now),
		AppLimited: q == 0, Cwnd: h.window, MSS: 1448, Queue: q, Unsent: max(0, q-h.window), Acked: h.acked})
}

// report carries a helper's state to the sender of direction d every 20 ms.
func (n *simNet) report(p *simPath, d int) {
	if p.dead {
		return
	}
	far := p.hops[d][1]
	s := wire.HopState{Received: far.written, Forwarded: far.acked, Rate: far.rate(n.now), RTT: far.rtt, AppLimited: far.written == far.acked}
	n.after(p.hops[d][0].delay, func() { n.ends[d].Remote(p.id, s) })
	n.after(20*time.Millisecond, func() { n.report(p, d) })
}

// write gives a segment to a subflow of end d.
func (n *simNet) write(p *simPath, d int, seg []byte) {
	h := p.hops[d][0]
	h.written += uint64(len(seg))
	left := h.departs(n.now, len(seg))
	n.at(left.Add(h.delay), func() { n.arrive(p, d, seg) })
	n.at(left.Add(h.rtt), func() { h.acked += uint64(len(seg)); n.writable(p, d) })
	n.after(0, func() { n.writable(p, d) })
}

// at is after in absolute time; what lies beyond the end of the test is left out.
func (n *simNet) at(t time.Time, f func()) {
	if t.Before(n.limit) {
		n.after(t.Sub(n.now), f)
	}
}

func (n *simNet) writable(p *simPath, d int) {
	h := p.hops[d][0]
	if !p.dead && unit.Bytes(h.written-h.acked) < h.window+16*unit.KB {
		n.ends[d].Idle(p.id)
	}
}

// arrive takes a segment at the end of its first hop.
func (n *simNet) arrive(p *simPath, d int, seg []byte) {
	if p.dead {
		return
	}
	if len(p.hops[d]) == 1 {
		n.deliver(p, d, seg)
		return
	}
	h := p.hops[d][1]
	h.written += uint64(len(seg))
	left := h.departs(n.now, len(seg))
	n.at(left.Add(h.delay), func() { n.deliver(p, d, seg) })
	n.at(left.Add(h.rtt), func() { h.acked += uint64(len(seg)) })
}

func (n *simNet) deliver(p *simPath, d int, seg []byte) {
	if p.dead {
		return
	}
	r := wire.NewReader(bytes.NewReader(seg))
	for {
		t, payload, err := r.Next()
		if err == io.EOF {
			return
		}
		if err == nil {
			err = n.ends[1-d].Receive(p.id, t, payload, n.now)
		}
		if err != nil {
			n.fatal("path %d: %v", p.id, err)
		}
	}
}

func (n *simNet) fatal(format string, args ...any) {
	n.t.Helper()
	n.t.Logf("events:\n%s", n.log)
	n.t.Fatalf(format, args...)
}

// run works events off until done or the limit.
func (n *simNet) run(done func() bool) {
	n.t.Helper()
	for !done() {
		n.dispatch()
		if done() {
			return
		}
		if len(n.queue) == 0 {
			n.fatal("nothing left to happen, and not done")
		}
		e := heap.Pop(&n.queue).(simEvent)
		if e.at.After(n.limit) {
			n.fatal("not done in time")
		}
		n.now = e.at
		e.f()
	}
}

func (n *simNet) dispatch() {
	for d, b := range n.ends {
		if n.onEnd[d] != nil {
			n.onEnd[d](b)
		}
		for {
			for _, p := range n.paths {
				if !p.dead {
					n.sample(p, d)
				}
			}
			id, seg := b.Next(n.now, nil)
			if id == 0 {
				break
			}
			for _, p := range n.paths {
				if p.id == id && !p.dead {
					n.write(p, d, seg)
				}
			}
		}
		if at := b.NextTick(); !at.IsZero() && !at.Equal(n.tick[d]) {
			n.tick[d] = at
			n.after(max(0, at.Sub(n.now)), func() {
				if n.tick[d].Equal(at) {
					n.tick[d] = time.Time{}
				}
				if next := b.NextTick(); !next.IsZero() && !next.After(n.now) {
					b.Tick(n.now)
				}
			})
		}
	}
}

// pattern is the byte at a position of a stream: any repetition, loss or
// reordering shows.
func pattern(s wire.StreamID, at uint64) byte {
	x := (at+uint64(s)*0x9e3779b97f4a7c15)*0xbf58476d1ce4e5b9 + uint64(s)
	return byte(x >> 56)
}

// transfer is one stream of the test: size bytes from one end to the other.
type transfer struct {
	size    int
	up      bool
	s       [2]*Stream
	written int
	read    int
	done    time.Time
	paused  bool // the reader does not read
}

// carry makes the ends write and read the transfers. The direction that
// carries nothing is closed at once.
func (n *simNet) carry(list []*transfer) (done func() bool) {
	buf := make([]byte, 64<<10)
	finished := 0
	for _, tr := range list {
		s, err := n.ends[0].Open(fmt.Sprintf("host:%d", tr.size))
		if err != nil {
			n.fatal("open: %v", err)
		}
		tr.s[0] = s
	}
	step := func(tr *transfer) {
		from, to := 1, 0
		if tr.up {
			from, to = 0, 1
		}
		if src := tr.s[from]; src != nil && tr.written <= tr.size {
			for tr.written < tr.size {
				k := min(len(buf), tr.size-tr.written, src.Room())
				if k == 0 {
					break
				}
				for i := range k {
					buf[i] = pattern(src.ID(), uint64(tr.written+i))
				}
				if got := src.Write(buf[:k]); got != k {
					n.fatal("wrote %d of %d though there was room", got, k)
				}
				tr.written += k
			}
			if tr.written == tr.size {
				src.CloseWrite()
				tr.written++
			}
		}
		if dst := tr.s[to]; dst != nil && tr.done.IsZero() && !tr.paused {
			dst.CloseWrite()
			for {
				k, err := dst.Read(buf)
				for i := range k {
					if buf[i] != pattern(dst.ID(), uint64(tr.read+i)) {
						n.fatal("stream %d: wrong byte at %d", dst.ID(), tr.read+i)
					}
				}
				tr.read += k
				if err == io.EOF {
					if tr.read != tr.size {
						n.fatal("stream %d ends at %d of %d", dst.ID(), tr.read, tr.size)
					}
					tr.done = n.now
					finished++
				} else if err != nil {
					n.fatal("stream %d: %v", dst.ID(), err)
				}
				if k == 0 {
					break
				}
			}
		}
		// The idle direction's end must be read too for the stream to finish.
		if src := tr.s[from]; src != nil {
			src.Read(nil)
		}
	}
	n.onEnd[0] = func(*Bond) {
		for _, tr := range list {
			step(tr)
		}
	}
	n.onEnd[1] = func(b *Bond) {
		for s := b.Accept(); s != nil; s = b.Accept() {
			for _, tr := range list {
				if tr.s[0].ID() == s.ID() {
					tr.s[1] = s
				}
			}
		}
		for _, tr := range list {
			step(tr)
		}
		for range 1000 {
			if b.Changed() == nil {
				break
			}
		}
	}
	return func() bool { return finished == len(list) }
}

// both makes the two directions of a hop alike.
func (n *simNet) both(rate unit.Rate, oneWay time.Duration) *[2]*simHop {
	return &[2]*simHop{n.hop(rate, oneWay), n.hop(rate, oneWay)}
}

// house joins a direct subflow and helped ones as in the published setup:
// rates PS, HS, pipe, HS, pipe…; round trips about 50, 70 and 5 ms.
func (n *simNet) house(ps unit.Rate, helpers ...unit.Rate) {
	n.addPath(1, n.both(ps, 25*time.Millisecond), nil)
	for i := 0; i < len(helpers); i += 2 {
		pipe := n.both(helpers[i+1], 2500*time.Microsecond)
		n.addPath(wire.PathID(2+i/2), n.both(helpers[i], 35*time.Millisecond), pipe)
	}
}
