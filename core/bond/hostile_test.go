// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

var (
	framesFlag      = flag.Int("frames", 200_000, "how many hostile frames TestHostile sends")
	hostileSeedFlag = flag.Uint64("hostile-seed", 0, "the seed of TestHostile; 0: another one each time")
)

// framesOfRun is how many frames one bond gets in TestHostile.
const framesOfRun = 3000

// FuzzHostile: the peer of a bond sends anything, while apps write, read and end, subflows come and
// go, memory gets short and time passes.
func FuzzHostile(f *testing.F) {
	for seed := range uint64(8) {
		b := make([]byte, 2000)
		for i, r := 0, rand.New(rand.NewPCG(seed, 1)); i < len(b); i++ {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newHostilePeer(&choices{data: data, frames: 1 << 30})
		if err := h.run(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestHostile is the same with random choices: 10,000,000 frames in .ci/long.
func TestHostile(t *testing.T) {
	seed := *hostileSeedFlag
	if seed == 0 {
		seed = rand.Uint64() | 1
	}
	frames, most := 0, unit.Bytes(0)
	began := time.Now()
	for n := uint64(0); frames < *framesFlag; n++ {
		h := newHostilePeer(&choices{random: rand.New(rand.NewPCG(seed, n)), frames: framesOfRun})
		err := h.run()
		frames += h.sent
		most = max(most, h.most)
		if err != nil {
			t.Fatalf("go test ./core/bond -run '^TestHostile$' -hostile-seed %d, bond %d, frame %d: %v", seed, n, h.sent, err)
		}
	}
	t.Logf("seed %d: %d frames in %v, %v held at most", seed, frames, time.Since(began).Round(time.Millisecond), most)
}

// choices determine the actions of a hostile peer and the apps: bytes of a fuzzer, or random ones.
type choices struct {
	data   []byte
	random *rand.Rand // nil: data
	frames int        // that may still be sent
}

func (c *choices) over() bool { return c.frames <= 0 || c.random == nil && len(c.data) == 0 }

func (c *choices) byte() byte {
	if c.random != nil {
		return byte(c.random.Uint32())
	}
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return b
}

// numberBelow returns a number from 0 to n-1.
func (c *choices) numberBelow(n int) int {
	v := int(c.byte())
	if n > 256 {
		v = v<<16 | int(c.byte())<<8 | int(c.byte())
	}
	return v % n
}

// size returns a number of bytes, seldom a large one.
func (c *choices) size() int {
	if c.numberBelow(32) == 0 {
		return 1 + c.numberBelow(60_000)
	}
	return 1 + c.numberBelow([]int{1, 8, 250, 1400}[c.numberBelow(4)])
}

// valueNear returns a number at, about or far from another one.
func (c *choices) valueNear(n uint64) uint64 {
	switch c.numberBelow(8) {
	case 0:
		return n + 1
	case 1:
		return n - min(n, 1)
	case 2:
		return n + uint64(c.numberBelow(1<<17))
	case 3:
		return n - min(n, uint64(c.numberBelow(1<<17)))
	case 4:
		return uint64(c.numberBelow(1 << 20))
	case 5:
		if c.numberBelow(8) == 0 {
			return 1<<62 - 1 - uint64(c.byte())
		}
	}
	return n
}

// hostilePeer drives a bond and knows what it has sent to it.
type hostilePeer struct {
	*choices
	b       *Bond
	m       *budget
	now     time.Time
	streams map[wire.StreamID]*hostileStream
	flows   []*Flow
	fed     map[wire.SubflowID]uint64 // bytes received on a subflow since it was added
	acked   map[wire.SubflowID]uint64 // as acknowledged by the bond
	sent    int                       // frames
	most    unit.Bytes
	err     error
}

// hostileStream is the state of a stream.
type hostileStream struct {
	s       *Stream // nil: the bond has not handed it over
	there   map[uint64]uint64
	read    uint64 // by the app
	written uint64
	limit   uint64 // for the bond
	window  uint64 // that the bond has granted
	seen    [5]wire.DataSeq
}

func newHostilePeer(c *choices) *hostilePeer {
	m := &budget{limit: unit.Bytes(1+c.numberBelow(64)) * 64 * unit.KB}
	h := &hostilePeer{choices: c, m: m, now: start, streams: map[wire.StreamID]*hostileStream{},
		fed: map[wire.SubflowID]uint64{}, acked: map[wire.SubflowID]uint64{}}
	h.b = New(Config{OpensStreams: c.numberBelow(2) == 0, MaxStreams: 48, MaxFlows: 8, MaxBuffered: 2 * unit.MB,
		MetaBuffer: 256 * unit.KB, Memory: m})
	return h
}

func (h *hostilePeer) fail(format string, args ...any) {
	if h.err == nil {
		h.err = fmt.Errorf(format, args...)
	}
}

// run drives the bond to the end of the choices, and ends it.
func (h *hostilePeer) run() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	for n := 0; !h.over() && h.err == nil; n++ {
		if len(h.b.subflows.list) == 0 { // a peer that was cut off comes again
			h.b.AddSubflow(1, false, h.now)
			h.fed[1], h.acked[1] = 0, 0
		}
		h.step()
		h.collectGarbage()
		if n%16 == 0 {
			h.check()
		}
	}
	if h.err != nil {
		return h.err
	}
	h.check()
	h.b.ResetAll(wire.CodeClosed, "it is over", h.now)
	h.collectGarbage()
	for _, f := range h.flows {
		f.Discard()
	}
	for _, s := range h.streams {
		if s.s != nil {
			s.s.reassembly.pages.freeAllPages()
		}
	}
	for _, p := range append([]*subflow{}, h.b.subflows.list...) {
		h.b.RemoveSubflow(p.id, h.now)
	}
	if n := h.b.pool.inUse; n != 0 || h.b.StreamCount() != 0 || h.b.buffers.heldBytes != 0 || h.b.backlog.pending != 0 ||
		h.b.backlog.lowLatencyPending != 0 || h.b.buffers.grownWindows != 0 {
		h.fail("at the end there are %d pages, %d streams, %v held, %v pending, %v low-latency, %v grown", n,
			h.b.StreamCount(),
			h.b.buffers.heldBytes, h.b.backlog.pending, h.b.backlog.lowLatencyPending, h.b.buffers.grownWindows)
	}
	if h.b.ReleaseMemory(); h.m.used != 0 {
		h.fail("at the end %v are held", h.m.used)
	}
	return h.err
}

// step does one thing.
func (h *hostilePeer) step() {
	id := wire.SubflowID(1 + h.numberBelow(4))
	switch h.numberBelow(32) {
	case 0:
		if h.b.subflows.subflowByID(id) != nil && h.numberBelow(8) > 0 {
			return
		}
		h.b.AddSubflow(id, h.numberBelow(2) == 0, h.now)
		h.b.SetJoinRTT(id, time.Duration(h.numberBelow(300))*time.Millisecond)
		h.fed[id], h.acked[id] = 0, 0
	case 1:
		if h.numberBelow(4) == 0 {
			h.b.RemoveSubflow(id, h.now)
		}
	case 2:
		h.b.ObserveLocalHop(id, h.now, estimate.Hop{SRTT: time.Duration(1+h.numberBelow(500)) * time.Millisecond,
			MinRTT: time.Millisecond, MSS: 1448,
			Cwnd: unit.Bytes(h.numberBelow(1 << 20)), Rate: unit.Rate(h.numberBelow(1<<24)) * 8,
			Queue: unit.Bytes(h.numberBelow(1 << 16)), Acked: uint64(h.numberBelow(1 << 20))})
	case 3:
		h.b.ObserveUnknownHop(id, h.now)
	case 4:
		h.b.ObserveFarHop(id, h.now, h.hopState())
	case 5, 6:
		h.now = h.now.Add(time.Duration(h.numberBelow(1<<12)) * 100 * time.Microsecond)
		h.b.Tick(h.now)
	case 7:
		h.m.short = h.numberBelow(2) == 0
		h.b.RelayReport(wire.PipeState{Subflow: id, HopState: h.hopState()}, h.now)
		switch h.numberBelow(16) {
		case 0:
			h.b.SetGuide(fickle{h.choices})
		case 1:
			h.b.SetGuide(nil)
		case 2:
			h.b.ResetGroup(wire.GroupID(h.numberBelow(4)), wire.Reset{Code: wire.CodeClosed},
				func(*Stream) bool { return h.numberBelow(2) == 0 })
		case 3: // as status asks
			h.b.ListSubflows(nil, h.now)
			h.b.ListStreams(time.Time{}, 10)
			h.b.ListFlows(10)
			h.b.UsedGroups()
			h.b.ReorderingBytes()
			h.b.ControlAcknowledged()
		}
	case 8, 9, 10, 11:
		h.next(id)
	case 12, 13, 14, 15:
		h.app()
	case 16:
		h.flow()
	default:
		h.frame(id)
	}
}

// fickle is a Guide that allows random subflows.
type fickle struct{ c *choices }

func (g fickle) AllowSubflows(subflows []GuideSubflow, _ Demand) string {
	for i := range subflows {
		subflows[i].Allowed = g.c.numberBelow(2) == 0
	}
	return "so"
}

func (h *hostilePeer) hopState() wire.HopState {
	received := h.valueNear(1000)
	return wire.HopState{Received: received, Forwarded: received - min(received, uint64(h.numberBelow(1<<17))),
		Rate: unit.Rate(h.numberBelow(1<<24)) * 100,
		RTT:  time.Duration(h.numberBelow(1<<12)) * time.Millisecond, AppLimited: h.numberBelow(2) == 0}
}

// stream returns what is known of a stream.
func (h *hostilePeer) stream(id wire.StreamID) *hostileStream {
	s := h.streams[id]
	if s == nil {
		s = &hostileStream{there: map[uint64]uint64{}, limit: uint64(initialWindow(h.b.cfg.OpensStreams)),
			window: uint64(h.b.buffers.firstWindow)}
		h.streams[id] = s
	}
	return s
}

// anyStream is the number of one that there may be.
func (h *hostilePeer) anyStream() wire.StreamID {
	switch h.numberBelow(16) {
	case 0:
		return wire.StreamID(h.valueNear(uint64(h.b.streams.lastID)))
	case 1:
		return h.b.streams.lastID + 1
	}
	return max(1, h.b.streams.lastID-min(h.b.streams.lastID, wire.StreamID(h.numberBelow(8))))
}

// app does something as the user of a stream.
func (h *hostilePeer) app() {
	if h.b.cfg.OpensStreams && h.numberBelow(8) == 0 {
		if s, err := h.b.OpenStream("far:1"); err == nil {
			h.stream(s.ID()).s = s
		}
		return
	}
	id := h.anyStream()
	k := h.streams[id]
	if k == nil || k.s == nil {
		return
	}
	switch s := k.s; h.numberBelow(12) {
	case 0:
		s.SetOpened()
	case 1:
		s.CloseWrite()
	case 2:
		if h.numberBelow(4) == 0 {
			s.Reset(wire.CodeClosed, "the app has ended it")
		}
	case 3:
		s.SetMode(wire.Mode(h.numberBelow(3)))
	case 4:
		s.SetGroup(wire.GroupID(h.numberBelow(4)))
	case 5:
		s.MarkChunkEnd(unit.Bytes(h.numberBelow(1 << 17)))
		s.RequestChunk(unit.Bytes(h.numberBelow(1 << 17)))
	case 6:
		if h.b.cfg.OpensStreams {
			var plan []wire.Group
			for g := range wire.GroupID(4) {
				plan = append(plan, wire.Group{ID: g + 1, Priority: wire.Priority(h.numberBelow(int(wire.PriorityCount))),
					Weight: 1, Limited: h.numberBelow(2) == 0, Subflows: []wire.SubflowID{1}})
			}
			h.b.SetClassTable(plan)
			h.b.SetClass(id, wire.Mode(h.numberBelow(3)), wire.GroupID(h.numberBelow(4)))
		}
		s.BindToSubflow(wire.SubflowID(1 + h.numberBelow(4)))
	case 7, 8:
		p := make([]byte, h.size())
		for i := range p {
			p[i] = content(id, k.written+uint64(i), 1)
		}
		if room := s.Room(); room > int(maxWindow+h.b.cfg.MetaBuffer) {
			h.fail("stream %d has room for %d bytes", id, room)
		}
		k.written += uint64(s.Write(p))
	default:
		h.read(id, k)
	}
}

// read reads as the app, and compares.
func (h *hostilePeer) read(id wire.StreamID, k *hostileStream) {
	p := make([]byte, 4*h.size())
	n, err := k.s.Read(p)
	if n > len(p) || n > 0 && err != nil {
		h.fail("stream %d: read returns %d, %v", id, n, err)
	}
	word, there := ^uint64(0), uint64(0)
	for i, c := range p[:n] {
		at := k.read + uint64(i)
		if at/64 != word {
			word, there = at/64, k.there[at/64]
		}
		if there&(1<<(at%64)) == 0 {
			h.fail("stream %d: byte %d was delivered, and never sent", id, at)
		}
		if c != content(id, at, 0) {
			h.fail("stream %d: byte %d is wrong", id, at)
		}
	}
	k.read += uint64(n)
	var r wire.Reset
	if err != nil && err != io.EOF && !errors.As(err, &r) {
		h.fail("stream %d: %v", id, err)
	}
}

// content is the byte of a stream at a position, in one of its directions.
func content(id wire.StreamID, at uint64, way byte) byte {
	return byte(at*31+at>>8*7+uint64(id)*13) ^ way
}

// flow does something as the user of a flow.
func (h *hostilePeer) flow() {
	if h.b.cfg.OpensStreams && h.numberBelow(4) == 0 {
		if f, err := h.b.OpenFlow(h.numberBelow(2) == 0, h.now); err == nil {
			h.flows = append(h.flows, f)
		}
	}
	if len(h.flows) == 0 {
		return
	}
	f := h.flows[h.numberBelow(len(h.flows))]
	switch h.numberBelow(6) {
	case 0:
		f.End(wire.CodeClosed, "", h.now)
	case 1:
		f.Discard()
	case 2:
		f.Refuse(wire.FlowRefused{Addr: wire.Addr{Name: "far", Port: 7}, Code: wire.CodeForbidden})
	case 3:
		_, _, _ = f.Receive()
	default:
		_ = f.Send(wire.Addr{Name: "far", Port: 7}, make([]byte, h.numberBelow(2000)), h.now)
	}
}

// next takes a segment of the bond and checks it.
func (h *hostilePeer) next(id wire.SubflowID) {
	h.b.MarkIdle(id)
	id, segment := h.b.NextSegment(h.now, nil)
	if id == 0 {
		return
	}
	h.b.BeginSegment(id)
	r := wire.NewReader(bytes.NewReader(segment))
	for {
		t, payload, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			h.fail("a segment of %d bytes: %v", len(segment), err)
			return
		}
		h.checkFrame(t, payload)
	}
}

// checkFrame checks a frame of the bond.
func (h *hostilePeer) checkFrame(t wire.Type, payload []byte) {
	switch t {
	case wire.TypeData:
		f, err := wire.ParseData(payload)
		k := h.stream(f.Stream)
		end := uint64(f.Seq) + uint64(len(f.Bytes))
		if err != nil || end > k.written || end > k.limit {
			h.fail("DATA of stream %d up to %d, of which %d were written, %d may be sent: %v", f.Stream, end, k.written,
				k.limit, err)
		}
		for i, c := range f.Bytes {
			if c != content(f.Stream, uint64(f.Seq)+uint64(i), 1) {
				h.fail("DATA of stream %d is wrong at %d", f.Stream, uint64(f.Seq)+uint64(i))
				return
			}
		}
	case wire.TypeWindow:
		f, err := wire.ParseWindow(payload)
		k := h.stream(f.Stream)
		if err != nil || uint64(f.Limit) < k.window ||
			uint64(f.Limit) > k.read+uint64(maxWindow)+uint64(h.b.buffers.firstWindow) {
			h.fail("WINDOW of stream %d to %d, after %d, with %d read: %v", f.Stream, f.Limit, k.window, k.read, err)
		}
		k.window = uint64(f.Limit)
	case wire.TypeAck:
		f, err := wire.ParseAck(payload, nil)
		if err != nil {
			h.fail("%v", err)
		}
		for _, a := range f.Subflows {
			if a.Received < h.acked[a.Subflow] || a.Received > h.fed[a.Subflow] {
				h.fail("ACK of %d bytes of subflow %d, after %d, of %d sent", a.Received, a.Subflow, h.acked[a.Subflow],
					h.fed[a.Subflow])
			}
			h.acked[a.Subflow] = a.Received
		}
	}
}

// collectGarbage takes what the bond hands over.
func (h *hostilePeer) collectGarbage() {
	for s := h.b.AcceptStream(); s != nil; s = h.b.AcceptStream() {
		h.stream(s.ID()).s = s
	}
	for f := h.b.AcceptFlow(); f != nil; f = h.b.AcceptFlow() {
		h.flows = append(h.flows, f)
	}
	for h.b.NextChangedStream() != nil {
	}
	for h.b.NextChangedFlow() != nil {
	}
}

// check checks what must always hold.
func (h *hostilePeer) check() {
	b := h.b
	all := map[*Stream]bool{}
	for _, s := range b.streams.all {
		all[s] = true
	}
	for _, k := range h.streams {
		if k.s != nil {
			all[k.s] = true
		}
	}
	pages := 0
	var marked, pending, lowLatency, held, grown unit.Bytes
	for s := range all {
		for _, l := range [][]*page{s.reassembly.pages.list, s.send.pages.list} {
			for _, p := range l {
				if p != nil {
					pages++
				}
			}
		}
		if made := unit.Bytes(s.reassembly.arrived.bitmaps) * bitmapCost; s.reassembly.bitmapBytes != made {
			h.fail("stream %d has taken %v for marks of %v", s.id, s.reassembly.bitmapBytes, made)
		}
		marked += s.reassembly.bitmapBytes
		now := [5]wire.DataSeq{s.reassembly.readOffset, s.reassembly.nextExpected, s.reassembly.limit, s.send.end,
			s.send.limit}
		k := h.stream(s.id)
		for i := range now {
			if now[i] < k.seen[i] && s.err == nil {
				h.fail("number %d of stream %d has fallen from %d to %d", i, s.id, k.seen[i], now[i])
			}
		}
		if s.err == nil { // after that, unread bytes are dropped
			k.seen = now
		}
		if s.reassembly.readOffset > s.reassembly.nextExpected || s.send.firstUnacked > s.send.end ||
			s.reassembly.nextExpected > s.reassembly.limit {
			h.fail("stream %d: %d %d %d, %d %d", s.id, s.reassembly.readOffset, s.reassembly.nextExpected, s.reassembly.limit,
				s.send.firstUnacked, s.send.end)
		}
		if b.streams.all[s.id] != s {
			continue
		}
		grown += s.reassembly.window - b.buffers.firstWindow
		held += unit.Bytes(s.send.end - s.send.firstUnacked - s.send.acked.Size())
		if n := unit.Bytes(s.send.unsent.Size()); s.permission.mode == wire.ModeLatency {
			lowLatency += n
		} else {
			pending += n
		}
	}
	if pages != b.pool.inUse || pending != b.backlog.pending || lowLatency != b.backlog.lowLatencyPending ||
		held != b.buffers.heldBytes || grown != b.buffers.grownWindows {
		h.fail("counted %d pages, %v pending, %v low-latency, %v held, %v grown; there are %d, %v, %v, %v and %v",
			b.pool.inUse, b.backlog.pending, b.backlog.lowLatencyPending, b.buffers.heldBytes, b.buffers.grownWindows, pages,
			pending, lowLatency, held, grown)
	}
	if want := unit.Bytes(pages)*pageSize + marked + b.flows.inBytes + b.flows.outBytes; b.memory.taken != want ||
		h.m.used != want || want > h.m.limit {
		h.fail("%v are taken, %v of the budget of %v; there are %v", b.memory.taken, h.m.used, h.m.limit, want)
	}
	if n := len(b.streams.all); n > b.cfg.MaxStreams {
		h.fail("%d streams", n)
	}
	h.most = max(h.most, h.m.used)
}
