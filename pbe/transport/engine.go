package transport

import (
	"io"
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// Specification.
const (
	packetThreshold = 3                      // RFC 9002 section 6.1.1; grows where packets overtake each other
	granularity     = time.Millisecond       // RFC 9002 section 6.1.2
	feedbackFor     = 100 * time.Millisecond // what was said of the cells goes with acknowledgements that are told again
	closingFor      = 3                      // probe timeouts in which a CLOSE goes again (RFC 9000 section 10.2)
	persistent      = 3                      // probe timeouts of nothing but losses (RFC 9002 section 7.6.1)
)

// Tuning.
const (
	maxThreshold = 300                    // as Linux' tcp_max_reordering
	firstTimeout = 500 * time.Millisecond // until a round trip is known
	maxTimeout   = time.Second            // if the round trip is not longer
	burst        = 2 * time.Millisecond   // what the pacer lets go at once, to make up for late wakings
	keepAlive    = 15 * time.Second       // under the 30 s after which many NATs forget (RFC 4787 asks for 2 minutes)
	deadAfter    = 3 * keepAlive
	skipEvery    = 256     // packets or so; then a number is left out
	maxFlying    = 1 << 16 // packets sent that are remembered
	maxQuiet     = 1 << 12 // of them, those that ask for no ACK
)

// packet is one that was sent.
type packet struct {
	sent   time.Duration
	size   unit.Bytes // on the wire while it is in flight, else 0
	mark   cc.Mark
	lo, hi uint64 // of the stream, lo == hi for none
	fin    bool
	probe  bool   // of the path's MTU
	lost   bool   // and nothing was heard of it since
	quiet  bool   // it asks for no ACK, so that none may ever come
	acks   uint64 // its ACK is of so many packets that ask for one
}

// carry notes what of the stream the packet carries; segment returns it.
func (p *packet) carry(seg segment) { p.lo, p.hi, p.fin = seg.lo, seg.hi, seg.fin }

func (p *packet) segment() segment { return segment{p.lo, p.hi, p.fin} }

// engine is one end of a connection without sockets and clocks: packets and the
// time go in, packets come out. Times are those since any fixed moment, over 0, and
// never go back. It is not safe for concurrent use.
type engine struct {
	ctl     cc.Controller
	sampler cc.Sampler
	header  unit.Bytes // of IP and UDP
	now     time.Duration

	send sender
	recv receiver

	// Sending packets.
	number       uint64 // of the next packet
	flying       flying // maxFlying at most
	quiet        int    // of them, maxQuiet at most
	inFlight     unit.Bytes
	ackedNumbers spans                 // numbers that were acknowledged, of those in flying
	fresh        []span                // of them, those that the newest ACK told first, from the highest downwards
	skipAt       uint64                // this number is left out
	skipped      []uint64              // the last numbers left out, ascending
	draw         func(n uint64) uint64 // under n, as nobody can foretell
	missing      []uint64              // in flight though a later one was acknowledged, ascending; and some that came late
	largest      uint64                // highest acknowledged + 1
	reorder      uint64                // threshold
	may          time.Duration         // the pacer lets the next one go
	pace         unit.Rate             // that the pacer lets go at most; 0: what the controller says
	srtt         time.Duration
	rttvar       time.Duration
	minRTT       time.Duration
	latest       time.Duration // round trip
	firstRTT     time.Duration // when a round trip was first known; 0: none is
	asked        time.Duration // when the last packet that asks for an ACK left
	lossAt       time.Duration // then packets may be late; 0: none
	timeouts     int           // in turn
	ping         bool          // something that asks for an ACK must leave
	mtu          mtuSearch
	wayBase      uint32 // the peer's first one-way delay, by clocks that differ
	wayKnown     bool

	// Receiving packets.
	acks     ackTracker
	frame    frame
	rcvBase  uint32
	rcvKnown bool
	rtprop   time.Duration // what the sender says of the path

	// feedback, if set, is told the one-way delay of each packet that has one, and
	// the least round trip that the sender knows, and says what goes back.
	feedback func(now, oneWay, rtprop time.Duration) cc.Radio
	radioOut cc.Radio
	radioAt  time.Duration // when it was said; 0: never
	radioIn  cc.Radio      // of the newest packet that had one
	radioNow cc.Radio      // of the packet that is being handled, if it is the newest

	heard    time.Duration
	spoke    time.Duration
	idle     time.Duration // silence until a PING, and a third of that until the end
	answer   []byte        // data of a CHALLENGE, to be returned
	proved   []byte        // data of the newest RESPONSE
	closing  bool          // a CLOSE is to be sent
	leave    time.Duration // who still asks is told again until then
	tardy    int           // how often somebody asked
	hurry    bool          // nobody is waited for
	patience time.Duration // that something is acknowledged; 0: any
	since    time.Duration // when something was, or the first was sent that was not
	err      error         // the connection is over
	losses   cc.Loss
	newAck   cc.Ack
	rate     unit.Rate // newest sample
	limited  bool      // it was taken while the app set the pace
	counts   counts
}

// counts are of packets, and of bytes on the wire.
type counts struct{ packets, lost, spurious, wireOut, wireIn, duplicate, old uint64 }

func newEngine(ctl cc.Controller, header unit.Bytes) *engine {
	return &engine{ctl: ctl, header: header, send: sender{maxData: firstWindow}, recv: newReceiver(), reorder: packetThreshold, idle: keepAlive, mtu: mtuSearch{size: minPayload},
		draw: rand.Uint64N, skipAt: skipEvery/2 + rand.Uint64N(skipEvery)}
}

// take reads into p: 0 bytes mean to wait, io.EOF the end of the stream.
func (e *engine) take(now time.Duration, p []byte) (int, error) {
	n := e.recv.take(now, max(e.rtprop, e.srtt), p)
	switch {
	case n > 0:
		e.acks.ackNow = e.acks.ackNow || e.recv.needsUpdate()
		return n, nil
	case e.recv.isFinished():
		return 0, io.EOF
	}
	return 0, e.err
}

// over tells whether the connection has ended and nobody has to be told any more.
func (e *engine) over(now time.Duration) bool {
	return e.err != nil && !e.closing && (e.hurry || now >= e.leave)
}

// late takes the frames of a packet that came after the end. The CLOSE may have been
// lost: it goes again, for the first, second, fourth, eighth packet and so on (RFC 9000
// section 10.2.1).
func (e *engine) late(now time.Duration, frames []byte) {
	for r := (reader{b: frames}); len(r.b) > 0; {
		if r.next(&e.frame) != nil || e.frame.kind == frameClose {
			e.leave = now // it has ended there too
			return
		}
	}
	if now < e.leave {
		e.tardy++
		e.closing = e.closing || e.tardy&(e.tardy-1) == 0
	}
}

// finish ends the connection at this end, and tells the peer, for three probe timeouts
// again if it still sends.
func (e *engine) finish(err error) {
	if e.err == nil {
		e.err, e.closing = err, true
	}
}

// reroute forgets what was learned of a path: packets take another one from now
// on, and those in flight on the old one are not waited for.
func (e *engine) reroute(ctl cc.Controller) {
	for i := range uint64(e.flying.n) {
		if p := e.flying.at(e.flying.first + i); p.size > 0 {
			e.lose(e.flying.first+i, p)
			p.lost = false // what is heard of it late says nothing of the new path
		}
	}
	e.missing, e.losses = e.missing[:0], cc.Loss{}
	e.ctl, e.mtu = ctl, mtuSearch{size: minPayload, fixed: e.mtu.fixed}
	e.srtt, e.rttvar, e.minRTT, e.latest, e.firstRTT = 0, 0, 0, 0, 0
	e.radioIn, e.radioNow, e.wayKnown = cc.Radio{}, cc.Radio{}, false
	e.lossAt, e.timeouts, e.reorder = 0, 0, packetThreshold
	e.may, e.ping = e.now, true
}

// rerouted has the peer's packets come another way from now on, of whose delay and
// cells another feedback tells, if not nil.
func (e *engine) rerouted(feedback func(now, oneWay, rtprop time.Duration) cc.Radio) {
	e.feedback, e.radioAt, e.rcvKnown = feedback, 0, false
}

// wait is when tick and poll have something to do though nothing arrives; never is
// negative.
func (e *engine) wait(now time.Duration) time.Duration {
	switch {
	case e.over(now):
		return -1
	case e.err != nil && !e.closing:
		return e.leave
	case e.acks.ackNow || e.closing || e.ping || len(e.answer) > 0:
		return now
	}
	at := min(e.heard+3*e.idle, e.spoke+e.idle)
	if e.patience > 0 && e.inFlight > 0 {
		at = min(at, e.since+e.patience)
	}
	if e.acks.ackTime > 0 {
		at = min(at, e.acks.ackTime)
	}
	if e.lossAt > 0 {
		at = min(at, e.lossAt)
	}
	if e.inFlight > 0 || e.send.isBlocked() {
		at = min(at, e.asked+e.timeout())
	}
	if e.send.hasPendingData() {
		switch lim := e.ctl.Limits(now); {
		case e.fits(lim.Window):
			at = min(at, max(now, e.may))
		case lim.Until > 0:
			at = min(at, max(now+granularity, lim.Until))
		}
	}
	return at
}

func (e *engine) packetSize() unit.Bytes { return unit.Bytes(e.mtu.size) + e.header }

// fits tells whether a window lets another packet go. A single one always goes: it
// may be longer than the least window of a controller.
func (e *engine) fits(window unit.Bytes) bool {
	return e.inFlight == 0 || e.inFlight+e.packetSize() <= window
}

// tick does what is due by time.
func (e *engine) tick(now time.Duration) {
	e.now = now
	if e.err != nil {
		return
	}
	if now >= e.heard+3*e.idle {
		e.finish(errDead)
		return
	}
	if e.patience > 0 && e.inFlight > 0 && now >= e.since+e.patience {
		e.finish(errUnanswered)
		return
	}
	e.acks.onTime(now)
	if e.lossAt > 0 && now >= e.lossAt {
		e.detect()
		e.tellLoss()
		e.trim()
	}
	if (e.inFlight > 0 || e.send.isBlocked()) && now >= e.asked+e.timeout() {
		e.onTimeout()
	}
	if now >= e.spoke+e.idle {
		e.ping = true
	}
}

// poll appends the frames of the next packet to b, at most mtu.size bytes with
// overhead, and returns its number. False: nothing is to be sent now.
func (e *engine) poll(now time.Duration, b []byte) (out []byte, number uint64, ok bool) {
	e.now = now
	start := len(b)
	p := packet{sent: now}
	if e.err != nil {
		if !e.closing {
			return b, 0, false
		}
		e.closing = false
		if e.leave == 0 {
			e.leave = now + closingFor*e.probeTimeout()
		}
		b = append(b, frameClose, 0)
		return b, e.sent(p, len(b)-start), true
	}
	lim := e.ctl.Limits(now)
	free := e.fits(lim.Window) && now >= e.may
	data := free && e.send.hasPendingData()
	probe := 0
	if free && e.srtt > 0 && e.timeouts == 0 {
		probe = e.mtu.probe(now)
	}
	// What may be lost goes with all that leaves anyway, until it has arrived.
	if e.acks.isUseful(data || e.ping) {
		b = e.appendAck(b)
		p.acks = e.acks.eliciting
	}
	if len(e.answer) > 0 {
		b = append(append(b, frameResponse), e.answer...)
		e.answer = e.answer[:0]
	}
	asks := probe > 0 || data || e.ping
	if !e.send.hasPendingData() && e.fits(lim.Window) {
		// Also of a question, of which there are few in a round trip: what it shows is
		// not what the path has.
		e.sampler.AppLimited(e.inFlight)
	}
	if asks {
		b = appendStamp(b, now, e.minRTT)
	}
	switch {
	case probe > 0:
		b = append(b, framePing)
		p.probe = true
		b = append(b, make([]byte, probe-overhead-(len(b)-start))...) // PADDING
	case data:
		var seg segment
		b, seg = e.send.appendData(b, e.mtu.size-overhead-(len(b)-start))
		p.carry(seg)
	case e.ping:
		var seg segment
		b, seg = e.send.appendOldest(b, minPayload-overhead-(len(b)-start))
		b = append(b, framePing)
		p.carry(seg)
	}
	if len(b) == start {
		return b, 0, false
	}
	if asks {
		e.ping = e.ping && probe > 0
		p.size = unit.Bytes(len(b)-start+overhead) + e.header
		p.mark = e.sampler.Sent(now, e.inFlight)
		if e.inFlight == 0 {
			e.since = now
		}
		e.inFlight += p.size
		e.asked = now
		e.ctl.OnSent(now, p.size, e.inFlight)
		from := max(e.may, now-burst)
		if lim.Rate > 0 {
			// No controller knows a path so well that it may be silent for longer.
			e.may = min(from+lim.Rate.Time(p.size), now+maxTimeout)
		}
		if e.pace > 0 {
			e.may = max(e.may, from+e.pace.Time(p.size))
		}
	}
	return b, e.sent(p, len(b)-start), true
}

// challenge appends the frames of a packet that asks the peer to show that it
// receives where this one is sent to, apart from all others.
func (e *engine) challenge(now time.Duration, b, data []byte) (out []byte, number uint64) {
	start := len(b)
	b = append(append(b, frameChallenge), data...)
	return b, e.sent(packet{sent: now}, len(b)-start)
}

// sent notes a packet with so many bytes of frames, and gives it a number.
func (e *engine) sent(p packet, frames int) (number uint64) {
	if e.number == e.skipAt {
		e.skip()
	}
	number = e.number
	e.makeRoom()
	if p.quiet = p.size == 0; p.quiet {
		e.quiet++
	}
	e.flying.add(number, p)
	e.number++
	e.spoke = p.sent
	e.counts.packets++
	e.counts.wireOut += uint64(frames+overhead) + uint64(e.header)
	return number
}

// skip leaves a number out: who acknowledges it acknowledges what has not arrived (RFC
// 9000 section 21.4).
func (e *engine) skip() {
	e.makeRoom()
	e.flying.add(e.number, packet{})
	e.skipped = append(e.skipped[max(0, len(e.skipped)-15):], e.number)
	e.number++
	e.skipAt = e.number + skipEvery/2 + e.draw(max(skipEvery, uint64(e.flying.n)))
}

// refused is told of packets that this device itself did not take, such as those
// longer than its own link carries: they went nowhere, and are lost.
func (e *engine) refused(packets, bytes int) {
	e.counts.wireOut -= uint64(bytes) + uint64(packets)*uint64(e.header)
	e.mtu.refused(bytes)
}
