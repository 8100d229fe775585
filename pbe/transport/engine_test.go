// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/event"
	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// testPath describes the network between two engines.
type testPath struct {
	loss, duplicate, overtake float64
	delay                     time.Duration
	rate                      unit.Rate // 0: any
	mtu                       int       // of UDP payloads
	queue                     time.Duration
}

// flight is a packet in flight.
type flight struct {
	at     time.Duration
	to     int
	number uint64
	frames []byte
	size   unit.Bytes
}

// world runs two engines in virtual time.
type world struct {
	t       testing.TB
	engines [2]*engine
	path    testPath
	random  *rand.Rand
	packets event.Queue[flight]
	busy    [2]time.Duration // of the link in each direction
	now     time.Duration
	buf     []byte
	// drop, if set, reports whether a packet from an engine is lost.
	drop func(from int, f flight) bool
	each func() // called in each step
	// trace, if set, is called with each packet that an engine sends ('s') or receives ('r').
	trace func(what byte, end int, number uint64, frames []byte)
	// refuse, if set, is called with errors of handleDataPacket, which otherwise fail the test.
	refuse func(end int, err error)
	alarm  time.Duration // step stops at this time; 0: at the next event
}

func newWorld(t testing.TB, p testPath, seed uint64) *world {
	w := &world{t: t, path: p, random: rand.New(rand.NewPCG(seed, 9)), now: time.Second}
	for i := range w.engines {
		w.engines[i] = newConnEngine(cc.NewCUBIC(), 28)
		w.engines[i].liveness.lastReceived, w.engines[i].liveness.lastSent = time.Second, time.Second
		w.engines[i].loss.numbers.randomBelow, w.engines[i].loss.numbers.skipAt = w.random.Uint64N, skipEvery/2
	}
	return w
}

// send lets engine i send what it can.
func (w *world) send(i int) {
	for {
		b, number, ok := w.engines[i].appendPacket(w.now, w.buf[:0])
		w.buf = b
		if !ok {
			return
		}
		if w.trace != nil {
			w.trace('s', i, number, b)
		}
		f := flight{to: 1 - i, number: number, frames: bytes.Clone(b), size: unit.Bytes(len(b)+overhead) + 28}
		if len(b)+overhead > max(w.path.mtu, minPayload) || w.random.Float64() < w.path.loss || w.drop != nil &&
			w.drop(i, f) {
			continue
		}
		at := w.now
		if w.path.rate > 0 {
			if w.busy[i] > w.now+w.path.queue {
				continue
			}
			w.busy[i] = max(w.busy[i], w.now) + w.path.rate.Time(f.size)
			at = w.busy[i]
		}
		f.at = at + w.path.delay
		if w.random.Float64() < w.path.overtake {
			f.at += time.Duration(w.random.Int64N(int64(20 * time.Millisecond)))
		}
		w.push(f)
		if w.random.Float64() < w.path.duplicate {
			f.at += time.Duration(w.random.Int64N(int64(50 * time.Millisecond)))
			w.push(f)
		}
	}
}

func (w *world) push(f flight) { w.packets.Push(f.at, f) }

// step advances to the next event.
func (w *world) step() bool {
	at := time.Duration(-1)
	for _, e := range w.engines {
		if t := e.nextWakeTime(w.now); t >= 0 && (at < 0 || t < at) {
			at = t
		}
	}
	if w.packets.Len() > 0 && (at < 0 || w.packets.Next() < at) {
		at = w.packets.Next()
	}
	if w.alarm > 0 && (at < 0 || w.alarm < at) {
		at = w.alarm
	}
	if at < 0 {
		return false
	}
	w.now = max(w.now, at)
	for w.packets.Len() > 0 && w.packets.Next() <= w.now {
		_, f := w.packets.Pop()
		if w.trace != nil {
			w.trace('r', f.to, f.number, f.frames)
		}
		switch err := w.engines[f.to].handlePacketFrames(w.now, f.number, f.frames); {
		case err == nil:
		case w.refuse != nil:
			w.refuse(f.to, err)
		default:
			w.t.Fatalf("at %v: %v", w.now, err)
		}
	}
	if w.each != nil {
		w.each()
	}
	for i, e := range w.engines {
		e.handleTimers(w.now)
		w.send(i)
	}
	return true
}

