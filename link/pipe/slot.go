// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"net"
	"sync"
	"time"

	"mpbond/link/estimate"
)

// linkConn is one connection that carries a Link.
type linkConn struct {
	hopConn
	skipBytes uint64 // ciphertext still to come that was already received over another connection
	breakErr  error  // why it no longer works
}

// skipReceived returns the part of b that is new.
func (c *linkConn) skipReceived(b []byte) []byte {
	n := min(c.skipBytes, uint64(len(b)))
	c.skipBytes -= n
	return b[n:]
}

// slot holds the current connection of a Link, broken or not, and the reason why the Link has
// ended. mu guards its fields and those of the connection, and is only held briefly. cond is
// signalled when conn, its breakErr or endErr change. The methods lock mu.
type slot struct {
	mu     sync.Mutex
	cond   sync.Cond
	conn   *linkConn
	endErr error
}

// currentConn returns the current connection.
func (s *slot) currentConn() *linkConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// linkEndError returns why the Link has ended, or nil.
func (s *slot) linkEndError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endErr
}

// usableConn returns the connection to write to, or nil if there is none now.
func (s *slot) usableConn() *linkConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endErr != nil || s.conn.breakErr != nil {
		return nil
	}
	return s.conn
}

// awaitOtherConn waits until another connection than old is current, or the Link has ended.
func (s *slot) awaitOtherConn(old *linkConn) (*linkConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.endErr == nil && s.conn == old {
		s.cond.Wait()
	}
	return s.conn, s.endErr
}

// awaitUsableConn waits until the current connection works, or the Link has ended.
func (s *slot) awaitUsableConn() (*linkConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.endErr == nil && s.conn.breakErr != nil {
		s.cond.Wait()
	}
	return s.conn, s.endErr
}

// LocalAddr implements net.Conn.
func (s *slot) LocalAddr() net.Addr { return s.currentConn().raw.LocalAddr() }

// RemoteAddr implements net.Conn. It returns the address of the current connection.
func (s *slot) RemoteAddr() net.Addr { return s.currentConn().raw.RemoteAddr() }

// Via returns a name for the local link of the current connection.
func (s *slot) Via() string { return localLinkName(s.currentConn().raw) }

// SetWriteDeadline implements net.Conn.
func (s *slot) SetWriteDeadline(t time.Time) error { return s.currentConn().rw.SetWriteDeadline(t) }

// A hop is stalled if bytes are in flight and none has been acknowledged for stallRTTs of its round
// trips, and at least for minStallTime.
const (
	stallRTTs    = 3
	minStallTime = 250 * time.Millisecond
)

// stallDetector watches a hop for missing acknowledgements. Not safe for concurrent use.
type stallDetector struct {
	inFlight     bool      // bytes were in flight at the last update
	acked        uint64    // value of Acked at lastProgress
	lastProgress time.Time // when Acked last changed, or nothing was in flight
}

// observeHopStall adds a sample and reports whether the hop is stalled. Time counts from the first
// sample that finds bytes in flight: these may have been sent just before it.
func (s *stallDetector) observeHopStall(now time.Time, h estimate.Hop) bool {
	before := s.inFlight
	s.inFlight = h.Queue > h.Unsent
	if !before || !s.inFlight || h.Acked != s.acked {
		s.acked, s.lastProgress = h.Acked, now
		return false
	}
	return now.Sub(s.lastProgress) >= max(stallRTTs*h.SRTT, minStallTime)
}
