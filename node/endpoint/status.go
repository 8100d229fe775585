package endpoint

import (
	"math"
	"net"
	"sort"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/core/bond"
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

// DirectFlows tells what the direct subflows have moved so far, by number.
func (e *Endpoint) DirectFlows() map[wire.PathID]device.Flow {
	e.mu.Lock()
	defer e.mu.Unlock()
	flows := map[wire.PathID]device.Flow{}
	for id, l := range e.lanes {
		if l.sf.Helped {
			continue
		}
		if h, err := l.sf.Probe(); err == nil {
			flows[id] = device.Flow{Local: l.sf.LocalAddr(), Rx: h.Received, Tx: h.Acked + uint64(max(h.Queue-h.Unsent, 0))}
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

// Status describes the bond. With why it holds the last decisions too.
func (e *Endpoint) Status(why bool) api.Bond {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	st := e.b.Stats()
	out := api.Bond{Scheduler: e.b.Scheduler(), Streams: e.b.Streams(), StreamsTotal: int64(st.StreamsTotal),
		WastedBytes: map[string]unit.Bytes{"duplicate_received": st.Duplicate, "resent_path_lost": st.LostPath,
			"resent_silent": st.Silent, "resent_eta": st.Eta, "resent_redundant": st.Redundant}}
	out.Flows, out.FlowsTotal, out.DatagramsDropped = e.b.FlowCount(), int64(st.FlowsTotal), int64(st.DatagramsDropped)
	_, out.MetaBytes = e.b.Buffers()
	out.ReorderBytes = e.b.Reordering()
	out.Paths = []api.Path{}
	for _, p := range e.b.Paths(nil, now) {
		l := e.lanes[p.ID]
		if l == nil {
			continue
		}
		a := api.Path{ID: uint32(p.ID), Device: l.device, Kind: api.Direct, State: api.Up, RxBytes: unit.Bytes(p.Received),
			TxBytes: unit.Bytes(p.Sent), SRTTms: ms(p.SRTT), PADms: ms(p.PAD), ThroughputBps: p.Th, BacklogBytes: p.InFlight, LastData: p.LastData}
		if p.Helped {
			a.Kind = api.Helped
		}
		if t := l.sf.Terms; t.Radio != wire.RadioNone {
			a.Radio = t.Radio.String()
		}
		a.Transport = l.sf.LocalAddr().Network()
		a.Metered = l.sf.Terms.Metered
		if t := l.sf.Terms.Tier; t != wire.TierPrimary {
			a.Tier = t.String()
		}
		if p.Silent {
			a.State = api.Silent
		}
		a.Hop = l.hop(p)
		a.RxRate, a.TxRate = l.rates.last(now, p.Received, p.Sent)
		out.Paths = append(out.Paths, a)
	}
	sort.Slice(out.Paths, func(i, j int) bool { return out.Paths[i].ID < out.Paths[j].ID })
	if why {
		for _, d := range e.b.Decisions() {
			out.Decisions = append(out.Decisions, decision(d))
		}
		out.StreamList = e.streams(maxFlowList)
		out.FlowList = e.flows(maxFlowList)
	}
	return out
}

// hop describes the hop of a subflow that begins here, nil while nothing carries
// it.
func (l *lane) hop(p bond.PathInfo) *api.Hop {
	h, err := l.sf.Probe()
	if err != nil {
		return nil
	}
	hop := &api.Hop{RTTms: ms(h.SRTT), MinRTTms: ms(h.MinRTT), MTU: h.PathMTU, Packets: h.Packets, Resent: h.Resent, RateBps: p.Th1,
		FarRateBps: p.Th2, FarWaitMs: ms(p.FarWait), RejectedReports: l.sf.RejectedReports()}
	if c := h.Cells; c.State != "" {
		hop.PBE = &api.PBE{State: c.State, CapacityBps: c.Capacity, FairBps: c.Fair, Fresh: c.Fresh, Doubted: c.Doubted}
	}
	return hop
}

// HopOf is the hop of a subflow that begins here, and the address at which it
// ends; nil if there is none.
func (e *Endpoint) HopOf(id wire.PathID) (*api.Hop, net.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.b.Paths(nil, time.Now()) {
		if l := e.lanes[id]; p.ID == id && l != nil {
			return l.hop(p), l.sf.RemoteAddr()
		}
	}
	return nil, nil
}

// StreamList describes the streams that are open, newest first.
func (e *Endpoint) StreamList() []api.Stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.streams(math.MaxInt)
}

// streams describes the streams that were opened last. Mu is held.
func (e *Endpoint) streams(limit int) (list []api.Stream) {
	for _, s := range e.b.StreamList(limit) {
		down, up := choice(s.In), choice(s.Out)
		if !e.cfg.Bond.Opens {
			down, up = up, down
		}
		sent, received := s.Received, s.Sent
		if e.cfg.Bond.Opens {
			sent, received = received, sent
		}
		a := api.Stream{ID: uint64(s.ID), Dest: s.Dest, Mode: s.Mode.String(), Priority: s.Class.String(), Weight: int(s.Weight), DownBytes: received, UpBytes: sent, Down: down, Up: up}
		if c, ok := s.User.(*Conn); ok {
			a.Owner = c.owner.get()
		}
		list = append(list, a)
	}
	return list
}

// FlowList describes the flows, the one used last first.
func (e *Endpoint) FlowList() []api.Flow {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flows(math.MaxInt)
}

// flows describes the flows that were used last. Mu is held.
func (e *Endpoint) flows(limit int) (list []api.Flow) {
	for _, f := range e.b.Flows(limit) {
		a := api.Flow{ID: uint64(f.ID), Path: uint32(f.Path), Second: uint32(f.Second), Sent: int64(f.Sent), Received: int64(f.Received), Dropped: int64(f.Dropped),
			Duplicate: int64(f.Duplicate), Moves: int64(f.Moves), LastUsed: f.Used, DownBytes: f.SentBytes, UpBytes: f.ReceivedBytes}
		if e.cfg.Bond.Opens {
			a.DownBytes, a.UpBytes = a.UpBytes, a.DownBytes
		}
		if c, ok := f.User.(*PacketConn); ok {
			a.Owner = c.owner.get()
		}
		list = append(list, a)
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

func choice(c wire.Choice) (a api.StreamChoice) {
	for _, p := range c.Paths {
		a.Paths = append(a.Paths, uint32(p))
	}
	a.Reason = c.Reason
	return a
}

// maxFlowList bounds the streams and flows that a status tells one by one.
const maxFlowList = 64

func decision(d bond.Decision) api.Decision {
	a := api.Decision{T: d.At, RemainingBytes: d.Remaining, DiffBytes: d.Diff, Reason: d.Reason.String()}
	if !d.Wait {
		a.Path = uint32(d.Path)
		for _, p := range d.Seen {
			if p.ID == d.Path {
				a.PADms = ms(p.PAD)
			}
		}
	}
	return a
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
