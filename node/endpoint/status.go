package endpoint

import (
	"cmp"
	"math"
	"net"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// rates keeps what a lane had carried at times about a tenth of a second
// apart, for a second. Guarded by Endpoint.mu.
type rates struct {
	list [11]struct {
		at     time.Time
		rx, tx uint64
	}
	n int
}

func (r *rates) note(now time.Time, rx, tx uint64) {
	if r.n > 0 && now.Sub(r.list[(r.n-1)%len(r.list)].at) < 100*time.Millisecond {
		return
	}
	e := &r.list[r.n%len(r.list)]
	e.at, e.rx, e.tx = now, rx, tx
	r.n++
}

// last is the rate over the last second.
func (r *rates) last(now time.Time, rx, tx uint64) (in, out unit.Rate) {
	for i := max(0, r.n-len(r.list)); i < r.n; i++ {
		e := &r.list[i%len(r.list)]
		if age := now.Sub(e.at); age <= 1100*time.Millisecond && age >= 50*time.Millisecond {
			return unit.RateOf(unit.Bytes(rx-e.rx), age), unit.RateOf(unit.Bytes(tx-e.tx), age)
		}
	}
	return 0, 0
}

// steadyTime is how long a subflow must have carried bytes without a pause for
// its rate to say something about the network.
const steadyTime = 300 * time.Millisecond

// steady is the rate of the longest time, of the last second, in which every
// tenth of it had bytes; 0 if that is less than steadyTime.
func (r *rates) steady(now time.Time, of func(i int) uint64) unit.Rate {
	var best, span time.Duration
	var rate unit.Rate
	start := -1
	for i := max(0, r.n-len(r.list)); i+1 < r.n; i++ {
		a, b := r.list[i%len(r.list)].at, r.list[(i+1)%len(r.list)].at
		if now.Sub(a) > 1500*time.Millisecond || b.Sub(a) > 200*time.Millisecond || of(i+1)-of(i) < 2000 {
			start = -1
			continue
		}
		if start < 0 {
			start = i
		}
		span = b.Sub(r.list[start%len(r.list)].at)
		if span > best {
			best, rate = span, unit.RateOf(unit.Bytes(of(i+1)-of(start)), span)
		}
	}
	if best < steadyTime {
		return 0
	}
	return rate
}

// Steady is what a subflow has carried without a pause.
type Steady struct {
	Device string
	Rx, Tx unit.Rate     // 0: it has not
	RTT    time.Duration // end to end
}

// Steady lists the subflows that have carried bytes without a pause lately.
func (e *Endpoint) Steady() (list []Steady) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for _, l := range e.lanes {
		r := &l.rates
		s := Steady{Device: l.device,
			Rx: r.steady(now, func(i int) uint64 { return r.list[i%len(r.list)].rx }),
			Tx: r.steady(now, func(i int) uint64 { return r.list[i%len(r.list)].tx })}
		if s.Rx == 0 && s.Tx == 0 {
			continue
		}
		if s.RTT = l.sf.RTT; !l.sf.Helped {
			if h, err := l.sf.Probe(); err == nil {
				s.RTT = h.MinRTT
			}
		}
		list = append(list, s)
	}
	return list
}

// DirectFlow is what a direct subflow has moved so far: bytes that this end has received
// in order, and that it has sent at least once.
type DirectFlow struct {
	Local  net.Addr
	Rx, Tx uint64
}

// DirectFlows returns what the direct subflows have moved so far, by number.
func (e *Endpoint) DirectFlows() map[wire.PathID]DirectFlow {
	e.mu.Lock()
	defer e.mu.Unlock()
	flows := map[wire.PathID]DirectFlow{}
	for id, l := range e.lanes {
		if l.sf.Helped {
			continue
		}
		if h, err := l.sf.Probe(); err == nil {
			flows[id] = DirectFlow{Local: l.sf.LocalAddr(), Rx: h.Received, Tx: h.Acked + uint64(max(h.Queue-h.Unsent, 0))}
		}
	}
	return flows
}

// HelpedFlow is what a helped subflow has carried so far, to this end and from it,
// and the radio of its helper.
type HelpedFlow struct {
	Radio  wire.Radio
	Rx, Tx unit.Bytes
}

// HelpedFlows tells what the helped subflows have carried, by number.
func (e *Endpoint) HelpedFlows() map[wire.PathID]HelpedFlow {
	e.mu.Lock()
	defer e.mu.Unlock()
	flows := map[wire.PathID]HelpedFlow{}
	for id, l := range e.lanes {
		if l.sf.Helped {
			rx, tx := e.b.Carried(id)
			flows[id] = HelpedFlow{l.sf.Terms.Radio, unit.Bytes(rx), unit.Bytes(tx)}
		}
	}
	return flows
}

