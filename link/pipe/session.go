// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"mpbond/base/fault"
	"mpbond/link/wire"
)

// This file reads and writes a Link over its current connection, and ends it.

// Tuning.
const (
	// handOverTimeout bounds how long a blocked write on the old connection delays the change to
	// the new one.
	handOverTimeout = 50 * time.Millisecond
	// lastReadTime is how long a connection is still read after writing to it has failed, because
	// the other end may have given a reason.
	lastReadTime = 200 * time.Millisecond
)

// Read implements net.Conn. It returns io.EOF when the peer ended its direction in order, and a
// wire.Refuse when the peer gave a reason.
func (l *Link) Read(p []byte) (int, error) { return l.readCiphertext(p, l.nextLinkData) }

// nextLinkData returns the ciphertext of the next new HOP_DATA. It waits while the connection is
// broken. Its error means the end of the Link or of the direction.
func (l *Link) nextLinkData() ([]byte, error) {
	var failed *linkConn
	for {
		c, err := l.slot.awaitOtherConn(failed)
		if err != nil {
			return nil, err
		}
		t, payload, err := c.r.Next()
		switch {
		case err == nil:
		case l.slot.currentConn() != c:
			continue
		case l.hasReadDeadline.Load() && errors.Is(err, os.ErrDeadlineExceeded):
			return nil, err
		case errors.Is(err, wire.ErrMalformed):
			l.endLinkWith(err)
			return nil, err
		default:
			if l.handleBreak(c, explainBreak(err)) {
				c.raw.Close()
			}
			failed = c
			continue
		}
		b, err := l.handleFrame(c, t, payload)
		if err != nil && err != io.EOF {
			l.endLinkWith(err)
		}
		if b != nil || err != nil {
			return b, err
		}
	}
}

func explainBreak(err error) error {
	if err == io.EOF {
		return errors.New("the other end closed the connection")
	}
	return err
}

// handleFrame handles a frame that came over c. It ignores frames from a connection that was
// replaced meanwhile.
func (l *Link) handleFrame(c *linkConn, t wire.Type, payload []byte) ([]byte, error) {
	l.slot.mu.Lock()
	if l.slot.conn != c {
		l.slot.mu.Unlock()
		return nil, nil
	}
	switch t {
	case wire.TypeHopData:
		defer l.slot.mu.Unlock()
		if payload = c.skipReceived(payload); len(payload) == 0 {
			return nil, nil
		}
		l.receivedSender.countReceivedData(len(payload))
		return payload, nil
	case wire.TypeHopEnd:
		defer l.slot.mu.Unlock()
		if len(payload) > 0 || c.skipBytes > 0 {
			return nil, fmt.Errorf("%w: %v out of place", wire.ErrMalformed, t)
		}
		l.readEnded = true
		l.replay.ring.Confirm(l.sent.Load()) // the peer does not read RECEIVED any more
		return nil, io.EOF
	case wire.TypeReceived:
		defer l.slot.mu.Unlock()
		err := l.replay.onReceived(payload)
		if err == nil {
			l.roundTrips.recordConfirmation(l.replay.confirmed, time.Now())
		}
		return nil, err
	}
	l.slot.mu.Unlock()
	if t == wire.TypeHopState {
		return nil, l.handleState(payload)
	}
	return l.handleCommonFrame(t, payload)
}