// transfer moves n bytes from engine 0 to 1 and m bytes back. It returns how long that took.
func (w *world) transfer(n, m int) time.Duration {
	w.t.Helper()
	data := [2][]byte{make([]byte, n), make([]byte, m)}
	for i, d := range data {
		rand.NewChaCha8([32]byte{byte(i)}).Read(d)
	}
	var wrote [2]int
	got := [2][]byte{}
	var over [2]bool
	buf := make([]byte, 64<<10)
	for !over[0] || !over[1] {
		for i, e := range w.engines {
			wrote[i] += e.sender.writeToBuffer(data[i][wrote[i]:])
			if wrote[i] == len(data[i]) {
				e.sender.fin = true
			}
			for {
				k, err := e.readAvailable(w.now, buf)
				got[1-i] = append(got[1-i], buf[:k]...)
				if err == io.EOF {
					over[1-i] = true
				} else if err != nil {
					w.t.Fatalf("at %v: %v", w.now, err)
				}
				if k == 0 {
					break
				}
			}
			w.send(i)
		}
		if !over[0] || !over[1] {
			if w.now > time.Hour || !w.step() {
				w.t.Fatalf("stuck at %v: %d of %d and %d of %d; %+v", w.now, len(got[0]), n, len(got[1]), m,
					w.engines[0].counts)
			}
		}
	}
	for i := range data {
		if !bytes.Equal(got[i], data[i]) {
			w.t.Fatalf("direction %d: the stream is not what was written", i)
		}
	}
	return w.now - time.Second
}

// TestStreamIsRight: loss, duplication and reordering at once. Damage equals loss, because the tag
// is wrong.
func TestStreamIsRight(t *testing.T) {
	for seed := range uint64(24) {
		w := newWorld(t, testPath{loss: 0.02 * float64(seed%4), duplicate: 0.02, overtake: 0.1 * float64(seed%3),
			delay: 20 * time.Millisecond,
			rate:  20 * unit.Mbps, mtu: 1452, queue: 100 * time.Millisecond}, seed)
		if took := w.transfer(400_000+int(seed), 100_000); took > 20*time.Second {
			t.Errorf("seed %d: it took %v", seed, took)
		}
		w.runUntil(time.Minute, func() bool {
			return w.engines[0].sender.isStreamFlushed() && w.engines[1].sender.isStreamFlushed() &&
				w.engines[0].loss.bytesInFlight+w.engines[1].loss.bytesInFlight == 0
		})
		for i, e := range w.engines {
			if e.mtu.size != 1452 && e.mtu.nextProbeTime == 0 {
				t.Errorf("seed %d: the payloads of %d are %d, the path takes 1452", seed, i, e.mtu.size)
			}
			if e.loss.bytesInFlight != 0 || len(e.sender.lost) > 0 || !e.sender.isStreamFlushed() {
				t.Errorf("seed %d: %d in flight, %d to resend at the end", seed, e.loss.bytesInFlight,
					len(e.sender.lost))
			}
		}
	}
}

// TestNoStall: nothing waits for long on a short path, whatever is lost or delayed, including the
// first acknowledgements.
func TestNoStall(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(t, testPath{loss: 0.04, duplicate: 0.02, overtake: 0.03,
			delay: time.Duration(20+seed%7*300) * time.Microsecond, mtu: 1472}, 1200+seed)
		var held [2][]flight // delayed until others have arrived
		w.drop = func(from int, f flight) bool {
			switch x := w.random.Float64(); {
			case x < 0.03 && len(held[from]) < 4:
				held[from] = append(held[from], f)
				return true
			case x < 0.2:
				for _, h := range held[from] {
					h.at = w.now + w.path.delay
					w.push(h)
				}
				held[from] = nil
			}
			return false
		}
		if took := w.transfer(300_000, 300_000); took > 2*time.Second {
			t.Errorf("seed %d: it took %v, %+v", seed, took, w.engines[1].counts)
		}
	}
}

