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

// path is what happens to packets between two engines.
type path struct {
	loss, duplicate, overtake float64
	delay                     time.Duration
	rate                      unit.Rate // 0: any
	mtu                       int       // of payloads
	queue                     time.Duration
}

type flight struct {
	at     time.Duration
	to     int
	number uint64
	frames []byte
	size   unit.Bytes
}

// world runs two engines in virtual time.
type world struct {
	t    testing.TB
	e    [2]*engine
	p    path
	rnd  *rand.Rand
	q    event.Queue[flight]
	busy [2]time.Duration // of the link in each direction
	now  time.Duration
	buf  []byte
	// drop, if set, says which packets of a direction are lost.
	drop func(from int, f flight) bool
	each func() // in each step
	// trace, if set, is called with each packet that an engine sends ('s') or receives ('r').
	trace func(what byte, end int, number uint64, frames []byte)
	// refuse, if set, is called with an error of handle, which else fails the test.
	refuse func(end int, err error)
	alarm  time.Duration // step goes no further than this; 0: as far as the next event
}

func newWorld(t testing.TB, p path, seed uint64) *world {
	w := &world{t: t, p: p, rnd: rand.New(rand.NewPCG(seed, 9)), now: time.Second}
	for i := range w.e {
		w.e[i] = newEngine(cc.NewCUBIC(), 28)
		w.e[i].live.lastReceived, w.e[i].live.lastSent = time.Second, time.Second
		w.e[i].loss.numbers.draw, w.e[i].loss.numbers.skipAt = w.rnd.Uint64N, skipEvery/2
	}
	return w
}

// send lets engine i send what it may.
func (w *world) send(i int) {
	for {
		b, number, ok := w.e[i].poll(w.now, w.buf[:0])
		w.buf = b
		if !ok {
			return
		}
		if w.trace != nil {
			w.trace('s', i, number, b)
		}
		f := flight{to: 1 - i, number: number, frames: bytes.Clone(b), size: unit.Bytes(len(b)+overhead) + 28}
		if len(b)+overhead > max(w.p.mtu, minPayload) || w.rnd.Float64() < w.p.loss || w.drop != nil && w.drop(i, f) {
			continue
		}
		at := w.now
		if w.p.rate > 0 {
			if w.busy[i] > w.now+w.p.queue {
				continue
			}
			w.busy[i] = max(w.busy[i], w.now) + w.p.rate.Time(f.size)
			at = w.busy[i]
		}
		f.at = at + w.p.delay
		if w.rnd.Float64() < w.p.overtake {
			f.at += time.Duration(w.rnd.Int64N(int64(20 * time.Millisecond)))
		}
		w.push(f)
		if w.rnd.Float64() < w.p.duplicate {
			f.at += time.Duration(w.rnd.Int64N(int64(50 * time.Millisecond)))
			w.push(f)
		}
	}
}

func (w *world) push(f flight) { w.q.Push(f.at, f) }

