package transport

import (
	"io"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// Specification.
const (
	feedbackFor = 100 * time.Millisecond // what was said of the cells goes with acknowledgements that are told again
	closingFor  = 3                      // probe timeouts in which a CLOSE goes again (RFC 9000 section 10.2)
)

// Tuning.
const (
	burst     = 2 * time.Millisecond // what the pacer lets go at once, to make up for late wakings
	keepAlive = 15 * time.Second     // under the 30 s after which many NATs forget (RFC 4787 asks for 2 minutes)
	deadAfter = 3 * keepAlive
)

// engine is one end of a connection without sockets and clocks: packets and the
// time go in, packets come out. Times are those since any fixed moment, over 0, and
// never go back. It is not safe for concurrent use.
type engine struct {
	ctl     cc.Controller
	sampler cc.Sampler
	header  unit.Bytes // of IP and UDP

	send sender
	recv receiver

	// Sending packets.
	loss     lossDetector
	may      time.Duration // the pacer lets the next one go
	pace     unit.Rate     // that the pacer lets go at most; 0: what the controller says
	ping     bool          // something that asks for an ACK must leave
	mtu      mtuSearch
	wayBase  uint32 // the peer's first one-way delay, by clocks that differ
	wayKnown bool

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
	err      error         // the connection is over
	rate     unit.Rate     // newest sample
	limited  bool          // it was taken while the app set the pace
	counts   counts
}

// counts are of packets, and of bytes on the wire.
type counts struct{ packets, wireOut, wireIn, duplicate, old uint64 }

func newEngine(ctl cc.Controller, header unit.Bytes) *engine {
	return &engine{ctl: ctl, header: header, send: sender{maxData: firstWindow}, recv: newReceiver(), loss: newLossDetector(), idle: keepAlive, mtu: mtuSearch{size: minPayload}}
}

// take reads into p: 0 bytes mean to wait, io.EOF the end of the stream.
func (e *engine) take(now time.Duration, p []byte) (int, error) {
	n := e.recv.take(now, max(e.rtprop, e.loss.rtt.smoothed), p)
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
func (e *engine) reroute(now time.Duration, ctl cc.Controller) {
	for _, p := range e.loss.resetPath() {
		e.send.onLost(p.segment())
	}
	e.ctl, e.mtu = ctl, mtuSearch{size: minPayload, fixed: e.mtu.fixed}
	e.radioIn, e.radioNow, e.wayKnown = cc.Radio{}, cc.Radio{}, false
	e.may, e.ping = now, true
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
	if e.patience > 0 && e.loss.bytesInFlight > 0 {
		at = min(at, e.loss.progressTime+e.patience)
	}
	if e.acks.ackTime > 0 {
		at = min(at, e.acks.ackTime)
	}
	if e.loss.lossTime > 0 {
		at = min(at, e.loss.lossTime)
	}
	if e.expectsAck() {
		at = min(at, e.loss.probeTime())
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
	return e.loss.bytesInFlight == 0 || e.loss.bytesInFlight+e.packetSize() <= window
}

// expectsAck reports whether something is in flight, or only the peer can say that its
// window is open again.
func (e *engine) expectsAck() bool { return e.loss.bytesInFlight > 0 || e.send.isBlocked() }

// tick does what is due by time.
func (e *engine) tick(now time.Duration) {
	if e.err != nil {
		return
	}
	if now >= e.heard+3*e.idle {
		e.finish(errDead)
		return
	}
	if e.patience > 0 && e.loss.bytesInFlight > 0 && now >= e.loss.progressTime+e.patience {
		e.finish(errUnanswered)
		return
	}
	e.acks.onTime(now)
	e.onLost(now, e.loss.onTime(now))
	if e.expectsAck() && now >= e.loss.probeTime() {
		e.loss.onProbeTimeout(now)
		e.ping = true
	}
	if now >= e.spoke+e.idle {
		e.ping = true
	}
}

// poll appends the frames of the next packet to b, at most mtu.size bytes with
// overhead, and returns its number. False: nothing is to be sent now.
func (e *engine) poll(now time.Duration, b []byte) (out []byte, number uint64, ok bool) {
	start := len(b)
	p := sentPacket{sent: now}
	if e.err != nil {
		if !e.closing {
			return b, 0, false
		}
		e.closing = false
		if e.leave == 0 {
			e.leave = now + closingFor*e.loss.rtt.probeTimeout()
		}
		b = append(b, frameClose, 0)
		return b, e.sent(p, len(b)-start), true
	}
	lim := e.ctl.Limits(now)
	free := e.fits(lim.Window) && now >= e.may
	data := free && e.send.hasPendingData()
	probe := 0
	if free && e.loss.rtt.smoothed > 0 && e.loss.ptoCount == 0 {
		probe = e.mtu.probe(now)
	}
	// What may be lost goes with all that leaves anyway, until it has arrived.
	if e.acks.isUseful(data || e.ping) {
		b = e.appendAck(now, b)
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
		e.sampler.AppLimited(e.loss.bytesInFlight)
	}
	if asks {
		b = appendStamp(b, now, e.loss.rtt.min)
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
		p.mark = e.sampler.Sent(now, e.loss.bytesInFlight)
		e.ctl.OnSent(now, p.size, e.loss.bytesInFlight+p.size)
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
	return b, e.sent(sentPacket{sent: now}, len(b)-start)
}

// sent notes a packet with so many bytes of frames, and returns its number.
func (e *engine) sent(p sentPacket, frames int) (number uint64) {
	number, lost := e.loss.onPacketSent(p)
	e.resend(p.sent, lost)
	e.spoke = p.sent
	e.counts.packets++
	e.counts.wireOut += uint64(frames+overhead) + uint64(e.header)
	return number
}

// refused is told of packets that this device itself did not take, such as those
// longer than its own link carries: they went nowhere, and are lost.
func (e *engine) refused(packets, bytes int) {
	e.counts.wireOut -= uint64(bytes) + uint64(packets)*uint64(e.header)
	e.mtu.refused(bytes)
}

// onAck takes an acknowledgement. What it says of packets never sent is no reason to
// believe the rest.
func (e *engine) onAck(now time.Duration, f *ackFrame) error {
	if ok, err := e.loss.checkAck(f); !ok {
		return err
	}
	e.send.raiseLimit(f.window)
	r := e.loss.onAck(now, f)
	ack := cc.Ack{Now: now, Radio: e.radioNow, RTT: r.rtt}
	var newest cc.Mark
	for i := range r.acked {
		p := &r.acked[i]
		e.send.onAcked(p.segment())
		if p.size == 0 {
			continue
		}
		ack.Bytes += p.size
		ack.Packets++
		e.sampler.Delivered(now, p.size)
		e.mtu.arrived(p.number, int(p.size-e.header), p.probe)
		e.acks.onConfirmed(p.acks)
		newest = p.mark
	}
	if ack.Packets == 0 {
		return nil
	}
	if !e.wayKnown {
		e.wayKnown, e.wayBase = true, f.oneWay
	}
	ack.OneWay = time.Duration(int32(f.oneWay-e.wayBase)) * time.Microsecond
	e.sampler.Fill(&ack, newest, e.loss.rtt.min)
	if ack.Rate > 0 {
		e.rate, e.limited = ack.Rate, ack.AppLimited
	}
	ack.InFlight = e.loss.bytesInFlight
	e.onLost(now, r.lost)
	e.ctl.OnAck(ack)
	return nil
}

// onLost has what was lost sent again, and reports it to the controller.
func (e *engine) onLost(now time.Duration, lost []numberedPacket) {
	e.resend(now, lost)
	if l, ok := e.loss.takeLosses(now); ok {
		e.ctl.OnLoss(l)
		if l.Timeout {
			e.may = now
		}
	}
}

// resend has what packets carried sent again.
func (e *engine) resend(now time.Duration, lost []numberedPacket) {
	for i := range lost {
		p := &lost[i]
		e.send.onLost(p.segment())
		e.mtu.lost(now, p.number, int(p.size-e.header), p.probe)
	}
}
