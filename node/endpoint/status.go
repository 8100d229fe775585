// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"cmp"
	"math"
	"net"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/congestion"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// rateHistory holds the bytes that a subflow had carried about every tenth of the last second.
// Endpoint.mu must be held.
type rateHistory struct {
	list [11]struct {
		at     time.Time
		rx, tx uint64
	}
	n int
}

func (r *rateHistory) addRateSample(now time.Time, rx, tx uint64) {
	if r.n > 0 && now.Sub(r.list[(r.n-1)%len(r.list)].at) < 100*time.Millisecond {
		return
	}
	e := &r.list[r.n%len(r.list)]
	e.at, e.rx, e.tx = now, rx, tx
	r.n++
}

// lastSecond returns the rates over the last second.
func (r *rateHistory) lastSecond(now time.Time, rx, tx uint64) (in, out unit.Rate) {
	for i := max(0, r.n-len(r.list)); i < r.n; i++ {
		e := &r.list[i%len(r.list)]
		if age := now.Sub(e.at); age <= 1100*time.Millisecond && age >= 50*time.Millisecond {
			return unit.RateOf(unit.Bytes(rx-e.rx), age), unit.RateOf(unit.Bytes(tx-e.tx), age)
		}
	}
	return 0, 0
}

// minSteadyTime is how long a subflow must carry bytes without a pause for its rate to characterize
// the network.
const minSteadyTime = 200 * time.Millisecond

// steadyRecentRate returns the rate over the longest run of intervals of the last second without a
// pause, 0 if that is shorter than minSteadyTime. The first interval of the run is left out: TCP's
// window grows then. A run ends before an interval that carried less than half the rate of the one
// before it: part of that one may be a pause.
func (r *rateHistory) steadyRecentRate(now time.Time, of func(i int) uint64) unit.Rate {
	var best time.Duration
	var rate, last unit.Rate
	start := -1
	for i := max(0, r.n-len(r.list)); i+1 < r.n; i++ {
		a, b := r.list[i%len(r.list)].at, r.list[(i+1)%len(r.list)].at
		carried := unit.Bytes(of(i+1) - of(i))
		if now.Sub(a) > 1500*time.Millisecond || b.Sub(a) > 200*time.Millisecond || carried < 2000 {
			start = -1
			continue
		}
		here := unit.RateOf(carried, b.Sub(a))
		if start < 0 || here < last/2 {
			start = i
		}
		last = here
		if span := b.Sub(r.list[start%len(r.list)].at); span > best && i > start {
			best = span
			rate = unit.RateOf(unit.Bytes(of(i+1)-of(start+1)), b.Sub(r.list[(start+1)%len(r.list)].at))
		}
	}
	if best < minSteadyTime {
		return 0
	}
	return rate
}

// SteadyRate is the rate of a subflow while it carried bytes without a pause.
type SteadyRate struct {
	Device string
	Rx, Tx unit.Rate     // 0: there were pauses
	RTT    time.Duration // end to end
}