// step goes to the next moment at which something happens.
func (w *world) step() bool {
	at := time.Duration(-1)
	for _, e := range w.e {
		if t := e.wait(w.now); t >= 0 && (at < 0 || t < at) {
			at = t
		}
	}
	if w.q.Len() > 0 && (at < 0 || w.q.Next() < at) {
		at = w.q.Next()
	}
	if w.alarm > 0 && (at < 0 || w.alarm < at) {
		at = w.alarm
	}
	if at < 0 {
		return false
	}
	w.now = max(w.now, at)
	for w.q.Len() > 0 && w.q.Next() <= w.now {
		_, f := w.q.Pop()
		if w.trace != nil {
			w.trace('r', f.to, f.number, f.frames)
		}
		switch err := w.e[f.to].handle(w.now, f.number, f.frames); {
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
	for i, e := range w.e {
		e.tick(w.now)
		w.send(i)
	}
	return true
}

// transfer moves n bytes from engine 0 to 1 and m back, and returns how long it
// took.
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
		for i, e := range w.e {
			wrote[i] += e.send.write(data[i][wrote[i]:])
			if wrote[i] == len(data[i]) {
				e.send.fin = true
			}
			for {
				k, err := e.take(w.now, buf)
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
				w.t.Fatalf("stuck at %v: %d of %d and %d of %d; %+v", w.now, len(got[0]), n, len(got[1]), m, w.e[0].counts)
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

// TestStreamIsRight: loss, duplication and overtaking at once. What is damaged is
// lost: its tag is wrong.
func TestStreamIsRight(t *testing.T) {
	for seed := range uint64(24) {
		w := newWorld(t, path{loss: 0.02 * float64(seed%4), duplicate: 0.02, overtake: 0.1 * float64(seed%3), delay: 20 * time.Millisecond,
			rate: 20 * unit.Mbps, mtu: 1452, queue: 100 * time.Millisecond}, seed)
		if took := w.transfer(400_000+int(seed), 100_000); took > 20*time.Second {
			t.Errorf("seed %d: it took %v", seed, took)
		}
		w.until(time.Minute, func() bool {
			return w.e[0].send.isFlushed() && w.e[1].send.isFlushed() && w.e[0].loss.bytesInFlight+w.e[1].loss.bytesInFlight == 0
		})
		for i, e := range w.e {
			if e.mtu.size != 1452 && e.mtu.at == 0 {
				t.Errorf("seed %d: the payloads of %d are %d, the path takes 1452", seed, i, e.mtu.size)
			}
			if e.loss.bytesInFlight != 0 || len(e.send.lost) > 0 || !e.send.isFlushed() {
				t.Errorf("seed %d: %d in flight, %d to resend at the end", seed, e.loss.bytesInFlight, len(e.send.lost))
			}
		}
	}
}

// TestNoStall: whatever is lost or held back on a short path, even the first
// acknowledgements, nothing waits for long.
func TestNoStall(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(t, path{loss: 0.04, duplicate: 0.02, overtake: 0.03, delay: time.Duration(20+seed%7*300) * time.Microsecond, mtu: 1472}, 1200+seed)
		var held [2][]flight // until others have gone
		w.drop = func(from int, f flight) bool {
			switch x := w.rnd.Float64(); {
			case x < 0.03 && len(held[from]) < 4:
				held[from] = append(held[from], f)
				return true
			case x < 0.2:
				for _, h := range held[from] {
					h.at = w.now + w.p.delay
					w.push(h)
				}
				held[from] = nil
			}
			return false
		}
		if took := w.transfer(300_000, 300_000); took > 2*time.Second {
			t.Errorf("seed %d: it took %v, %+v", seed, took, w.e[1].counts)
		}
	}
}

// TestRate: without loss of its own a transfer has the rate of the link.
func TestRate(t *testing.T) {
	for r, long := range map[unit.Rate]time.Duration{500 * unit.Kbps: 20 * time.Second, 5 * unit.Mbps: 5 * time.Second, 30 * unit.Mbps: 2 * time.Second} {
		w := newWorld(t, path{delay: 25 * time.Millisecond, rate: r, mtu: 1472, queue: 100 * time.Millisecond}, 1)
		n := int(r.Bytes(long))
		took := w.transfer(n, 0)
		// 1472 of 1500 bytes are payload, and 1434 of the stream at least; the first
		// round trips are slow start.
		got := float64(unit.RateOf(unit.Bytes(n), took)) / float64(r)
		if got < 0.85 {
			t.Errorf("%v: %.3f of the rate, %+v", r, got, w.e[0].counts)
		}
	}
}

// TestOvertaking: where packets overtake each other nothing is resent for long.
func TestOvertaking(t *testing.T) {
	w := newWorld(t, path{delay: 25 * time.Millisecond, rate: 50 * unit.Mbps, overtake: 0.05, mtu: 1472, queue: 200 * time.Millisecond}, 1)
	w.transfer(4<<20, 0)
	if l, packets := &w.e[0].loss, w.e[0].counts.packets; l.spurious > packets/50 {
		t.Errorf("%d of %d packets were resent without need", l.spurious, packets)
	}
}

// TestSilence: the far end vanishes; it is given up after three keep-alive intervals, and little is
// sent until then. Without that the connection lives, though nobody says anything.
func TestSilence(t *testing.T) {
	w := newWorld(t, path{delay: 10 * time.Millisecond, mtu: 1472}, 1)
	w.e[0].send.write(make([]byte, 100_000))
	gone := false
	w.drop = func(int, flight) bool { return gone }
	for w.now < 10*w.e[0].live.idleTimeout() {
		if !w.step() || w.e[0].closing.err != nil || w.e[1].closing.err != nil {
			t.Fatalf("at %v: %v, %v", w.now, w.e[0].closing.err, w.e[1].closing.err)
		}
	}
	heard := w.e[0].live.lastReceived
	gone = true
	w.e[0].send.write(make([]byte, 100_000))
	sent := w.e[0].counts.packets
	for w.e[0].closing.err == nil && w.step() {
	}
	if w.e[0].closing.err != errDead || w.now < heard+w.e[0].live.idleTimeout() || w.now > w.e[0].live.lastReceived+w.e[0].live.idleTimeout()+time.Second {
		t.Errorf("%v at %v, heard at %v", w.e[0].closing.err, w.now, w.e[0].live.lastReceived)
	}
	if n := w.e[0].counts.packets - sent; n > 200 {
		t.Errorf("%d packets into silence", n)
	}
}

// TestMTU: the longest packets that the path carries are found, whatever else is
// lost; when it becomes shorter, too, though nothing says so; and when it becomes
// longer again.
func TestMTU(t *testing.T) {
	for _, c := range []struct{ path, want int }{{1200, 1200}, {1399, 1200}, {1400, 1400}, {1464, 1452}, {1472, 1472}, {9000, maxPayload}} {
		for _, loss := range []float64{0, 0.1} {
			w := newWorld(t, path{delay: 10 * time.Millisecond, rate: 10 * unit.Mbps, queue: 100 * time.Millisecond, mtu: c.path, loss: loss}, 3)
			w.forever(0)
			w.until(10*time.Second, func() bool { return w.e[0].mtu.size == c.want && w.e[0].mtu.at > w.now })
			if got := w.e[0].mtu.size; got != c.want && loss == 0 {
				t.Errorf("on a path of %d: %d", c.path, got)
			}
			w.until(20*time.Minute, func() bool { return w.e[0].mtu.size == c.want })
			if got := w.e[0].mtu.size; got != c.want {
				t.Errorf("on a path of %d that loses %v: %d", c.path, loss, got)
			}
		}
	}
	w := newWorld(t, path{delay: 10 * time.Millisecond, rate: 10 * unit.Mbps, queue: 100 * time.Millisecond, mtu: 1472}, 4)
	w.forever(0)
	for _, c := range []struct {
		path, want int
		within     time.Duration
	}{{1472, 1472, time.Second}, {1300, minPayload, 3 * time.Second}, {1472, 1472, 30 * time.Second}} {
		w.p.mtu = c.path
		begun, had := w.now, w.e[1].recv.read
		w.until(c.within, func() bool { return w.e[0].mtu.size == c.want && w.e[1].recv.read > had })
		if got := w.e[0].mtu.size; got != c.want || w.e[1].recv.read == had {
			t.Errorf("path %d for %v: packets of %d, %d bytes arrived", c.path, w.now-begun, got, w.e[1].recv.read-had)
		}
	}
}

// TestRefused: what this device does not take is not counted, and a probe not tried
// again soon.
func TestRefused(t *testing.T) {
	w := newWorld(t, path{delay: 10 * time.Millisecond, rate: 10 * unit.Mbps, queue: 100 * time.Millisecond, mtu: 1472}, 3)
	tried := 0
	w.drop = func(from int, f flight) bool {
		if from == 0 && f.size == maxPayload+28 {
			tried++
			before := w.e[0].counts.wireOut
			w.e[0].refused(1, maxPayload)
			if got := before - w.e[0].counts.wireOut; got != maxPayload+28 {
				t.Errorf("%d bytes are not counted", got)
			}
			return true
		}
		return false
	}
	w.p.mtu = maxPayload
	w.forever(0)
	w.until(4*time.Second, func() bool { return false })
	if e := w.e[0]; tried != 1 || e.mtu.size != 1472 {
		t.Errorf("it was tried %d times; packets are of %d", tried, e.mtu.size)
	}
}

// forever lets engine i write, and the other read, without end.
func (w *world) forever(i int) {
	buf := make([]byte, 64<<10)
	w.each = func() {
		w.e[i].send.write(buf[:min(len(buf), max(0, 1<<20-int(w.e[i].send.unsent())))])
		for n := 1; n > 0; {
			n, _ = w.e[1-i].take(w.now, buf)
		}
	}
	w.each()
	w.send(i)
}

// until steps until ok, or for so long.
func (w *world) until(long time.Duration, ok func() bool) {
	for end := w.now + long; w.now < end && !ok() && w.step(); {
	}
}

// TestReplay: a packet whose number is older than what is remembered does nothing.
func TestReplay(t *testing.T) {
	e := newEngine(cc.NewCUBIC(), 28)
	ping := []byte{framePing}
	if err := e.handle(time.Second, 0, ping); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(maxKept + 3) { // each a range of its own: 0 is forgotten
		e.handle(time.Second, 10+2*i, ping)
	}
	for i := range uint64(20) { // which are joined again, so that there are few
		e.handle(time.Second, 10+2*maxKept-2*i+1, ping)
	}
	before := e.counts.duplicate + e.counts.old
	for _, number := range []uint64{0, 1, 10, 10 + 2*maxKept} {
		if err := e.handle(time.Second, number, []byte{frameClose, 0}); err != nil || e.closing.err != nil {
			t.Fatalf("packet %d is taken again: %v, %v", number, err, e.closing.err)
		}
	}
	if got := e.counts.duplicate + e.counts.old - before; got != 4 {
		t.Errorf("%d of 4 are known", got)
	}
	e.handle(time.Second, 1000, []byte{frameClose, 0})
	if e.closing.err != errPeer {
		t.Error("the CLOSE of a new packet is not taken")
	}
}

// TestGaps: who sends every other byte is made to send again what there is no room
// for, and nothing is lost.
func TestGaps(t *testing.T) {
	e := newEngine(cc.NewCUBIC(), 28)
	stream := func(at uint64) []byte { return []byte{frameStream, byte(at&127 | 128), byte(at >> 7), 1, byte(at)} }
	const n = maxGaps + 10
	for i := range uint64(n) {
		if err := e.handle(time.Second, i, stream(2*i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if len(e.recv.got) < maxGaps || e.acks.received.Has(n-1) {
		t.Fatalf("%d gaps; the last packet is received: %v", len(e.recv.got), e.acks.received.Has(n-1))
	}
	for i := range uint64(n) {
		e.handle(time.Second, n+i, stream(2*i))
	}
	for i := range uint64(n) {
		e.handle(time.Second, 2*n+i, stream(2*i+1))
	}
	buf := make([]byte, 3*n)
	k, _ := e.take(time.Second, buf)
	for i, b := range buf[:k] {
		if b != byte(i) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	if k != 2*n {
		t.Errorf("%d of %d bytes", k, 2*n)
	}
}

// TestBreaches: what no peer of ours sends is refused, before it costs memory.
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
		e := newEngine(cc.NewCUBIC(), 28)
		var err error
		for i, p := range packets {
			if err != nil {
				t.Errorf("%s: packet %d is refused already", what, i-1)
			}
			err = e.handle(time.Second, uint64(i), p)
		}
		if err == nil {
			t.Errorf("%s is taken", what)
		}
		if len(e.recv.buf.b) > firstWindow {
			t.Errorf("%s: %d bytes of memory", what, len(e.recv.buf.b))
		}
	}
}

// TestLyingAck: an acknowledgement of what was never sent changes nothing.
func TestLyingAck(t *testing.T) {
	e := newEngine(cc.NewCUBIC(), 28)
	e.send.write(make([]byte, 5000))
	for ok := true; ok; {
		_, _, ok = e.poll(time.Second, nil)
	}
	flying, room := e.loss.bytesInFlight, e.send.maxData
	a := ackFrame{window: 1 << 30, n: 1, spans: [maxRanges]ackRange{{0, e.loss.numbers.next}}}
	if err := e.handle(time.Second, 0, a.append(nil)); err != nil || e.loss.bytesInFlight != flying || e.send.maxData != room || flying == 0 {
		t.Errorf("%v, %d in flight of %d, room to %d", err, e.loss.bytesInFlight, flying, e.send.maxData)
	}
}

// fixed is a controller whose window stays, whatever is lost.
type fixed struct {
	cc.Controller
	window unit.Bytes
}

func (f fixed) Limits(time.Duration) cc.Limits { return cc.Limits{Window: f.window} }

// TestSmallWindow: one packet may always be in flight, though it is longer than the
// window.
func TestSmallWindow(t *testing.T) {
	e := newEngine(fixed{cc.NewCUBIC(), cc.MSS}, 28)
	e.mtu = mtuSearch{size: maxPayload, fixed: true}
	e.send.write(make([]byte, 20_000))
	e.live.lastReceived, e.live.lastSent = time.Second, time.Second
	if at := e.wait(time.Second); at != time.Second {
		t.Errorf("it waits until %v", at)
	}
	for i, want := range []bool{true, false} {
		if _, _, ok := e.poll(time.Second, nil); ok != want {
			t.Errorf("packet %d leaves: %v", i, ok)
		}
	}
}

// TestReroute: on another path nothing of the old one holds, and nothing is lost.
func TestReroute(t *testing.T) {
	w := newWorld(t, path{delay: 100 * time.Millisecond, rate: 10 * unit.Mbps, queue: time.Second, mtu: 1472}, 5)
	w.forever(0)
	w.until(3*time.Second, func() bool { return false })
	w.drop = func(int, flight) bool { return w.now < 3100*time.Millisecond } // what is still on the old one
	w.q.Clear()
	w.p = path{delay: 5 * time.Millisecond, rate: 50 * unit.Mbps, queue: 50 * time.Millisecond, mtu: 1300}
	for _, e := range w.e {
		e.reroute(w.now, cc.NewCUBIC())
	}
	had := w.e[1].recv.read
	w.until(3*time.Second, func() bool { return false })
	if e := w.e[0]; e.loss.rtt.min > 20*time.Millisecond || e.mtu.size != minPayload || e.closing.err != nil {
		t.Errorf("least round trip %v, packets of %d, %v", e.loss.rtt.min, e.mtu.size, e.closing.err)
	}
	if got := w.e[1].recv.read - had; got < 8<<20 {
		t.Errorf("%d bytes in 3 s of 50 Mbit/s", got)
	}
}

// TestFeedback: what the receiver says of its cells is in each acknowledgement, and
// it is told each packet's one-way delay and the sender's least round trip.
func TestFeedback(t *testing.T) {
	w := newWorld(t, path{delay: 20 * time.Millisecond, rate: 10 * unit.Mbps, queue: 50 * time.Millisecond, mtu: 1472}, 6)
	var least, most, rtprop time.Duration
	told := 0
	w.e[1].radio.report = func(now, oneWay, rt time.Duration) cc.Radio {
		told++
		least, most, rtprop = min(least, oneWay), max(most, oneWay), rt
		return cc.Radio{Capacity: unit.Rate(told) * unit.Mbps, Activated: 3}
	}
	w.transfer(2<<20, 0)
	w.until(time.Second, w.e[0].send.isFlushed)
	if got := w.e[0].radio.incoming; got.Capacity != unit.Rate(told)*unit.Mbps || got.Activated != 3 {
		t.Errorf("%+v after %d packets", got, told)
	}
	// The queue is 50 ms; the first packet found it empty.
	if least < -time.Millisecond || most < 30*time.Millisecond || most > 60*time.Millisecond || rtprop < 40*time.Millisecond || rtprop > 60*time.Millisecond {
		t.Errorf("one-way delays from %v to %v, round trip %v", least, most, rtprop)
	}
}

// TestFeedbackAge: news of cells are those of the newest packet, however late others
// come; they are not repeated when they are old, and are not those of another path.
func TestFeedbackAge(t *testing.T) {
	e := newEngine(cc.NewCUBIC(), 28)
	first, second := cc.Radio{Capacity: unit.Mbps}, cc.Radio{Capacity: 2 * unit.Mbps}
	for _, p := range []struct {
		number uint64
		radio  cc.Radio
	}{{5, second}, {4, first}} {
		if err := e.handle(time.Second, p.number, appendRadio(nil, p.radio)); err != nil {
			t.Fatal(err)
		}
	}
	if e.radio.incoming != second || e.radio.current.Capacity != 0 {
		t.Errorf("after a packet that was overtaken: %+v, and of itself %+v", e.radio.incoming, e.radio.current)
	}
	if e.reroute(time.Second, cc.NewCUBIC()); e.radio.incoming.Capacity != 0 {
		t.Errorf("on another path still %+v", e.radio.incoming)
	}
	e.radio.report = func(now, oneWay, rtprop time.Duration) cc.Radio { return first }
	if err := e.handle(2*time.Second, 6, append(appendStamp(nil, time.Second, 0), framePing)); err != nil {
		t.Fatal(err)
	}
	says := func(at time.Duration) bool {
		for r := (reader{b: e.appendAck(at, nil)}); len(r.b) > 0; {
			if err := r.next(&e.frame); err != nil {
				t.Fatal(err)
			}
			if e.frame.kind == frameRadio {
				return true
			}
		}
		return false
	}
	if !says(2*time.Second+reportFor) || says(2*time.Second+reportFor+1) {
		t.Error("news of cells are repeated when they are old, or not when they are not")
	}
	if e.radio.resetReceiving(e.radio.report); says(2 * time.Second) {
		t.Error("those of another way are told")
	}
}