// TestRate: a transfer without random loss uses the rate of the link.
func TestRate(t *testing.T) {
	for r, long := range map[unit.Rate]time.Duration{500 * unit.Kbps: 20 * time.Second, 5 * unit.Mbps: 5 * time.Second,
		30 * unit.Mbps: 2 * time.Second} {
		w := newWorld(t, testPath{delay: 25 * time.Millisecond, rate: r, mtu: 1472, queue: 100 * time.Millisecond}, 1)
		n := int(r.Bytes(long))
		took := w.transfer(n, 0)
		// 1472 of 1500 bytes are payload, and 1434 of the stream at least; the first
		// round trips are slow start.
		got := float64(unit.RateOf(unit.Bytes(n), took)) / float64(r)
		if got < 0.85 {
			t.Errorf("%v: %.3f of the rate, %+v", r, got, w.engines[0].counts)
		}
	}
}

// TestOvertaking: on a path that reorders packets, needless retransmissions end soon.
func TestOvertaking(t *testing.T) {
	w := newWorld(t, testPath{delay: 25 * time.Millisecond, rate: 50 * unit.Mbps, overtake: 0.05, mtu: 1472,
		queue: 200 * time.Millisecond}, 1)
	w.transfer(4<<20, 0)
	if l, packets := &w.engines[0].loss, w.engines[0].counts.packets; l.spuriousCount > packets/50 {
		t.Errorf("%d of %d packets were retransmitted without need", l.spuriousCount, packets)
	}
}

// TestSilence: a peer that vanishes is given up after three keep-alive intervals, with few packets
// until then. Otherwise an idle connection stays open.
func TestSilence(t *testing.T) {
	w := newWorld(t, testPath{delay: 10 * time.Millisecond, mtu: 1472}, 1)
	w.engines[0].sender.writeToBuffer(make([]byte, 100_000))
	gone := false
	w.drop = func(int, flight) bool { return gone }
	for w.now < 10*w.engines[0].liveness.idleTimeout() {
		if !w.step() || w.engines[0].closing.err != nil || w.engines[1].closing.err != nil {
			t.Fatalf("at %v: %v, %v", w.now, w.engines[0].closing.err, w.engines[1].closing.err)
		}
	}
	heard := w.engines[0].liveness.lastReceived
	gone = true
	w.engines[0].sender.writeToBuffer(make([]byte, 100_000))
	sent := w.engines[0].counts.packets
	for w.engines[0].closing.err == nil && w.step() {
	}
	if w.engines[0].closing.err != errIdleTimeout || w.now < heard+w.engines[0].liveness.idleTimeout() ||
		w.now > w.engines[0].liveness.lastReceived+w.engines[0].liveness.idleTimeout()+time.Second {
		t.Errorf("%v at %v, heard at %v", w.engines[0].closing.err, w.now, w.engines[0].liveness.lastReceived)
	}
	if n := w.engines[0].counts.packets - sent; n > 200 {
		t.Errorf("%d packets into silence", n)
	}
}

// TestMTU: the search finds the longest packets of the path despite losses. It also adapts when the
// path changes to shorter or longer packets.
func TestMTU(t *testing.T) {
	for _, c := range []struct{ path, want int }{{1200, 1200}, {1399, 1200}, {1400, 1400}, {1464, 1452}, {1472, 1472},
		{9000, maxPayload}} {
		for _, loss := range []float64{0, 0.1} {
			w := newWorld(t, testPath{delay: 10 * time.Millisecond, rate: 10 * unit.Mbps, queue: 100 * time.Millisecond,
				mtu: c.path, loss: loss}, 3)
			w.keepSending(0)
			w.runUntil(10*time.Second, func() bool {
				return w.engines[0].mtu.size == c.want &&
					w.engines[0].mtu.nextProbeTime > w.now
			})
			if got := w.engines[0].mtu.size; got != c.want && loss == 0 {
				t.Errorf("on a path of %d: %d", c.path, got)
			}
			w.runUntil(20*time.Minute, func() bool { return w.engines[0].mtu.size == c.want })
			if got := w.engines[0].mtu.size; got != c.want {
				t.Errorf("on a path of %d that loses %v: %d", c.path, loss, got)
			}
		}
	}
	w := newWorld(t, testPath{delay: 10 * time.Millisecond, rate: 10 * unit.Mbps, queue: 100 * time.Millisecond,
		mtu: 1472}, 4)
	w.keepSending(0)
	for _, c := range []struct {
		path, want int
		within     time.Duration
	}{{1472, 1472, time.Second}, {1300, minPayload, 3 * time.Second}, {1472, 1472, 30 * time.Second}} {
		w.path.mtu = c.path
		begun, had := w.now, w.engines[1].receiver.readOffset
		w.runUntil(c.within, func() bool {
			return w.engines[0].mtu.size == c.want &&
				w.engines[1].receiver.readOffset > had
		})
		if got := w.engines[0].mtu.size; got != c.want || w.engines[1].receiver.readOffset == had {
			t.Errorf("path %d for %v: packets of %d, %d bytes arrived", c.path, w.now-begun, got,
				w.engines[1].receiver.readOffset-had)
		}
	}
}

