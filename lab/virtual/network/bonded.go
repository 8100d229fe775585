// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/link/tcpinfo"
	"mpbond/link/wire"
)

// epoch is the arbitrary time at which runs begin.
var epoch = time.Unix(1e9, 0)

// Ends of a bond.
const (
	primary = 0
	server  = 1
)

// bonded is a bond in virtual time: both ends, as node/endpoint drives them.
type bonded struct {
	sim  *sim
	ends [2]*end
	err  error
}

// end is one end of a bond.
type end struct {
	net      *bonded
	side     int
	bond     *bond.Bond
	subflows []*subflowEnd
	tick     *timer
	spare    []*segmentBuffer
	sentData unit.Bytes         // stream bytes given to subflows
	busy     bool               // processBondEvents is running
	isDue    bool               // processSoon has scheduled it
	onStream func(*bond.Stream) // a stream was accepted
	onChange func(*bond.Stream)
}

// subflowEnd is one end of a subflow. Its records carry what this end sends.
type subflowEnd struct {
	end      *end
	id       wire.SubflowID
	helped   bool
	out      *channel
	far      *subflowEnd
	records  []record
	head     int
	written  uint64 // ciphertext written
	lowat    unit.Bytes
	probed   time.Duration
	received uint64 // ciphertext received
}

// record is a TLS record under way.
type record struct {
	end     uint64 // position of its end in the ciphertext
	plain   int    // position of its end in the segment
	segment *segmentBuffer
}

// segmentBuffer holds a segment of frames until the other end has read it.
type segmentBuffer struct {
	frames []byte
	read   int // whole frames that the other end has got
}

// probeAge is the greatest age of a sample at a decision, as in node/endpoint.
const probeAge = time.Millisecond

// newVirtualBond returns a bond without subflows. events, if not nil, gets the trace.
func newVirtualBond(s *sim, scheduler string, eta float64, events func(trace.Event)) (*bonded, error) {
	n := &bonded{sim: s}
	for i := range n.ends {
		policy, err := sched.New(scheduler)
		if err != nil {
			return nil, err
		}
		e := &end{net: n, side: i}
		cfg := bond.Config{OpensStreams: i == primary, Scheduler: policy, Eta: eta}
		if events != nil {
			who := [2]string{"primary", "server"}[i]
			cfg.Trace = func(ev trace.Event) {
				ev.Who = who
				if ev.T == 0 {
					ev.T = epoch.Add(s.now).UnixNano()
				}
				events(ev)
			}
		}
		e.bond = bond.New(cfg)
		e.tick = newSimTimer(s, e.handleBondTick)
		n.ends[i] = e
	}
	return n, nil
}

func (e *end) virtualNow() time.Time { return epoch.Add(e.net.sim.now) }

// markSubflowIdle reports that the subflow has room.
func (p *subflowEnd) markSubflowIdle() {
	p.sampleLocalHop(0)
	p.end.bond.MarkIdle(p.id)
}

// sampleLocalHop samples the local hop unless the last sample is younger than age.
func (p *subflowEnd) sampleLocalHop(age time.Duration) {
	now := p.end.net.sim.now
	if age > 0 && now-p.probed < age {
		return
	}
	p.probed = now
	h := p.out.from.readTCPInfo().Hop()
	if !p.helped {
		if mark, changed := tcpinfo.AdaptLowat(p.lowat, h.Rate); changed {
			p.lowat, p.out.from.lowat = mark, mark
		}
	}
	p.end.bond.ObserveLocalHop(p.id, p.end.virtualNow(), h)
}

// processBondEvents accepts streams, sends segments and lets the apps of changed streams read and
// write, until nothing more follows. Then it sets the timer of the bond.
func (e *end) processBondEvents() {
	if e.busy {
		return
	}
	e.busy = true
	for changed := true; changed; {
		changed = false
		for s := e.bond.AcceptStream(); s != nil; s = e.bond.AcceptStream() {
			e.onStream(s)
		}
		for _, p := range e.subflows {
			p.sampleLocalHop(probeAge)
		}
		for e.writeNextSegment() {
		}
		for s := e.bond.NextChangedStream(); s != nil; s = e.bond.NextChangedStream() {
			e.onChange(s)
			changed = true
		}
	}
	e.busy = false
	if at := e.bond.NextTick(); !at.IsZero() {
		if due := at.Sub(epoch); due < e.tick.due {
			e.tick.setDueTime(due)
		}
	}
}

