package pipe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// This file makes a Link on a pipe outlive the connections that carry it
// (docs/adr/0005-pipes-are-sessions.md). Positions count bytes of ciphertext
// from the start of the subflow. Each end keeps what it sent until the other
// confirms it by RECEIVED. When a connection breaks, or a better one is there,
// the primary sends RESUME on a pipe that waits, the helper answers RESUMED, and
// each end sends again what the other has not got.

// DefaultWindow is how long a session waits for a connection after a break.
const DefaultWindow = 10 * time.Second

// Tuning.
const (
	// RECEIVED is sent after so many bytes, or so long after the first of
	// them: below 1 % of what it confirms.
	confirmBytes = 128 << 10
	confirmAfter = 20 * time.Millisecond
	// confirmWith is how many bytes are confirmed together with data that is
	// sent anyway.
	confirmWith = 16 << 10
	// replayLimit bounds what a primary keeps of its uplink.
	replayLimit = 4 << 20
	// handOver bounds how long a write under way on the old connection holds
	// up a change to the new one.
	handOver = 50 * time.Millisecond
	// afterwards is how long a helper leaves the old connection open, so that
	// the primary can read it until it has changed too.
	afterwards = 2 * time.Second
	// lastWords is how long a connection that cannot be written to any more is
	// read, for a reason that the other end may have given.
	lastWords = 200 * time.Millisecond
	// resumeTimeout bounds RESUME until RESUMED.
	resumeTimeout = 2 * time.Second
	// A hop is stalled that has bytes on the air and none acknowledged for so
	// many of its round trips, and at least so long.
	stallRTTs  = 3
	stallLeast = 250 * time.Millisecond
)

// session is what a Link on a pipe has beyond its connection.
type session struct {
	token  wire.Token
	window time.Duration
	keep   *Ring         // what was sent and is not confirmed
	own    bool          // keep is ours: Write fills it; else its owner does, before Write
	pos    atomic.Uint64 // bytes given to Write
	timed  atomic.Bool   // there is a read deadline
	upset  chan struct{} // see Link.Trouble

	ended bool // HOP_END was sent; guarded by wmu

	// Guarded by Link.mu.
	got       uint64 // bytes received
	told      uint64 // of them, those that RECEIVED told of
	telling   bool   // the tell timer runs
	due       bool   // the next flush carries RECEIVED
	tell      *time.Timer
	confirmed uint64 // bytes that the peer has
	pinned    bool   // what was confirmed is dropped later: it is being sent again
	attempt   uint64 // of the newest RESUME
	readEnded bool   // HOP_END came: a break is final from now on
	over      *time.Timer
	brokenAt  time.Time
	counts    Counts

	// For Probe of a carrier that tells no round trip: a position, when it had
	// been sent, and what came of such ones.
	timedPos     uint64
	timedAt      time.Time
	srtt, minRTT time.Duration

	// For Probe: what hops acknowledged before this one, and with it.
	ackedBefore, acked uint64

	stall stall
}

// Counts tell what happened to a session.
type Counts struct {
	Resumed  int        // times it went on after a break
	Migrated int        // times it changed while the old connection still carried
	Again    unit.Bytes // sent a second time for that
	Away     time.Duration
	Since    time.Time // when it last went on; zero if it never did
	Stalled  time.Time // when Stalled last found it so; zero if it never did
}

// start makes l a session. It keeps what it sends itself.
func (l *Link) start(token wire.Token, window time.Duration) *Link {
	s := &session{token: token, window: window, keep: NewRing(replayLimit), own: true, upset: make(chan struct{}, 1)}
	l.s = s
	s.tell = time.AfterFunc(time.Hour, l.sendReceived)
	s.tell.Stop()
	return l
}

// KeepIn has a session keep what it sends in r, which the caller has filled
// before it calls Write, and from which it gives. It is called before the first
// Write.
func (l *Link) KeepIn(r *Ring) { l.s.keep, l.s.own = r, false }

// Token names the session.
func (l *Link) Token() wire.Token { return l.s.token }

// Trouble gets a value when the session needs another connection.
func (l *Link) Trouble() <-chan struct{} { return l.s.upset }

// Upset makes Trouble speak.
func (l *Link) Upset() {
	select {
	case l.s.upset <- struct{}{}:
	default:
	}
}

// Broken reports whether nothing carries the session now.
func (l *Link) Broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at.broken != nil && l.err == nil
}

// Break gives up the connection in use, if it is the one from that local
// address: the caller knows what the carrier does not, that nothing comes or
// goes there any more. The session then waits for another, as after any break.
// It reports whether there was one to give up.
func (l *Link) Break(local net.Addr, err error) bool {
	c := l.carrier()
	if c.hop.LocalAddr().String() != local.String() || l.Broken() || !l.lost(c, err) {
		return false
	}
	c.hop.Close()
	return true
}

// Ended reports whether the session is over.
func (l *Link) Ended() bool { return l.fatal() != nil }

// Counts may be called at any time.
func (l *Link) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s.counts
}

