package pipe

import (
	"net"
	"sync"
	"time"

	"mpbond/link/estimate"
)

// carried is one connection that carries a Link.
type carried struct {
	hopConn
	skip   uint64 // ciphertext to come that was received over another one already
	broken error  // why it carries nothing any more
}

// skipReceived returns what is new of the ciphertext that came.
func (c *carried) skipReceived(b []byte) []byte {
	n := min(c.skip, uint64(len(b)))
	c.skip -= n
	return b[n:]
}

// slot has the connection that carries a Link now, broken or not, and why the Link has
// ended. Mu guards its fields and those of the connection, and is never held for long; cond
// is signalled when at, its brokenness, or err change. Methods take mu themselves.
type slot struct {
	mu   sync.Mutex
	cond sync.Cond
	at   *carried
	err  error
}

// current returns the connection.
func (s *slot) current() *carried {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// failure returns why the Link has ended, or nil.
func (s *slot) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// usable returns the connection to write to, or nil while there is none.
func (s *slot) usable() *carried {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.at.broken != nil {
		return nil
	}
	return s.at
}

// awaitOther waits until the connection is another one than failed, or the Link has ended.
func (s *slot) awaitOther(failed *carried) (*carried, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.at == failed {
		s.cond.Wait()
	}
	return s.at, s.err
}

// awaitUsable waits until the connection is not broken, or the Link has ended.
func (s *slot) awaitUsable() (*carried, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.at.broken != nil {
		s.cond.Wait()
	}
	return s.at, s.err
}

// LocalAddr implements net.Conn.
func (s *slot) LocalAddr() net.Addr { return s.current().hop.LocalAddr() }

// RemoteAddr implements net.Conn: of the connection in use.
func (s *slot) RemoteAddr() net.Addr { return s.current().hop.RemoteAddr() }

// Via names the local link that the connection in use goes over.
func (s *slot) Via() string { return via(s.current().hop) }

// SetWriteDeadline implements net.Conn.
func (s *slot) SetWriteDeadline(t time.Time) error { return s.current().rw.SetWriteDeadline(t) }

// A hop is stalled that has bytes on the air and none acknowledged for so
// many of its round trips, and at least so long.
const (
	stallRTTs  = 3
	stallLeast = 250 * time.Millisecond
)

// stall watches a hop for bytes that are not acknowledged. It is not safe for concurrent
// use.
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
