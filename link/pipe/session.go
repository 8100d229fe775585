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

// This file reads and writes a Link over the connection of the moment, and ends it.

// Tuning.
const (
	// handOver bounds how long a write under way on the old connection holds
	// up a change to the new one.
	handOver = 50 * time.Millisecond
	// lastWords is how long a connection that cannot be written to any more is
	// read, for a reason that the other end may have given.
	lastWords = 200 * time.Millisecond
)

// Read implements net.Conn. It returns io.EOF when the peer ended its
// direction in order, and a wire.Refuse when it gave the reason for its end.
func (l *Link) Read(p []byte) (int, error) { return l.read(p, l.next) }

// next returns the ciphertext of the next HOP_DATA that is new. It
// waits through breaks, and its error is the end of the Link or of the
// direction.
func (l *Link) next() ([]byte, error) {
	var failed *carried
	for {
		c, err := l.slot.awaitOther(failed)
		if err != nil {
			return nil, err
		}
		t, payload, err := c.r.Next()
		switch {
		case err == nil:
		case l.slot.current() != c:
			continue
		case l.timed.Load() && errors.Is(err, os.ErrDeadlineExceeded):
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
	l.slot.mu.Lock()
	if l.slot.at != c {
		l.slot.mu.Unlock()
		return nil, nil
	}
	switch t {
	case wire.TypeHopData:
		defer l.slot.mu.Unlock()
		if payload = c.skipReceived(payload); len(payload) == 0 {
			return nil, nil
		}
		l.receipts.onData(len(payload))
		return payload, nil
	case wire.TypeHopEnd:
		defer l.slot.mu.Unlock()
		if len(payload) > 0 || c.skip > 0 {
			return nil, fmt.Errorf("%w: %v out of place", wire.ErrMalformed, t)
		}
		l.readEnded = true
		l.replay.ring.Confirm(l.sent.Load()) // nobody reads RECEIVED any more
		return nil, io.EOF
	case wire.TypeReceived:
		defer l.slot.mu.Unlock()
		err := l.replay.onReceived(payload)
		if err == nil {
			l.trips.onConfirmed(l.replay.confirmed, time.Now())
		}
		return nil, err
	}
	l.slot.mu.Unlock()
	if t == wire.TypeHopState {
		return nil, l.takeState(payload)
	}
	return l.take(t, payload)
}

// Write implements net.Conn. It takes what it may have to send again
// even while nothing carries it; it blocks when it can keep no more.
func (l *Link) Write(p []byte) (n int, err error) {
	if !l.replay.own {
		return l.write(p)
	}
	for n < len(p) {
		m := l.replay.store(p[n:])
		if m == 0 {
			return n, l.slot.failure()
		}
		if _, err := l.write(p[n : n+m]); err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

func (l *Link) write(p []byte) (n int, err error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.replay.written.Add(uint64(len(p)))
	return l.gatherData(p, l.flush)
}

// flush writes what is gathered, and what is due. While nothing carries the Link, replay
// has it. wmu must be held.
func (l *Link) flush() error {
	l.endFrame()
	for _, s := range l.takeReports() {
		l.appendFrame(s)
	}
	if f := l.facts.Swap(nil); f != nil {
		l.appendFrame(f)
	}
	l.appendReceived()
	if len(l.buf) == 0 {
		return nil
	}
	c := l.slot.usable()
	if c == nil {
		l.discard()
		return l.slot.failure()
	}
	hasData := l.held > 0
	return l.written(c, hasData, l.writeTo(&c.hopConn))
}

// appendReceived appends RECEIVED, if it is due or comes for nothing.
func (l *Link) appendReceived() {
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	// After HOP_END the peer does not read any more: it would close its
	// connection with bytes unread, and the reset cut off what it has sent.
	if !l.endSent {
		l.buf = l.receipts.append(l.buf)
	}
	l.receipts.due = false
}

// sendReceived is what the timer of receipts does.
func (l *Link) sendReceived() {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.slot.mu.Lock()
	l.receipts.onTimer()
	ended := l.slot.err != nil
	l.slot.mu.Unlock()
	if !ended && !l.corked {
		_ = l.flush() // who reads learns
	}
}

// written takes what a write to c returned. A break is no error of a Link.
func (l *Link) written(c *carried, hasData bool, err error) error {
	if err != nil && l.lost(c, err) {
		_ = c.hop.SetReadDeadline(time.Now().Add(lastWords))
	}
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	if l.readEnded {
		l.replay.ring.Confirm(l.sent.Load())
	}
	if err == nil && hasData {
		l.trips.onSent(l.sent.Load(), time.Now())
	}
	return l.slot.err
}

// WaitWritable blocks until a segment written now would soon leave this device.
func (l *Link) WaitWritable() error {
	for {
		c, err := l.slot.awaitUsable()
		if err != nil {
			return err
		}
		if err := c.hop.WaitWritable(); err != nil {
			l.lost(c, err)
			continue
		}
		if !l.replay.waitRoom() {
			continue // which finds err
		}
		if l.slot.usable() == c {
			return nil
		}
	}
}

// lost notes that c is broken, and starts the wait for another one. It reports
// whether the Link had used it.
func (l *Link) lost(c *carried, err error) bool {
	l.slot.mu.Lock()
	if l.slot.at != c || l.slot.err != nil {
		l.slot.mu.Unlock()
		return false
	}
	if l.readEnded { // a break is final now: see HOP_END
		l.slot.mu.Unlock()
		l.fail(err)
		return true
	}
	if c.broken == nil {
		c.broken, l.brokenTime = err, time.Now()
		l.expiry = time.AfterFunc(l.window, func() {
			if l.slot.current() != c {
				return // it has just come back
			}
			l.fail(fault.New(fault.Unreachable, fmt.Errorf("the pipe broke and was not back within %v: %w", l.window, err),
				"are both devices still on one network?"))
		})
		l.slot.cond.Broadcast()
	}
	l.Upset() // before who changes to another connection holds mu: see change
	l.slot.mu.Unlock()
	return true
}

// fail ends the Link; the first reason counts.
func (l *Link) fail(err error) {
	l.slot.mu.Lock()
	if l.slot.err == nil {
		l.slot.err = err
	}
	l.receipts.timer.Stop()
	if l.expiry != nil {
		l.expiry.Stop()
	}
	l.slot.cond.Broadcast()
	c := l.slot.at
	l.slot.mu.Unlock()
	if l.replay.own {
		l.replay.ring.Kill()
	}
	c.hop.Close()
	l.Upset()
}

// CloseWrite implements Hop.
func (l *Link) CloseWrite() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return l.sendEnd()
}

// sendEnd sends HOP_END, once. wmu must be held.
func (l *Link) sendEnd() error {
	if l.endSent {
		return l.slot.failure()
	}
	l.endSent = true
	l.appendFrame(wire.HopEnd{})
	return l.flush()
}

// Close implements net.Conn. It ends the Link for good, and tells the peer if that can be
// done at once.
func (l *Link) Close() error {
	if l.Ended() {
		l.fail(net.ErrClosed) // close what a break has left
		return nil
	}
	if l.wmu.TryLock() {
		_ = l.slot.current().hop.SetWriteDeadline(time.Now().Add(handOver))
		_ = l.sendEnd()
		l.wmu.Unlock()
	}
	l.fail(net.ErrClosed)
	return nil
}