// Stalled reports whether bytes are on the way to the other end and none has
// been acknowledged for long. It is to be called every now and then.
func (l *Link) Stalled(now time.Time) bool {
	h, err := l.Probe()
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.s.stall.look(now, h) {
		return false
	}
	l.s.counts.Stalled = now
	return true
}

// stall watches a hop for bytes that are not acknowledged.
type stall struct {
	waits bool      // at the last look something was on the way
	acked uint64    // when it last moved
	moved time.Time // when that was, or when nothing was on the way
}

// look takes in what a hop tells. What was sent after a look that found nothing on
// the way may have been sent just now: time counts from this look on then.
func (s *stall) look(now time.Time, h estimate.Hop) bool {
	before := s.waits
	s.waits = h.Queue > h.Unsent
	if !before || !s.waits || h.Acked != s.acked {
		s.acked, s.moved = h.Acked, now
		return false
	}
	return now.Sub(s.moved) >= max(stallRTTs*h.SRTT, stallLeast)
}

// fatal is why the session has ended, or nil.
func (l *Link) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// usable is the connection to write to, or nil while there is none.
func (l *Link) usable() *carried {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.at.broken != nil {
		return nil
	}
	return l.at
}

// store keeps the beginning of p, as much as fits at once, and returns how much
// that is: 0 when the session has ended. It blocks while there is no room.
func (s *session) store(p []byte) int {
	n := copy(s.keep.Space(), p)
	s.keep.Fill(n)
	s.keep.Give(n)
	return n
}

// lost notes that c is broken, and starts the wait for another one. It reports
// whether the session had used it.
func (l *Link) lost(c *carried, err error) bool {
	l.mu.Lock()
	if l.at != c || l.err != nil {
		l.mu.Unlock()
		return false
	}
	if l.s.readEnded { // as if it were no session: see HOP_END
		l.mu.Unlock()
		l.fail(err)
		return true
	}
	if c.broken == nil {
		c.broken, l.s.brokenAt = err, time.Now()
		l.s.over = time.AfterFunc(l.s.window, func() {
			if l.carrier() != c {
				return // it has just come back
			}
			l.fail(fault.New(fault.Unreachable, fmt.Errorf("the pipe broke and was not back within %v: %w", l.s.window, err),
				"are both devices still on one network?"))
		})
		l.cond.Broadcast()
	}
	l.Upset() // before who changes to another connection holds mu: see change
	l.mu.Unlock()
	return true
}

// fail ends the session; the first reason counts.
func (l *Link) fail(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	l.s.tell.Stop()
	if l.s.over != nil {
		l.s.over.Stop()
	}
	l.cond.Broadcast()
	c := l.at
	l.mu.Unlock()
	if l.s.own {
		l.s.keep.Kill()
	}
	c.hop.Close()
	l.Upset()
}

// nextOfSession returns the ciphertext of the next HOP_DATA that is new. It
// waits through breaks, and its error is the end of the session or of the
// direction.
func (l *Link) nextOfSession() ([]byte, error) {
	var failed *carried
	for {
		l.mu.Lock()
		for l.err == nil && l.at == failed {
			l.cond.Wait()
		}
		c, err := l.at, l.err
		l.mu.Unlock()
		if err != nil {
			return nil, err
		}
		t, payload, err := c.r.Next()
		switch {
		case err == nil:
		case l.carrier() != c:
			continue
		case l.s.timed.Load() && errors.Is(err, os.ErrDeadlineExceeded):
			return nil, err
		case errors.Is(err, wire.ErrMalformed):
			l.fail(err)
			return nil, err
		default:
			if l.lost(c, brokenBy(err)) {
				c.hop.Close()
			}
			failed = c
			continue
		}
		b, err := l.accept(c, t, payload)
		if err != nil && err != io.EOF {
			l.fail(err)
		}
		if b != nil || err != nil {
			return b, err
		}
	}
}

func brokenBy(err error) error {
	if err == io.EOF {
		return errors.New("the other end hung up")
	}
	return err
}

// accept handles a frame that came over c; what comes over a connection that
// was replaced meanwhile does not count.
func (l *Link) accept(c *carried, t wire.Type, payload []byte) ([]byte, error) {
	l.mu.Lock()
	s := l.s
	if l.at != c {
		l.mu.Unlock()
		return nil, nil
	}
	switch t {
	case wire.TypeHopData:
		defer l.mu.Unlock()
		n := min(c.skip, uint64(len(payload)))
		c.skip -= n
		payload = payload[n:]
		s.got += uint64(len(payload))
		if len(payload) == 0 {
			return nil, nil
		}
		switch {
		case s.got-s.told >= confirmBytes && !s.due:
			s.due, s.telling = true, true
			s.tell.Reset(0)
		case !s.telling:
			s.telling = true
			s.tell.Reset(confirmAfter)
		}
		return payload, nil
	case wire.TypeHopEnd:
		defer l.mu.Unlock()
		if len(payload) > 0 || c.skip > 0 {
			return nil, fmt.Errorf("%w: %v out of place", wire.ErrMalformed, t)
		}
		s.readEnded = true
		s.keep.Confirm(l.sent.Load()) // nobody reads RECEIVED any more
		return nil, io.EOF
	case wire.TypeReceived:
		defer l.mu.Unlock()
		f, err := wire.ParseReceived(payload)
		if err == nil && (f.Count < s.confirmed || f.Count > s.pos.Load()) {
			err = fmt.Errorf("%w: %v of %d bytes, after %d, of %d sent", wire.ErrMalformed, t, f.Count, s.confirmed, s.pos.Load())
		}
		if err != nil {
			return nil, err
		}
		s.confirmed = f.Count
		s.measure(time.Now())
		if !s.pinned {
			s.keep.Confirm(f.Count)
		}
		return nil, nil
	}
	l.mu.Unlock()
	return l.take(t, payload)
}

