// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"mpbond/base/unit"
	"mpbond/link/congestion"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// Link is a Hop on a pipe. It outlives the connections that carry it
// (docs/adr/0005-pipes-are-sessions.md): each end keeps what it sent until the other end confirms
// it with RECEIVED. When a connection breaks, or a better one is available, the primary sends
// RESUME on a waiting pipe. The helper answers RESUMED, and each end sends again what the other has
// not received. Positions count bytes of ciphertext from the start of the subflow.
//
// Lock order: wmu, which is held while writing, before slot.mu.
type Link struct {
	frameReader
	frameWriter
	slot

	token           wire.Token
	resumeTimeout   time.Duration
	radio           wire.Radio                 // type of the helper's link to the server; at the primary
	key             wire.HopKey                // key of the subflow; at the primary
	facts           atomic.Pointer[wire.Facts] // newest unsent facts
	hasReadDeadline atomic.Bool                // a read deadline is set
	connNeeded      chan struct{}              // see ConnNeeded
	endSent         bool                       // HOP_END or REFUSE was sent; guarded by wmu

	// Guarded by slot.mu.
	replay         replay
	receivedSender receivedSender
	lastAttempt    uint64 // number of the newest RESUME
	readEnded      bool   // HOP_END came: a break is now final
	expiryTimer    *time.Timer
	brokenSince    time.Time
	counts         Counts
	roundTrips     rttEstimator
	stallDetector  stallDetector
	// For Probe: bytes acknowledged by earlier connections, and by the current one.
	ackedBefore, acked uint64
}

// DefaultResumeTimeout is how long a Link waits for a new connection after a break.
const DefaultResumeTimeout = 10 * time.Second

// Counts describes what happened to a Link.
type Counts struct {
	Resumed       int        // how often it resumed after a break
	Migrated      int        // how often it changed connections while the old one still worked
	Retransmitted unit.Bytes // bytes sent again because of this
	Downtime      time.Duration
	LastChange    time.Time // time of the last resumption or change; zero: none
	LastStalled   time.Time // when CheckStalled last found it stalled; zero: never
}

func newSubflowLink(c *linkConn, token wire.Token, resumeTimeout time.Duration) *Link {
	l := &Link{frameWriter: newFrameWriter(), slot: slot{conn: c}, token: token, resumeTimeout: resumeTimeout,
		connNeeded: make(chan struct{}, 1), replay: newReplayWithRing()}
	l.slot.cond.L = &l.slot.mu
	l.receivedSender.timer = time.AfterFunc(time.Hour, l.sendReceived)
	l.receivedSender.timer.Stop()
	return l
}

// SetReplayRing makes the Link keep sent data in r. The caller fills r before it calls Write, and
// marks bytes as sent. It must be called before the first Write.
func (l *Link) SetReplayRing(r *Ring) { l.replay.ring, l.replay.ownsRing = r, false }

// Token returns the token that identifies the session.
func (l *Link) Token() wire.Token { return l.token }

// Radio returns the radio of the helper's link to the server, at the primary's end.
func (l *Link) Radio() wire.Radio { return l.radio }

// HopKey returns the key that authenticates the helper's reports to the server, at the primary's
// end.
func (l *Link) HopKey() wire.HopKey { return l.key }

// ConnNeeded returns a channel that gets a value when the Link needs another connection.
func (l *Link) ConnNeeded() <-chan struct{} { return l.connNeeded }

// RequestConn sends a value to the channel of ConnNeeded.
func (l *Link) RequestConn() {
	select {
	case l.connNeeded <- struct{}{}:
	default:
	}
}

// IsBroken reports whether the Link has no working connection now.
func (l *Link) IsBroken() bool {
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	return l.slot.conn.breakErr != nil && l.slot.endErr == nil
}

// HasEnded reports whether the Link has ended.
func (l *Link) HasEnded() bool { return l.slot.linkEndError() != nil }

// AbandonConn gives up the current connection if its local address is local. Use it when the caller
// knows, unlike the carrier, that this address no longer works. As after any break, the Link then
// waits for another connection. It reports whether a connection was given up.
func (l *Link) AbandonConn(local net.Addr, err error) bool {
	c := l.slot.currentConn()
	if c.raw.LocalAddr().String() != local.String() || l.IsBroken() || !l.handleBreak(c, err) {
		return false
	}
	c.raw.Close()
	return true
}

// Counts returns the counters. It may be called at any time.
func (l *Link) Counts() Counts {
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	return l.counts
}

// CheckStalled reports whether bytes are in flight and none has been acknowledged for long. Call it
// regularly.
func (l *Link) CheckStalled(now time.Time) bool {
	h, err := l.Probe()
	if err != nil {
		return false
	}
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	if !l.stallDetector.observeHopStall(now, h) {
		return false
	}
	l.counts.LastStalled = now
	return true
}

// SendState implements Hop.
func (l *Link) SendState(s wire.HopState) error {
	l.queueHopReport(s)
	return l.flushUnlessBusy(l.flushLinkLocked)
}

// SendFacts sends the primary the facts about this device. Like SendState it does not wait.
func (l *Link) SendFacts(f wire.Facts) error {
	l.facts.Store(&f)
	return l.flushUnlessBusy(l.flushLinkLocked)
}

// Flush ends corking and writes the gathered data.
func (l *Link) Flush() error { return l.uncorkAndFlush(l.flushLinkLocked) }

// Refuse implements Hop.
func (l *Link) Refuse(code wire.Code, text string) error {
	l.wmu.Lock()
	l.appendFrame(newRefuseFrame(code, text))
	l.endSent = true // REFUSE replaces HOP_END
	err := l.flushLinkLocked()
	l.wmu.Unlock()
	return errors.Join(err, l.Close())
}

// CongestionChoice implements congestion.Chooser.
func (l *Link) CongestionChoice() (choice congestion.Choice, ok bool) {
	if c := l.slot.usableConn(); c != nil {
		return congestionChoice(c.raw)
	}
	return choice, false
}

// Probe returns the state of this hop's sending direction. Byte counts include framing and TLS. It
// fails while the Link has no working connection.
func (l *Link) Probe() (estimate.Hop, error) {
	c := l.slot.usableConn()
	if c == nil {
		return estimate.Hop{}, errors.New("the pipe has no connection now")
	}
	h, err := c.raw.Probe()
	if err != nil {
		return h, err
	}
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	if h.Blind {
		// Confirmed bytes have arrived. Other sent bytes may be anywhere: in the kernel or in
		// transit.
		confirmed := l.replay.confirmed
		queue := unit.Bytes(max(l.sent.Load(), confirmed) - confirmed)
		return estimate.Hop{SRTT: l.roundTrips.srtt, MinRTT: l.roundTrips.min, Queue: queue,
			Unsent: min(h.Unsent, queue), Acked: confirmed}, nil
	}
	if l.slot.conn == c {
		l.acked = h.Acked
	}
	h.Acked += l.ackedBefore
	h.WireIn, h.WireOut = 0, 0 // they count this connection only
	return h, nil
}

// SetDeadline implements net.Conn. After a read has failed by its deadline, no further read may
// follow.
func (l *Link) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (l *Link) SetReadDeadline(t time.Time) error {
	l.hasReadDeadline.Store(!t.IsZero())
	return l.slot.currentConn().rw.SetReadDeadline(t)
}
