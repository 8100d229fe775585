// SPDX-License-Identifier: Apache-2.0

package pipe

import "sync"

// Ring is a bounded buffer between a goroutine that fills it and one that empties it. It keeps
// bytes that were sent until they are confirmed: bytes wait, are sent, are dropped. It grows on
// demand up to its limit. A full ring blocks the filler, which provides back-pressure: TCP's window
// closes towards a sender whose data is not read. Any goroutine may call the methods, but only the
// filler WaitSpace and CommitFilled, only the emptier WaitReady, Peek and MarkSent.
type Ring struct {
	mu       sync.Mutex
	cond     sync.Cond
	buf      []byte
	base     uint64 // position of the oldest byte: the number of bytes dropped
	start    int    // index of the oldest byte in buf
	held     int    // bytes held
	sent     int    // how many of them, the oldest, were sent and are not confirmed
	limit    int
	peakHeld int  // the largest value of held so far
	ended    bool // no more bytes are filled in
	dead     bool // no more bytes are taken out
}

const initialRingSize = 128 << 10

// NewRing returns a ring of at most limit bytes.
func NewRing(limit int) *Ring {
	r := &Ring{buf: make([]byte, min(limit, initialRingSize)), limit: limit}
	r.cond.L = &r.mu
	return r
}

// WaitSpace blocks until there is space and returns a part of it. CommitFilled must then report how
// much of it was filled. WaitSpace returns nil after Kill.
func (r *Ring) WaitSpace() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held == len(r.buf) && !r.dead {
		if len(r.buf) < r.limit {
			r.growRingBuffer()
		} else {
			r.cond.Wait()
		}
	}
	if r.dead {
		return nil
	}
	if r.held == 0 {
		r.start = 0 // restart at 0, so that unneeded memory is never touched
	}
	at := (r.start + r.held) % len(r.buf)
	if at < r.start {
		return r.buf[at:r.start]
	}
	return r.buf[at:]
}

// WaitRoom blocks until WaitSpace would not block. It reports false after Kill.
func (r *Ring) WaitRoom() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held == r.limit && !r.dead {
		r.cond.Wait()
	}
	return !r.dead
}

// growRingBuffer doubles the buffer. The filler calls it when the ring is full, so it holds no
// space. The emptier may hold a part of the old memory, which stays unchanged.
func (r *Ring) growRingBuffer() {
	b := make([]byte, min(r.limit, 2*len(r.buf)))
	n := copy(b, r.buf[r.start:])
	copy(b[n:], r.buf[:r.start])
	r.buf, r.start = b, 0
}

// CommitFilled records that n bytes of the space from WaitSpace are filled.
func (r *Ring) CommitFilled(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += n
	r.peakHeld = max(r.peakHeld, r.held)
	r.cond.Broadcast()
}

// EndFill records that no more bytes will be filled in.
func (r *Ring) EndFill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.cond.Broadcast()
}

// Kill drops the content and wakes both sides.
func (r *Ring) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = true
	r.cond.Broadcast()
}

// WaitReady blocks until bytes wait and reports whether any do: false after Kill, and after EndFill
// once all were sent.
func (r *Ring) WaitReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held == r.sent && !r.ended && !r.dead {
		r.cond.Wait()
	}
	return r.held > r.sent && !r.dead
}

// AllSent reports whether filling has ended and all bytes were sent.
func (r *Ring) AllSent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended && r.held == r.sent && !r.dead
}

// Peek returns up to n of the oldest waiting bytes without marking them as sent.
func (r *Ring) Peek(n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := (r.start + r.sent) % len(r.buf)
	return r.buf[at:min(at+min(n, r.held-r.sent), len(r.buf))]
}

// MarkSent marks the n oldest waiting bytes as sent.
func (r *Ring) MarkSent(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent += n
}

// MarkDropped marks the n oldest waiting bytes as sent and drops them: they will not be needed
// again.
func (r *Ring) MarkDropped(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent += n
	r.dropOldestBytes(r.sent)
}

// Confirm drops sent bytes before position to. Positions count from the first byte that the ring
// ever held.
func (r *Ring) Confirm(to uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to > r.base {
		r.dropOldestBytes(int(min(to-r.base, uint64(r.sent))))
	}
}

func (r *Ring) dropOldestBytes(n int) {
	r.start = (r.start + n) % len(r.buf)
	r.held -= n
	r.sent -= n
	r.base += uint64(n)
	r.cond.Broadcast()
}

// AppendAt appends n bytes from position at, all of which must be held.
func (r *Ring) AppendAt(b []byte, at uint64, n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := (r.start + int(at-r.base)) % len(r.buf)
	m := min(n, len(r.buf)-i)
	return append(append(b, r.buf[i:i+m]...), r.buf[:n-m]...)
}

// Held returns how many bytes are held now, including sent ones, and the largest number so far.
func (r *Ring) Held() (now, peak int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held, r.peakHeld
}