// TestRefused: packets that the local system refuses are not counted, and a refused probe is not
// repeated soon.
func TestRefused(t *testing.T) {
	w := newWorld(t, testPath{delay: 10 * time.Millisecond, rate: 10 * unit.Mbps, queue: 100 * time.Millisecond,
		mtu: 1472}, 3)
	tried := 0
	w.drop = func(from int, f flight) bool {
		if from == 0 && f.size == maxPayload+28 {
			tried++
			before := w.engines[0].counts.wireOut
			w.engines[0].onPacketsRefused(1, maxPayload)
			if got := before - w.engines[0].counts.wireOut; got != maxPayload+28 {
				t.Errorf("%d bytes are not counted", got)
			}
			return true
		}
		return false
	}
	w.path.mtu = maxPayload
	w.keepSending(0)
	w.runUntil(4*time.Second, func() bool { return false })
	if e := w.engines[0]; tried != 1 || e.mtu.size != 1472 {
		t.Errorf("it was tried %d times; packets are of %d", tried, e.mtu.size)
	}
}

// keepSending lets engine i write, and the other read, without end.
func (w *world) keepSending(i int) {
	buf := make([]byte, 64<<10)
	w.each = func() {
		w.engines[i].sender.writeToBuffer(buf[:min(len(buf), max(0, 1<<20-int(w.engines[i].sender.unsentBytes())))])
		for n := 1; n > 0; {
			n, _ = w.engines[1-i].readAvailable(w.now, buf)
		}
	}
	w.each()
	w.send(i)
}

// runUntil steps until ok returns true, or for long.
func (w *world) runUntil(long time.Duration, ok func() bool) {
	for end := w.now + long; w.now < end && !ok() && w.step(); {
	}
}

// TestReplay: a packet with a number too old to check does nothing.
func TestReplay(t *testing.T) {
	e := newConnEngine(cc.NewCUBIC(), 28)
	ping := []byte{framePing}
	if err := e.handlePacketFrames(time.Second, 0, ping); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(maxReceivedRanges + 3) { // each a range of its own: 0 is forgotten
		e.handlePacketFrames(time.Second, 10+2*i, ping)
	}
	for i := range uint64(20) { // which are joined again, so that there are few
		e.handlePacketFrames(time.Second, 10+2*maxReceivedRanges-2*i+1, ping)
	}
	before := e.counts.duplicate + e.counts.tooOld
	for _, number := range []uint64{0, 1, 10, 10 + 2*maxReceivedRanges} {
		if err := e.handlePacketFrames(time.Second, number, []byte{frameClose, 0}); err != nil || e.closing.err != nil {
			t.Fatalf("duplicate packet %d is handled: %v, %v", number, err, e.closing.err)
		}
	}
	if got := e.counts.duplicate + e.counts.tooOld - before; got != 4 {
		t.Errorf("%d of 4 are known", got)
	}
	e.handlePacketFrames(time.Second, 1000, []byte{frameClose, 0})
	if e.closing.err != errClosedByPeer {
		t.Error("the CLOSE of a new packet is not taken")
	}
}

