package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// path is a subflow as the bond knows it.
type path struct {
	id   wire.PathID
	est  estimate.Path
	idle bool

	sent     uint64     // bytes of frames given to the subflow
	received uint64     // bytes of whole frames received on it
	given    unit.Bytes // stream bytes given to it
	flight   flight
	// unbegun is the size of the segment that its writer has not begun, if that
	// holds stream bytes only, else 0; withdrawn tells that it was taken back.
	unbegun   unit.Bytes
	withdrawn bool

	progress    time.Time // of data acknowledgements, or when something was first in flight
	hopProgress time.Time // of the sending hop's own acknowledgements
	silentAt    time.Time // since when it is silent; zero if it is not
	stuckAt     time.Time // the same, also while no other path is alive to take over
	asked       time.Time // when a sign of life was last asked for
	askDue      bool

	express time.Time // until then bulk keeps the queue short
	yield   bool      // the next segment is the streams' turn

	// owes tells that frames came on it that no ACK sent on this subflow itself
	// has covered; one is due at owesDue.
	owes    bool
	owesDue time.Time
	// told is what the hop's own TCP will have had acknowledged when an ACK sent
	// at toldAt on this subflow, a direct one, has arrived; 0: none is awaited.
	told    uint64
	toldAt  time.Time
	telling bool // the segment that is being filled has that ACK

	traced   time.Time // when its estimates were last traced
	lastData time.Time // arrival of the last new stream byte or datagram
	carried  time.Time // when anything was last sent or received
	sentAt   time.Time // when anything was last sent
	relay    wire.PipeState
	relayAt  time.Time // when relay came; zero if there is none to be passed on

	copies []copyOf // what other subflows carry and this one has yet to
}

// settle takes what was sent for received while nothing in flight asks for an
// acknowledgement: else ACKs and reports, which nobody acknowledges, would in
// time look like a queue that never drains.
func (p *path) settle(at time.Time) {
	if p.flight.len() == 0 {
		p.est.Settle(at)
	}
}

func (p *path) silent() bool { return !p.silentAt.IsZero() }

// view is the path as a scheduler sees it.
func (p *path) view(n estimate.Numbers, now time.Time) sched.Path {
	h := p.est.Hop()
	doubtful := h.Queue > 0 && now.Sub(p.hopProgress) > hopSilence(h)/2
	return sched.Path{ID: p.id, Idle: p.idle, Doubtful: doubtful, PAD: n.PAD, PastPAD: n.PastPAD, Wait: n.FarWait, SRTT: h.SRTT, MinRTT: 2 * n.OWD, Th: n.Th,
		Helped: p.est.Helped, Confirm: n.Confirm, Late: n.Late > 0, Acked: n.Acked, RTTVar: h.RTTVar, MSS: max(h.MSS, minSegment), Given: p.given, InFlight: p.est.Outstanding(),
		Cwnd: h.Cwnd, Flight: h.Queue - h.Unsent, FarCwnd: n.FarCwnd, FarFlight: n.FarFlight}
}

// pick asks the scheduler about stream s, which is ready.
func (b *Bond) pick(s *Stream, now time.Time, view []sched.Path) sched.Decision {
	if s.mode == wire.Redundant {
		return sched.Redundant.Pick(view, b.pending)
	}
	if w, ok := b.cfg.Scheduler.(sched.WindowAware); ok {
		w.SendWindow(sched.Window{Size: unit.Bytes(s.outLimit - s.outBase), Blocked: b.blocked, AtHand: s.atHand() && !b.urgentBeside(now)}, now)
	}
	return b.cfg.Scheduler.Pick(view, b.contended(s))
}

// sentFrame is one reliable frame in flight.
type sentFrame struct {
	end      uint64 // the subflow's byte count after it
	t        wire.Type
	again    bool // was given back to be sent on another subflow
	late     bool // because it would come too late by its own
	copied   bool // other subflows carry the same bytes, or are to
	repeated bool // a control frame that is there because another subflow was late with it
	s        *Stream
	from, to wire.DataSeq // TypeData; of TypeTreat both are the serial
}

// flight is a first-in-first-out queue of frames.
type flight struct {
	q     []sentFrame
	head  int
	fresh int // frames that could be recalled
	late  int // frames that others were given besides, since these would come too late
}

// recallable reports whether the frame may be given to another subflow though
// its own is alive: bytes, and the end of a stream, once.
func (s *sentFrame) recallable() bool {
	return !s.again && !s.copied && (s.t == wire.TypeData || s.t == wire.TypeFin)
}

// wanted reports whether the frame is recallable and the far end waits for it.
func (s *sentFrame) wanted() bool {
	return s.recallable() && (s.s == nil || s.from < s.s.awaited())
}

// newest is the subflow's byte count after the newest frame that is wanted, if
// there is any.
func (f *flight) newest() (end uint64, some bool) {
	if f.fresh == 0 {
		return 0, false
	}
	for i := len(f.q) - 1; i >= f.head; i-- {
		if f.q[i].wanted() {
			return f.q[i].end, true
		}
	}
	return 0, false
}

func (f *flight) push(s sentFrame) {
	if s.recallable() {
		f.fresh++
	}
	f.q = append(f.q, s)
}

// recall marks a frame of the queue as given back.
func (f *flight) recall(s *sentFrame) {
	if s.recallable() {
		f.fresh--
	}
	s.again = true
}

func (f *flight) len() int         { return len(f.q) - f.head }
func (f *flight) all() []sentFrame { return f.q[f.head:] }
func (f *flight) pop() (s sentFrame) {
	s = f.q[f.head]
	if s.recallable() {
		f.fresh--
	}
	if s.late {
		f.late--
	}
	f.q[f.head].s = nil
	f.head++
	if f.head > 64 && f.head*2 > len(f.q) {
		n := copy(f.q, f.q[f.head:])
		clear(f.q[n:])
		f.q, f.head = f.q[:n], 0
	}
	return s
}

// PathInfo describes a path for status output.
type PathInfo struct {
	ID             wire.PathID
	Helped, Silent bool
	StuckFor       time.Duration // silent, or the last path and without progress
	LastData       time.Time     // arrival of the last new stream byte or datagram; zero: none yet
	Sent, Received uint64        // bytes of frames
	InFlight       unit.Bytes    // sent and not acknowledged
	estimate.Numbers
}

// Paths appends a description of every path to list.
func (b *Bond) Paths(list []PathInfo, now time.Time) []PathInfo {
	for _, p := range b.paths {
		i := PathInfo{ID: p.id, Helped: p.est.Helped, Silent: p.silent(), Sent: p.sent, Received: p.received,
			LastData: p.lastData, Numbers: p.est.At(now)}
		if p.flight.len() > 0 {
			i.InFlight = p.est.Outstanding()
		}
		if !p.stuckAt.IsZero() {
			i.StuckFor = now.Sub(p.stuckAt)
		}
		list = append(list, i)
	}
	return list
}

// Carried counts the bytes of frames that a path has received and sent.
func (b *Bond) Carried(id wire.PathID) (received, sent uint64) {
	if p := b.path(id); p != nil {
		return p.received, p.sent
	}
	return 0, 0
}