// SilentPaths lists subflows that have been silent for longer than d, the last
// one that is left included.
func (e *Endpoint) SilentPaths(d time.Duration) (ids []wire.PathID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for _, p := range e.b.Paths(nil, now) {
		if p.StuckFor > d {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// Status is the state of a bond at one moment. It shares nothing with the endpoint.
type Status struct {
	Scheduler string
	bond.Stats
	Streams, Flows int        // open now
	MetaBytes      unit.Bytes // in the meta buffers
	ReorderBytes   unit.Bytes // received, waiting for earlier bytes
	Subflows       []Subflow  // by rising number
	// Decisions, StreamList and FlowList are set only if asked for. The lists hold at
	// most maxFlowList each.
	Decisions  []bond.Decision
	StreamList []Stream
	FlowList   []Flow
}

// Subflow is the state of a subflow.
type Subflow struct {
	bond.PathInfo
	Device         string // that carries it
	Terms          wire.Terms
	Transport      string // the network of its local address
	Hop            *Hop   // nil while nothing carries it
	RxRate, TxRate unit.Rate
}

// Hop is the state of a subflow's hop that begins at this end.
type Hop struct {
	estimate.Hop
	NearRate, FarRate unit.Rate     // estimated: of this hop, and of the one behind it
	FarWait           time.Duration // that what waits at the helper takes
	RejectedReports   uint64
}

// Stream is the state of a stream. Down is towards the end that opens streams.
type Stream struct {
	bond.StreamInfo
	Owner              Owner
	Down, Up           wire.Choice
	DownBytes, UpBytes unit.Bytes
}

// Flow is the state of a datagram flow.
type Flow struct {
	bond.FlowInfo
	Owner              Owner
	DownBytes, UpBytes unit.Bytes
}

// Status returns the state of the bond. With why it holds the last decisions too.
func (e *Endpoint) Status(why bool) Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	s := Status{Scheduler: e.b.Scheduler(), Stats: e.b.Stats(), Streams: e.b.Streams(), Flows: e.b.FlowCount(), ReorderBytes: e.b.Reordering()}
	_, s.MetaBytes = e.b.Buffers()
	for _, p := range e.b.Paths(nil, now) {
		l := e.lanes[p.ID]
		if l == nil {
			continue
		}
		sub := Subflow{PathInfo: p, Device: l.device, Terms: l.sf.Terms, Transport: l.sf.LocalAddr().Network(), Hop: l.hop(p)}
		sub.RxRate, sub.TxRate = l.rates.last(now, p.Received, p.Sent)
		s.Subflows = append(s.Subflows, sub)
	}
	slices.SortFunc(s.Subflows, func(a, b Subflow) int { return cmp.Compare(a.ID, b.ID) })
	if why {
		s.Decisions, s.StreamList, s.FlowList = e.b.Decisions(), e.streams(maxFlowList), e.flows(maxFlowList)
	}
	return s
}

// hop returns the hop of a subflow that begins here, nil while nothing carries it.
func (l *lane) hop(p bond.PathInfo) *Hop {
	h, err := l.sf.Probe()
	if err != nil {
		return nil
	}
	return &Hop{h, p.Th1, p.Th2, p.FarWait, l.sf.RejectedReports()}
}

// HopOf returns the hop of a subflow that begins here, and the address at which it
// ends; nil if there is none.
func (e *Endpoint) HopOf(id wire.PathID) (*Hop, net.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.b.Paths(nil, time.Now()) {
		if l := e.lanes[id]; p.ID == id && l != nil {
			return l.hop(p), l.sf.RemoteAddr()
		}
	}
	return nil, nil
}

// StreamList returns the streams that are open, newest first.
func (e *Endpoint) StreamList() []Stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.streams(math.MaxInt)
}

// streams returns the streams that were opened last. mu must be held.
func (e *Endpoint) streams(limit int) (list []Stream) {
	for _, i := range e.b.StreamList(limit) {
		s := Stream{StreamInfo: i, Down: i.Out, Up: i.In, DownBytes: i.Sent, UpBytes: i.Received}
		if e.cfg.Bond.Opens {
			s.Down, s.Up, s.DownBytes, s.UpBytes = s.Up, s.Down, s.UpBytes, s.DownBytes
		}
		if c, ok := i.User.(*Conn); ok {
			s.Owner = c.owner.get()
		}
		list = append(list, s)
	}
	return list
}

// FlowList returns the flows, the one used last first.
func (e *Endpoint) FlowList() []Flow {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flows(math.MaxInt)
}

// flows returns the flows that were used last. mu must be held.
func (e *Endpoint) flows(limit int) (list []Flow) {
	for _, i := range e.b.Flows(limit) {
		f := Flow{FlowInfo: i, DownBytes: i.SentBytes, UpBytes: i.ReceivedBytes}
		if e.cfg.Bond.Opens {
			f.DownBytes, f.UpBytes = f.UpBytes, f.DownBytes
		}
		if c, ok := i.User.(*PacketConn); ok {
			f.Owner = c.owner.get()
		}
		list = append(list, f)
	}
	return list
}

// ResetStream resets the stream of that number at both ends, for a reason that
// the apps cannot see. It reports whether there was one.
func (e *Endpoint) ResetStream(id wire.StreamID, why string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := e.b.ResetStream(id, wire.CodeConnReset, why)
	e.after(time.Now())
	return found
}

// TreatStream has both ends treat the bytes of a stream so from now on. It is for the
// end that opens, and reports whether there is such a stream.
func (e *Endpoint) TreatStream(id wire.StreamID, mode wire.Mode, group wire.GroupID) (found bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	found = e.b.Treat(id, mode, group)
	e.after(time.Now())
	return found
}

// TreatmentOf is how the bytes of a stream are treated; ok is false if there is none.
func (e *Endpoint) TreatmentOf(id wire.StreamID) (mode wire.Mode, group wire.GroupID, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.b.TreatmentOf(id)
}

// maxFlowList bounds the streams and flows that a Status lists.
const maxFlowList = 64