// TestGaps: a peer that sends every other byte must send again what exceeds the limit of gaps.
// Nothing is lost.
func TestGaps(t *testing.T) {
	e := newConnEngine(cc.NewCUBIC(), 28)
	stream := func(at uint64) []byte { return []byte{frameStream, byte(at&127 | 128), byte(at >> 7), 1, byte(at)} }
	const n = maxReceiveRanges + 10
	for i := range uint64(n) {
		if err := e.handlePacketFrames(time.Second, i, stream(2*i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if len(e.receiver.receivedRanges) < maxReceiveRanges || e.acks.received.Has(n-1) {
		t.Fatalf("%d gaps; the last packet is received: %v", len(e.receiver.receivedRanges), e.acks.received.Has(n-1))
	}
	for i := range uint64(n) {
		e.handlePacketFrames(time.Second, n+i, stream(2*i))
	}
	for i := range uint64(n) {
		e.handlePacketFrames(time.Second, 2*n+i, stream(2*i+1))
	}
	buf := make([]byte, 3*n)
	k, _ := e.readAvailable(time.Second, buf)
	for i, b := range buf[:k] {
		if b != byte(i) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	if k != 2*n {
		t.Errorf("%d of %d bytes", k, 2*n)
	}
}

// TestBreaches: packets that no valid peer sends are refused before they take memory.
func TestBreaches(t *testing.T) {
	fin := func(at byte) []byte { return []byte{frameFin, at} }
	data := func(at byte) []byte { return []byte{frameStream, at, 2, 'a', 'b'} }
	far := []byte{frameStream, 0x80, 0x80, 0x40, 1, 'x'} // at 2^20
	for what, packets := range map[string][][]byte{
		"data over the window":        {far},
		"data after the end":          {fin(4), data(5)},
		"an end before data":          {data(5), fin(4)},
		"two ends":                    {fin(4), fin(5)},
		"an unknown frame":            {{0x55}},
		"a frame that is not all one": {{frameStream, 0, 9, 'a'}},
	} {
		e := newConnEngine(cc.NewCUBIC(), 28)
		var err error
		for i, p := range packets {
			if err != nil {
				t.Errorf("%s: packet %d is refused already", what, i-1)
			}
			err = e.handlePacketFrames(time.Second, uint64(i), p)
		}
		if err == nil {
			t.Errorf("%s is accepted", what)
		}
		if len(e.receiver.buf.buf) > initialWindow {
			t.Errorf("%s: %d bytes of memory", what, len(e.receiver.buf.buf))
		}
	}
}

// TestFalseAck: an acknowledgement of packets never sent changes nothing.
func TestFalseAck(t *testing.T) {
	e := newConnEngine(cc.NewCUBIC(), 28)
	e.sender.writeToBuffer(make([]byte, 5000))
	for ok := true; ok; {
		_, _, ok = e.appendPacket(time.Second, nil)
	}
	flying, room := e.loss.bytesInFlight, e.sender.maxData
	a := ackFrame{maxData: 1 << 30, count: 1, ranges: [maxAckRanges]ackRange{{0, e.loss.numbers.next}}}
	if err := e.handlePacketFrames(time.Second, 0, a.appendEncodedAck(nil)); err != nil ||
		e.loss.bytesInFlight != flying ||
		e.sender.maxData != room || flying == 0 {
		t.Errorf("%v, %d in flight of %d, room to %d", err, e.loss.bytesInFlight, flying, e.sender.maxData)
	}
}

// fixedWindow is a controller with a constant window.
type fixedWindow struct {
	cc.Controller
	window unit.Bytes
}

func (f fixedWindow) Limits(time.Duration) cc.Limits { return cc.Limits{Window: f.window} }

// TestSmallWindow: one packet may always be in flight, even if it is longer than the window.
func TestSmallWindow(t *testing.T) {
	e := newConnEngine(fixedWindow{cc.NewCUBIC(), cc.MSS}, 28)
	e.mtu = mtuSearch{size: maxPayload, fixed: true}
	e.sender.writeToBuffer(make([]byte, 20_000))
	e.liveness.lastReceived, e.liveness.lastSent = time.Second, time.Second
	if at := e.nextWakeTime(time.Second); at != time.Second {
		t.Errorf("it waits until %v", at)
	}
	for i, want := range []bool{true, false} {
		if _, _, ok := e.appendPacket(time.Second, nil); ok != want {
			t.Errorf("packet %d leaves: %v", i, ok)
		}
	}
}

// TestSwitchPath: a new path starts without state of the old one, and no bytes are lost.
func TestSwitchPath(t *testing.T) {
	w := newWorld(t, testPath{delay: 100 * time.Millisecond, rate: 10 * unit.Mbps, queue: time.Second, mtu: 1472}, 5)
	w.keepSending(0)
	w.runUntil(3*time.Second, func() bool { return false })
	w.drop = func(int, flight) bool { return w.now < 3100*time.Millisecond } // packets still on the old path are lost
	w.packets.Clear()
	w.path = testPath{delay: 5 * time.Millisecond, rate: 50 * unit.Mbps, queue: 50 * time.Millisecond, mtu: 1300}
	for _, e := range w.engines {
		e.switchPath(w.now, cc.NewCUBIC())
	}
	had := w.engines[1].receiver.readOffset
	w.runUntil(3*time.Second, func() bool { return false })
	if e := w.engines[0]; e.loss.rtt.min > 20*time.Millisecond || e.mtu.size != minPayload || e.closing.err != nil {
		t.Errorf("least round trip %v, packets of %d, %v", e.loss.rtt.min, e.mtu.size, e.closing.err)
	}
	if got := w.engines[1].receiver.readOffset - had; got < 8<<20 {
		t.Errorf("%d bytes in 3 s of 50 Mbit/s", got)
	}
}

// TestFeedback: each ACK has the receiver's feedback. The receiver gets the one-way delay of each
// packet and the sender's minimum RTT.
func TestFeedback(t *testing.T) {
	w := newWorld(t, testPath{delay: 20 * time.Millisecond, rate: 10 * unit.Mbps, queue: 50 * time.Millisecond,
		mtu: 1472}, 6)
	var least, most, rtprop time.Duration
	reports := 0
	w.engines[1].radio.report = func(now, oneWay, rt time.Duration, _ unit.Bytes) cc.CellFeedback {
		reports++
		least, most, rtprop = min(least, oneWay), max(most, oneWay), rt
		return cc.CellFeedback{TransportRate: unit.Rate(reports) * unit.Mbps, Activated: 3}
	}
	w.transfer(2<<20, 0)
	w.runUntil(time.Second, w.engines[0].sender.isStreamFlushed)
	if got := w.engines[0].radio.incoming; got.TransportRate != unit.Rate(reports)*unit.Mbps || got.Activated != 3 {
		t.Errorf("%+v after %d packets", got, reports)
	}
	// The queue is 50 ms; the first packet found it empty.
	if least < -time.Millisecond || most < 30*time.Millisecond || most > 60*time.Millisecond ||
		rtprop < 40*time.Millisecond || rtprop > 60*time.Millisecond {
		t.Errorf("one-way delays from %v to %v, round trip %v", least, most, rtprop)
	}
}

// TestFeedbackAge: feedback of the newest packet counts, however late others arrive. Old feedback
// and that of another path is not repeated.
func TestFeedbackAge(t *testing.T) {
	e := newConnEngine(cc.NewCUBIC(), 28)
	first, second := cc.CellFeedback{TransportRate: unit.Mbps}, cc.CellFeedback{TransportRate: 2 * unit.Mbps}
	for _, p := range []struct {
		number uint64
		radio  cc.CellFeedback
	}{{5, second}, {4, first}} {
		if err := e.handlePacketFrames(time.Second, p.number, appendRadio(nil, p.radio)); err != nil {
			t.Fatal(err)
		}
	}
	if e.radio.incoming != second || e.radio.current.TransportRate != 0 {
		t.Errorf("after a packet that was overtaken: %+v, and of itself %+v", e.radio.incoming, e.radio.current)
	}
	if e.switchPath(time.Second, cc.NewCUBIC()); e.radio.incoming.TransportRate != 0 {
		t.Errorf("on another path still %+v", e.radio.incoming)
	}
	e.radio.report = func(_, _, _ time.Duration, _ unit.Bytes) cc.CellFeedback { return first }
	if err := e.handlePacketFrames(2*time.Second, 6, append(appendStamp(nil, time.Second, 0), framePing)); err != nil {
		t.Fatal(err)
	}
	says := func(at time.Duration) bool {
		for r := (frameReader{buf: e.appendAckAndRadio(at, nil)}); len(r.buf) > 0; {
			if err := r.readNextFrame(&e.frame); err != nil {
				t.Fatal(err)
			}
			if e.frame.kind == frameRadio {
				return true
			}
		}
		return false
	}
	if !says(2*time.Second+reportLifetime) || says(2*time.Second+reportLifetime+1) {
		t.Error("news of cells are repeated when they are old, or not when they are not")
	}
	if e.radio.resetReceiving(e.radio.report); says(2 * time.Second) {
		t.Error("feedback of another path is sent")
	}
}