// writeNextSegment writes one segment, if there is one to send now.
func (e *end) writeNextSegment() bool {
	var b *segmentBuffer
	if k := len(e.spare); k > 0 {
		b, e.spare = e.spare[k-1], e.spare[:k-1]
	} else {
		b = &segmentBuffer{}
	}
	id, frames := e.bond.NextSegment(e.virtualNow(), b.frames[:0])
	b.frames, b.read = frames, 0
	if id == 0 {
		e.spare = append(e.spare, b)
		return false
	}
	p := e.findSubflow(id)
	if !e.bond.BeginSegment(id) {
		e.net.setFirstError(fmt.Errorf("subflow %d: a segment was taken back at once", id))
		return false
	}
	p.writeTLSRecords(b)
	if p.out.from.signalsPollOut() {
		p.markSubflowIdle()
	} else {
		p.out.from.wantsWrite = true
	}
	return true
}

// countStreamBytes returns the stream bytes in the frames of a segment.
func countStreamBytes(frames []byte) (n unit.Bytes) {
	for len(frames) >= wire.HeaderLen {
		size := int(frames[1])<<16 | int(frames[2])<<8 | int(frames[3])
		if wire.Type(frames[0]) == wire.TypeData {
			if f, err := wire.ParseData(frames[wire.HeaderLen : wire.HeaderLen+size]); err == nil {
				n += unit.Bytes(len(f.Bytes))
			}
		}
		frames = frames[wire.HeaderLen+size:]
	}
	return n
}

// writeTLSRecords gives a segment to TCP in TLS records.
func (p *subflowEnd) writeTLSRecords(b *segmentBuffer) {
	p.end.sentData += countStreamBytes(b.frames)
	total := 0
	for at := 0; at < len(b.frames); {
		n := min(maxRecord, len(b.frames)-at)
		at += n
		p.written += uint64(n + recordOverhead)
		p.records = append(p.records, record{p.written, at, b})
		if total += n + recordOverhead; !p.helped {
			p.out.queuePiece(n+recordOverhead, n+recordOverhead, nil)
		}
	}
	if p.helped {
		for total > 0 { // HOP_DATA; from the primary in TLS records of the pipe
			n := min(total, maxHopData)
			total -= n
			size := n + wire.HeaderLen
			if p.end.side == primary {
				size = sealedSize(size)
			}
			p.out.queuePiece(size, n, nil)
		}
	}
	p.out.writeQueued()
}

// receivePiece takes a piece that the other end or the helper has sent.
func (p *subflowEnd) receivePiece(q *piece) bool {
	e := p.end
	if q.report != nil {
		s := *q.report
		switch {
		case s.AboutPipe && e.side == primary:
			e.bond.RelayReport(wire.PipeState{Subflow: p.id, HopState: s}, e.virtualNow())
		default:
			e.bond.ObserveFarHop(p.id, e.virtualNow(), s)
		}
		return true
	}
	p.received += uint64(q.ciphertext)
	from := p.far
	for from.head < len(from.records) && from.records[from.head].end <= p.received {
		r := &from.records[from.head]
		p.passRecordFrames(r)
		if r.segment.read == len(r.segment.frames) {
			from.end.spare = append(from.end.spare, r.segment)
		}
		*r = record{}
		from.head++
	}
	if from.head > 64 && 2*from.head > len(from.records) {
		from.records = from.records[:copy(from.records, from.records[from.head:])]
		from.head = 0
	}
	e.processSoon()
	return true
}

// processSoon calls processBondEvents after the events of this moment that are queued already, once
// for all of them.
func (e *end) processSoon() {
	if !e.isDue {
		e.isDue = true
		e.net.sim.scheduleTask(e.net.sim.now, func(*packet) {
			e.isDue = false
			e.processBondEvents()
		}, nil)
	}
}

// passRecordFrames passes on the frames that end before the end of a record.
func (p *subflowEnd) passRecordFrames(r *record) {
	b := r.segment
	for b.read+wire.HeaderLen <= r.plain {
		h := b.frames[b.read:]
		size := wire.HeaderLen + int(h[1])<<16 + int(h[2])<<8 + int(h[3])
		if b.read+size > r.plain {
			return
		}
		if err := p.end.bond.ReceiveFrame(p.id, wire.Type(h[0]), h[wire.HeaderLen:size], p.end.virtualNow()); err != nil {
			p.end.net.setFirstError(fmt.Errorf("subflow %d at end %d: %w", p.id, p.end.side, err))
		}
		b.read += size
	}
}

func (e *end) findSubflow(id wire.SubflowID) *subflowEnd {
	for _, p := range e.subflows {
		if p.id == id {
			return p
		}
	}
	return nil
}

// handleBondTick handles the timer of the bond.
func (e *end) handleBondTick() {
	for _, p := range e.subflows {
		p.sampleLocalHop(0)
	}
	e.bond.Tick(e.virtualNow())
	e.processBondEvents()
}

func (n *bonded) setFirstError(err error) {
	if n.err == nil {
		n.err = err
	}
}
