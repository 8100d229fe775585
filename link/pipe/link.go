package pipe

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// Link is a Hop on a pipe. It outlives the connections that carry it
// (docs/adr/0005-pipes-are-sessions.md): each end keeps what it sent until the other
// confirms it by RECEIVED. When a connection breaks, or a better one is there, the primary
// sends RESUME on a pipe that waits, the helper answers RESUMED, and each end sends again
// what the other has not got. Positions count bytes of ciphertext from the start of the
// subflow.
//
// It locks wmu, held while writing, before slot.mu.
type Link struct {
	frameReader
	frameWriter
	slot

	token           wire.Token
	resumeWindow    time.Duration
	radio           wire.Radio                 // of the helper's link to the server, at the primary
	key             wire.HopKey                // of the subflow, at the primary
	facts           atomic.Pointer[wire.Facts] // the newest that have not left
	hasReadDeadline atomic.Bool                // there is a read deadline
	connNeeded      chan struct{}              // see Trouble
	endSent         bool                       // HOP_END, or REFUSE; guarded by wmu

	// Guarded by slot.mu.
	replay         replay
	receivedSender receivedSender
	lastAttempt    uint64 // of the newest RESUME
	readEnded      bool   // HOP_END came: a break is final from now on
	expiryTimer    *time.Timer
	brokenSince    time.Time
	counts         Counts
	roundTrips     rttEstimator
	stallDetector  stallDetector
	// For Probe: what hops acknowledged before this one, and with it.
	ackedBefore, acked uint64
}

// DefaultWindow is how long a Link waits for a connection after a break.
const DefaultWindow = 10 * time.Second

// Counts tell what happened to a Link.
type Counts struct {
	Resumed       int        // times it went on after a break
	Migrated      int        // times it changed while the old connection still carried
	Retransmitted unit.Bytes // sent a second time for that
	Downtime      time.Duration
	LastChange    time.Time // when it last went on; zero if it never did
	LastStalled   time.Time // when Stalled last found it so; zero if it never did
}

func newLink(c *linkConn, token wire.Token, window time.Duration) *Link {
	l := &Link{frameWriter: newFrameWriter(), slot: slot{conn: c}, token: token, resumeWindow: window,
		connNeeded: make(chan struct{}, 1), replay: newReplay()}
	l.slot.cond.L = &l.slot.mu
	l.receivedSender.timer = time.AfterFunc(time.Hour, l.sendReceived)
	l.receivedSender.timer.Stop()
	return l
}

// SetReplayRing has the Link keep what it sends in r, which the caller has filled
// before it calls Write, and from which it gives. It is called before the first
// Write.
func (l *Link) SetReplayRing(r *Ring) { l.replay.ring, l.replay.ownsRing = r, false }

// Token names the session.
func (l *Link) Token() wire.Token { return l.token }

// Radio is that of the helper's link to the server, at the primary's end.
func (l *Link) Radio() wire.Radio { return l.radio }

// HopKey is the key by which the server recognises what the helper of this subflow says, at
// the primary's end.
func (l *Link) HopKey() wire.HopKey { return l.key }

// ConnNeeded gets a value when the Link needs another connection.
func (l *Link) ConnNeeded() <-chan struct{} { return l.connNeeded }

// RequestConn makes Trouble speak.
func (l *Link) RequestConn() {
	select {
	case l.connNeeded <- struct{}{}:
	default:
	}
}

// IsBroken reports whether nothing carries the Link now.
func (l *Link) IsBroken() bool {
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	return l.slot.conn.breakErr != nil && l.slot.endErr == nil
}

// HasEnded reports whether the Link is over.
func (l *Link) HasEnded() bool { return l.slot.endError() != nil }

// AbandonConn gives up the connection in use, if it is the one from that local
// address: the caller knows what the carrier does not, that nothing comes or
// goes there any more. The Link then waits for another, as after any break.
// It reports whether there was one to give up.
func (l *Link) AbandonConn(local net.Addr, err error) bool {
	c := l.slot.currentConn()
	if c.raw.LocalAddr().String() != local.String() || l.IsBroken() || !l.handleBreak(c, err) {
		return false
	}
	c.raw.Close()
	return true
}

// Counts may be called at any time.
func (l *Link) Counts() Counts {
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	return l.counts
}

// CheckStalled reports whether bytes are on the way to the other end and none has
// been acknowledged for long. It is to be called every now and then.
func (l *Link) CheckStalled(now time.Time) bool {
	h, err := l.Probe()
	if err != nil {
		return false
	}
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	if !l.stallDetector.update(now, h) {
		return false
	}
	l.counts.LastStalled = now
	return true
}

// SendState implements Hop.
func (l *Link) SendState(s wire.HopState) error {
	l.setReport(s)
	return l.tryFlush(l.flushLocked)
}

// SendFacts tells the primary what is known of this device. As SendState it does
// not wait.
func (l *Link) SendFacts(f wire.Facts) error {
	l.facts.Store(&f)
	return l.tryFlush(l.flushLocked)
}

// Flush writes what was gathered and ends the gathering.
func (l *Link) Flush() error { return l.uncorkAndFlush(l.flushLocked) }

// Refuse implements Hop.
func (l *Link) Refuse(code wire.Code, text string) error {
	l.wmu.Lock()
	l.appendFrame(newRefusal(code, text))
	l.endSent = true // REFUSE says it all
	err := l.flushLocked()
	l.wmu.Unlock()
	return errors.Join(err, l.Close())
}

// Probe returns the state of this hop's sending direction; its byte counts include framing
// and TLS. While nothing carries the Link it is an error.
func (l *Link) Probe() (estimate.Hop, error) {
	c := l.slot.usableConn()
	if c == nil {
		return estimate.Hop{}, errors.New("nothing carries the pipe now")
	}
	h, err := c.raw.Probe()
	if err != nil {
		return h, err
	}
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	if h.Blind {
		// What is confirmed has arrived, and what was sent and is not may lie
		// anywhere, in the kernel or on the air.
		confirmed := l.replay.confirmed
		queue := unit.Bytes(max(l.sent.Load(), confirmed) - confirmed)
		return estimate.Hop{SRTT: l.roundTrips.srtt, MinRTT: l.roundTrips.min, Queue: queue, Unsent: min(h.Unsent, queue), Acked: confirmed}, nil
	}
	if l.slot.conn == c {
		l.acked = h.Acked
	}
	h.Acked += l.ackedBefore
	h.WireIn, h.WireOut = 0, 0 // of this connection alone
	return h, nil
}

// SetDeadline implements net.Conn. A read that fails by its deadline is the
// last.
func (l *Link) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (l *Link) SetReadDeadline(t time.Time) error {
	l.hasReadDeadline.Store(!t.IsZero())
	return l.slot.currentConn().rw.SetReadDeadline(t)
}