// sendReceived is what the tell timer does.
func (l *Link) sendReceived() {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.mu.Lock()
	l.s.due, l.s.telling = true, false
	ended := l.err != nil
	l.mu.Unlock()
	if !ended && !l.corked {
		_ = l.flush() // of a session: who reads learns
	}
}

// confirm appends RECEIVED to buf, if it is due or comes for nothing.
func (l *Link) confirm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.s
	// After HOP_END the peer does not read any more: it would close its
	// connection with bytes unread, and the reset cut off what it has sent.
	if n := s.got - s.told; n > 0 && !s.ended && (s.due || n >= confirmWith && len(l.buf) > 0) {
		l.buf = wire.Append(l.buf, wire.Received{Count: s.got})
		s.told = s.got
	}
	s.due = false
}

// written judges what a write to c returned. A break is no error of a session.
func (l *Link) written(c *carried, err error) error {
	if err != nil && l.lost(c, err) {
		_ = c.hop.SetReadDeadline(time.Now().Add(lastWords))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.s
	if s.readEnded {
		s.keep.Confirm(l.sent.Load())
	}
	if err == nil && s.timedAt.IsZero() && l.held > 0 {
		s.timedPos, s.timedAt = l.sent.Load(), time.Now()
	}
	return l.err
}

func (l *Link) waitSession() error {
	for {
		l.mu.Lock()
		for l.err == nil && l.at.broken != nil {
			l.cond.Wait()
		}
		c, err := l.at, l.err
		l.mu.Unlock()
		if err != nil {
			return err
		}
		if err := c.hop.WaitWritable(); err != nil {
			l.lost(c, err)
			continue
		}
		if l.s.own && !l.s.keep.WaitRoom() {
			continue // which finds err
		}
		if l.usable() == c {
			return nil
		}
	}
}

func (l *Link) probeSession() (estimate.Hop, error) {
	c := l.usable()
	if c == nil {
		return estimate.Hop{}, errors.New("nothing carries the pipe now")
	}
	h, err := c.hop.Probe()
	if err != nil {
		return h, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.Blind {
		// What is confirmed has arrived, and what was sent and is not may lie
		// anywhere, in the kernel or on the air.
		sent := max(l.sent.Load(), l.s.confirmed)
		return estimate.Hop{SRTT: l.s.srtt, MinRTT: l.s.minRTT, Queue: unit.Bytes(sent - l.s.confirmed),
			Unsent: min(h.Unsent, unit.Bytes(sent-l.s.confirmed)), Acked: l.s.confirmed}, nil
	}
	if l.at == c {
		l.s.acked = h.Acked
	}
	h.Acked += l.s.ackedBefore
	h.WireIn, h.WireOut = 0, 0 // of this connection alone
	return h, nil
}

// measure takes a round trip from a confirmation: up to confirmAfter too much.
// It is called with mu held.
func (s *session) measure(now time.Time) {
	if s.timedAt.IsZero() || s.confirmed < s.timedPos {
		return
	}
	rtt := now.Sub(s.timedAt)
	s.timedAt = time.Time{}
	if s.minRTT == 0 || rtt < s.minRTT {
		s.minRTT = rtt
	}
	if s.srtt == 0 {
		s.srtt = rtt
	}
	s.srtt += (rtt - s.srtt) / 8 // RFC 6298 section 2.3
}

// endSession sends HOP_END. It is called with wmu held.
func (l *Link) endSession() error {
	if l.s.ended {
		return l.fatal()
	}
	l.s.ended = true
	l.endFrame()
	l.buf = wire.Append(l.buf, wire.HopEnd{})
	return l.flush()
}

// closeSession tells the peer, if that can be done at once, and ends.
func (l *Link) closeSession() error {
	if l.Ended() {
		l.fail(net.ErrClosed) // close what a break has left
		return nil
	}
	if l.wmu.TryLock() {
		_ = l.carrier().hop.SetWriteDeadline(time.Now().Add(handOver))
		_ = l.endSession()
		l.wmu.Unlock()
	}
	l.fail(net.ErrClosed)
	return nil
}