// Write implements net.Conn. It accepts data even while no connection works, and keeps it for
// retransmission. It blocks when the buffer is full.
func (l *Link) Write(p []byte) (n int, err error) {
	if !l.replay.ownsRing {
		return l.writeStored(p)
	}
	for n < len(p) {
		m := l.replay.storeWritten(p[n:])
		if m == 0 {
			return n, l.slot.linkEndError()
		}
		if _, err := l.writeStored(p[n : n+m]); err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

func (l *Link) writeStored(p []byte) (n int, err error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.replay.written.Add(uint64(len(p)))
	return l.gatherData(p, l.flushLinkLocked)
}

// flushLinkLocked writes the gathered frames, unsent reports and a due RECEIVED. While no
// connection works, replay keeps the data. wmu must be held.
func (l *Link) flushLinkLocked() error {
	l.closeFrame()
	for _, s := range l.takeUnsentReports() {
		l.appendFrame(s)
	}
	if f := l.facts.Swap(nil); f != nil {
		l.appendFrame(f)
	}
	l.gatherReceived()
	if len(l.buf) == 0 {
		return nil
	}
	c := l.slot.usableConn()
	if c == nil {
		l.discardGathered()
		return l.slot.linkEndError()
	}
	hasData := l.gatheredBytes > 0
	return l.afterWrite(c, hasData, l.writeGathered(&c.hopConn))
}

// gatherReceived appends a RECEIVED frame if it is due, or if it can share a write.
func (l *Link) gatherReceived() {
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	// After HOP_END the peer reads no more. It would close its connection with unread bytes, and
	// the reset would cut off data that it has sent.
	if !l.endSent {
		l.buf = l.receivedSender.appendReceived(l.buf)
	}
	l.receivedSender.due = false
}

// sendReceived sends RECEIVED when the timer fires.
func (l *Link) sendReceived() {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.slot.mu.Lock()
	l.receivedSender.markReceivedDue()
	ended := l.slot.endErr != nil
	l.slot.mu.Unlock()
	if !ended && !l.corked {
		_ = l.flushLinkLocked() // the reader gets the error
	}
}

// afterWrite handles the result of a write to c. A broken connection is not an error of the Link.
func (l *Link) afterWrite(c *linkConn, hasData bool, err error) error {
	if err != nil && l.handleBreak(c, err) {
		_ = c.raw.SetReadDeadline(time.Now().Add(lastReadTime))
	}
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	if l.readEnded {
		l.replay.ring.Confirm(l.sent.Load())
	}
	if err == nil && hasData {
		l.roundTrips.recordSentPosition(l.sent.Load(), time.Now())
	}
	return l.slot.endErr
}

// WaitWritable blocks until a segment written now would soon leave this device.
func (l *Link) WaitWritable() error {
	for {
		c, err := l.slot.awaitUsableConn()
		if err != nil {
			return err
		}
		if err := c.raw.WaitWritable(); err != nil {
			l.handleBreak(c, err)
			continue
		}
		if !l.replay.waitReplayRoom() {
			continue // the loop then finds the error
		}
		if l.slot.usableConn() == c {
			return nil
		}
	}
}

// handleBreak records that c is broken and starts the wait for another connection. It reports
// whether c was the current connection.
func (l *Link) handleBreak(c *linkConn, err error) bool {
	l.slot.mu.Lock()
	if l.slot.conn != c || l.slot.endErr != nil {
		l.slot.mu.Unlock()
		return false
	}
	if l.readEnded { // after HOP_END a break is final
		l.slot.mu.Unlock()
		l.endLinkWith(err)
		return true
	}
	if c.breakErr == nil {
		c.breakErr, l.brokenSince = err, time.Now()
		l.expiryTimer = time.AfterFunc(l.resumeTimeout, func() {
			if l.slot.currentConn() != c {
				return // it was resumed just now
			}
			l.endLinkWith(fault.New(fault.Unreachable, fmt.Errorf("the pipe broke and did not return within %v: %w",
				l.resumeTimeout, err),
				"check that both devices are on the same network"))
		})
		l.slot.cond.Broadcast()
	}
	l.RequestConn() // before switchConn can get mu
	l.slot.mu.Unlock()
	return true
}

// endLinkWith ends the Link. Only the first reason counts.
func (l *Link) endLinkWith(err error) {
	l.slot.mu.Lock()
	if l.slot.endErr == nil {
		l.slot.endErr = err
	}
	l.receivedSender.timer.Stop()
	if l.expiryTimer != nil {
		l.expiryTimer.Stop()
	}
	l.slot.cond.Broadcast()
	c := l.slot.conn
	l.slot.mu.Unlock()
	if l.replay.ownsRing {
		l.replay.ring.Kill()
	}
	c.raw.Close()
	l.RequestConn()
}

// CloseWrite implements Hop.
func (l *Link) CloseWrite() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return l.sendHopEndOnce()
}

// sendHopEndOnce sends HOP_END once. wmu must be held.
func (l *Link) sendHopEndOnce() error {
	if l.endSent {
		return l.slot.linkEndError()
	}
	l.endSent = true
	l.appendFrame(wire.HopEnd{})
	return l.flushLinkLocked()
}

// Close implements net.Conn. It ends the Link for good and notifies the peer if it can do so at
// once.
func (l *Link) Close() error {
	if l.HasEnded() {
		l.endLinkWith(net.ErrClosed) // close what a break has left open
		return nil
	}
	if l.wmu.TryLock() {
		_ = l.slot.currentConn().raw.SetWriteDeadline(time.Now().Add(handOverTimeout))
		_ = l.sendHopEndOnce()
		l.wmu.Unlock()
	}
	l.endLinkWith(net.ErrClosed)
	return nil
}
