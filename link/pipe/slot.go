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
	skipBytes uint64 // ciphertext to come that was received over another one already
	breakErr  error  // why it carries nothing any more
}

// skipReceived returns what is new of the ciphertext that came.
func (c *linkConn) skipReceived(b []byte) []byte {
	n := min(c.skipBytes, uint64(len(b)))
	c.skipBytes -= n
	return b[n:]
}

// slot has the connection that carries a Link now, broken or not, and why the Link has
// ended. Mu guards its fields and those of the connection, and is never held for long; cond
// is signalled when at, its brokenness, or err change. Methods take mu themselves.
type slot struct {
	mu     sync.Mutex
	cond   sync.Cond
	conn   *linkConn
	endErr error
}

// currentConn returns the connection.
func (s *slot) currentConn() *linkConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// endError returns why the Link has ended, or nil.
func (s *slot) endError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endErr
}

// usableConn returns the connection to write to, or nil while there is none.
func (s *slot) usableConn() *linkConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endErr != nil || s.conn.breakErr != nil {
		return nil
	}
	return s.conn
}

// awaitOtherConn waits until the connection is another one than failed, or the Link has ended.
func (s *slot) awaitOtherConn(failed *linkConn) (*linkConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.endErr == nil && s.conn == failed {
		s.cond.Wait()
	}
	return s.conn, s.endErr
}

// awaitUsableConn waits until the connection is not broken, or the Link has ended.
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

// RemoteAddr implements net.Conn: of the connection in use.
func (s *slot) RemoteAddr() net.Addr { return s.currentConn().raw.RemoteAddr() }

// Via names the local link that the connection in use goes over.
func (s *slot) Via() string { return localLinkName(s.currentConn().raw) }

// SetWriteDeadline implements net.Conn.
func (s *slot) SetWriteDeadline(t time.Time) error { return s.currentConn().rw.SetWriteDeadline(t) }

// A hop is stalled that has bytes on the air and none acknowledged for so
// many of its round trips, and at least so long.
const (
	stallRTTs    = 3
	minStallTime = 250 * time.Millisecond
)

// stallDetector watches a hop for bytes that are not acknowledged. It is not safe for concurrent
// use.
type stallDetector struct {
	inFlight     bool      // at the last look something was on the way
	acked        uint64    // when it last moved
	lastProgress time.Time // when that was, or when nothing was on the way
}

// update takes in what a hop tells. What was sent after a look that found nothing on
// the way may have been sent just now: time counts from this look on then.
func (s *stallDetector) update(now time.Time, h estimate.Hop) bool {
	before := s.inFlight
	s.inFlight = h.Queue > h.Unsent
	if !before || !s.inFlight || h.Acked != s.acked {
		s.acked, s.lastProgress = h.Acked, now
		return false
	}
	return now.Sub(s.lastProgress) >= max(stallRTTs*h.SRTT, minStallTime)
}