// SteadyRates returns the subflows that lately carried bytes without a pause.
func (e *Endpoint) SteadyRates() (list []SteadyRate) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for _, l := range e.subflows {
		r := &l.rates
		s := SteadyRate{Device: l.device,
			Rx: r.steadyRecentRate(now, func(i int) uint64 { return r.list[i%len(r.list)].rx }),
			Tx: r.steadyRecentRate(now, func(i int) uint64 { return r.list[i%len(r.list)].tx })}
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

// DirectBytes counts the bytes of a direct subflow: received in order, and sent at least once.
type DirectBytes struct {
	Local  net.Addr
	Rx, Tx uint64
}

// DirectSubflowBytes returns the byte counts of the direct subflows.
func (e *Endpoint) DirectSubflowBytes() map[wire.SubflowID]DirectBytes {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := map[wire.SubflowID]DirectBytes{}
	for id, l := range e.subflows {
		if l.sf.Helped {
			continue
		}
		if h, err := l.sf.Probe(); err == nil {
			counts[id] = DirectBytes{
				Local: l.sf.LocalAddr(),
				Rx:    h.Received,
				Tx:    h.Acked + uint64(max(h.Queue-h.Unsent, 0)),
			}
		}
	}
	return counts
}

// HelpedBytes counts the bytes of a helped subflow in both directions, with the radio of its
// helper.
type HelpedBytes struct {
	Radio  wire.Radio
	Rx, Tx unit.Bytes
}

// HelpedSubflowBytes returns the byte counts of the helped subflows.
func (e *Endpoint) HelpedSubflowBytes() map[wire.SubflowID]HelpedBytes {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := map[wire.SubflowID]HelpedBytes{}
	for id, l := range e.subflows {
		if l.sf.Helped {
			rx, tx := e.bond.CarriedBytes(id)
			counts[id] = HelpedBytes{l.sf.Terms.Radio, unit.Bytes(rx), unit.Bytes(tx)}
		}
	}
	return counts
}

// SilentSubflows returns the subflows that have been silent for longer than d, even if none is left
// then.
func (e *Endpoint) SilentSubflows(d time.Duration) (ids []wire.SubflowID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for _, p := range e.bond.ListSubflows(nil, now) {
		if p.StalledFor > d {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// StalledFor returns for how long no subflow has made progress although bytes are in flight. It is 0 if one has, and
// without subflows.
func (e *Endpoint) StalledFor() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.bond.ListSubflows(nil, time.Now())
	if len(list) == 0 {
		return 0
	}
	least := list[0].StalledFor
	for _, p := range list {
		least = min(least, p.StalledFor)
	}
	return least
}

// Status is the state of a bond at one moment. It shares no memory with the endpoint.
type Status struct {
	Scheduler string
	bond.Stats
	Streams, Flows int        // open now
	MetaBytes      unit.Bytes // in the meta buffers
	ReorderBytes   unit.Bytes // received, waiting for earlier bytes
	Subflows       []Subflow  // by ascending ID
	// Decisions, StreamList and FlowList are set on request only. The lists have at most
	// maxStatusList entries.
	Decisions  []bond.Decision
	StreamList []Stream
	FlowList   []Flow
}

// Subflow is the state of a subflow.
type Subflow struct {
	bond.SubflowInfo
	Device         string // that carries it
	Terms          wire.Terms
	Transport      string // the network of its local address
	Hop            *Hop   // nil without a connection
	RxRate, TxRate unit.Rate
}

// Hop is the state of the hop of a subflow that begins at this end.
type Hop struct {
	estimate.Hop
	NearRate, FarRate unit.Rate     // estimates of this hop and the next
	FarWait           time.Duration // how long a byte sent now would wait at the helper
	RejectedReports   uint64
	// Congestion is the choice of the congestion control, nil if the hop does not choose it.
	Congestion *congestion.Choice
}

// Stream is the state of a stream. Down is towards the end that opens streams.
type Stream struct {
	bond.StreamInfo
	App                AppInfo
	Down, Up           wire.Choice
	DownBytes, UpBytes unit.Bytes
}

// Flow is the state of a datagram flow.
type Flow struct {
	bond.FlowInfo
	App                AppInfo
	DownBytes, UpBytes unit.Bytes
}

// Status returns the state of the bond. If why is set it includes the last decisions.
func (e *Endpoint) Status(why bool) Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	s := Status{
		Scheduler:    e.bond.Scheduler(),
		Stats:        e.bond.Stats(),
		Streams:      e.bond.StreamCount(),
		Flows:        e.bond.FlowCount(),
		ReorderBytes: e.bond.ReorderingBytes(),
	}
	_, s.MetaBytes = e.bond.BufferedBytes()
	for _, p := range e.bond.ListSubflows(nil, now) {
		l := e.subflows[p.ID]
		if l == nil {
			continue
		}
		sub := Subflow{
			SubflowInfo: p,
			Device:      l.device,
			Terms:       l.sf.Terms,
			Transport:   l.sf.LocalAddr().Network(),
			Hop:         l.describeHop(p),
		}
		sub.RxRate, sub.TxRate = l.rates.lastSecond(now, p.Received, p.Sent)
		s.Subflows = append(s.Subflows, sub)
	}
	slices.SortFunc(s.Subflows, func(a, b Subflow) int { return cmp.Compare(a.ID, b.ID) })
	if why {
		s.Decisions, s.StreamList, s.FlowList = e.bond.Decisions(), e.listNewestStreams(
			maxStatusList,
		), e.listRecentFlows(
			maxStatusList,
		)
	}
	return s
}

// describeHop returns the hop of a subflow that begins here, nil without a connection. Endpoint.mu
// must be held.
func (l *attachedSubflow) describeHop(p bond.SubflowInfo) *Hop {
	h, err := l.sf.Probe()
	if err != nil {
		return nil
	}
	hop := &Hop{Hop: h, NearRate: p.Th1, FarRate: p.Th2, FarWait: p.FarQueueTime,
		RejectedReports: l.sf.RejectedReports()}
	if choice, ok := l.sf.CongestionChoice(); ok {
		hop.Congestion = &choice
	}
	return hop
}

// HopOf returns the hop of a subflow that begins here and the address of its far end; nil if there
// is none.
func (e *Endpoint) HopOf(id wire.SubflowID) (*Hop, net.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.bond.ListSubflows(nil, time.Now()) {
		if l := e.subflows[id]; p.ID == id && l != nil {
			return l.describeHop(p), l.sf.RemoteAddr()
		}
	}
	return nil, nil
}

// StreamList returns the open streams, newest first.
func (e *Endpoint) StreamList() []Stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listNewestStreams(math.MaxInt)
}

// listNewestStreams returns up to limit streams, newest first. mu must be held.
func (e *Endpoint) listNewestStreams(limit int) (list []Stream) {
	for _, i := range e.bond.ListStreams(time.Now(), limit) {
		s := Stream{StreamInfo: i, Down: i.Out, Up: i.In, DownBytes: i.Acked, UpBytes: i.ReadByApp}
		if e.cfg.Bond.OpensStreams {
			s.Down, s.Up, s.DownBytes, s.UpBytes = s.Up, s.Down, s.UpBytes, s.DownBytes
		}
		if c, ok := i.User.(*Conn); ok {
			s.App = c.app.internedAppInfo()
		}
		list = append(list, s)
	}
	return list
}

// FlowList returns the flows, the most recently used first.
func (e *Endpoint) FlowList() []Flow {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listRecentFlows(math.MaxInt)
}

// listRecentFlows returns up to limit flows, the most recently used first. mu must be held.
func (e *Endpoint) listRecentFlows(limit int) (list []Flow) {
	for _, i := range e.bond.ListFlows(limit) {
		f := Flow{FlowInfo: i, DownBytes: i.SentBytes, UpBytes: i.ReceivedBytes}
		if e.cfg.Bond.OpensStreams {
			f.DownBytes, f.UpBytes = f.UpBytes, f.DownBytes
		}
		if c, ok := i.User.(*PacketConn); ok {
			f.App = c.app.internedAppInfo()
		}
		list = append(list, f)
	}
	return list
}

// ResetStream resets a stream at both ends, for a reason that the apps do not see. It reports
// whether the stream existed.
func (e *Endpoint) ResetStream(id wire.StreamID, why string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := e.bond.ResetStream(id, wire.CodeConnReset, why)
	e.handleBondEvents(time.Now())
	return found
}

// SetStreamClass sets mode and class of a stream at both ends. Only the end that opens streams may
// call it. It reports whether the stream exists.
func (e *Endpoint) SetStreamClass(id wire.StreamID, mode wire.Mode, group wire.GroupID) (found bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	found = e.bond.SetClass(id, mode, group)
	e.handleBondEvents(time.Now())
	return found
}

// StreamClass returns mode and class of a stream; ok is false if there is none.
func (e *Endpoint) StreamClass(id wire.StreamID) (mode wire.Mode, group wire.GroupID, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bond.ClassOf(id)
}

// maxStatusList bounds the streams and flows in a Status.
const maxStatusList = 64
