package pipe

import "sync"

// Ring is a bounded buffer between one goroutine that fills it and one that
// empties it, which keeps what was taken out until it is confirmed: bytes are
// waiting, then given, then dropped. It takes memory as it is needed, up to its
// limit; a full ring blocks the filler, which is the push-back: who does not
// read lets TCP close the window. All methods may be called by any goroutine,
// Space and Fill by the filler only, Ready, Next and Give by the emptier only.
type Ring struct {
	mu       sync.Mutex
	cond     sync.Cond
	buf      []byte
	base     uint64 // position of the oldest byte: how many were dropped before
	start    int    // where the oldest byte is
	held     int    // bytes held
	sent     int    // the oldest of them, which were given and are not confirmed
	limit    int
	peakHeld int  // the largest n there was
	ended    bool // nothing more is filled in
	dead     bool // nothing more is taken out
}

const initialRingSize = 128 << 10

// NewRing makes a ring of at most limit bytes.
func NewRing(limit int) *Ring {
	r := &Ring{buf: make([]byte, min(limit, initialRingSize)), limit: limit}
	r.cond.L = &r.mu
	return r
}

// WaitSpace blocks until there is room and returns a part of it to be filled; Fill
// then tells how much was. It returns nil once the ring is dead.
func (r *Ring) WaitSpace() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held == len(r.buf) && !r.dead {
		if len(r.buf) < r.limit {
			r.growBuffer()
		} else {
			r.cond.Wait()
		}
	}
	if r.dead {
		return nil
	}
	if r.held == 0 {
		r.start = 0 // the start again: memory that is never needed is never touched
	}
	at := (r.start + r.held) % len(r.buf)
	if at < r.start {
		return r.buf[at:r.start]
	}
	return r.buf[at:]
}

// WaitRoom blocks until Space would not, and reports whether the ring lives.
func (r *Ring) WaitRoom() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held == r.limit && !r.dead {
		r.cond.Wait()
	}
	return !r.dead
}

// growBuffer is called when the ring is full, by the filler, who thus holds no part
// of it. The emptier may: its part of the old memory stays as it is.
func (r *Ring) growBuffer() {
	b := make([]byte, min(r.limit, 2*len(r.buf)))
	n := copy(b, r.buf[r.start:])
	copy(b[n:], r.buf[:r.start])
	r.buf, r.start = b, 0
}

// CommitFilled tells that n bytes of what Space returned are filled.
func (r *Ring) CommitFilled(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += n
	r.peakHeld = max(r.peakHeld, r.held)
	r.cond.Broadcast()
}

// EndFill tells that nothing more will be filled in.
func (r *Ring) EndFill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.cond.Broadcast()
}

// Kill drops what is held and ends both sides' waiting.
func (r *Ring) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = true
	r.cond.Broadcast()
}

// WaitReady blocks until bytes wait, and reports whether there are: false after
// End, when all were given, and after Kill.
func (r *Ring) WaitReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held == r.sent && !r.ended && !r.dead {
		r.cond.Wait()
	}
	return r.held > r.sent && !r.dead
}

// AllSent reports whether the filler ended and all was given.
func (r *Ring) AllSent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended && r.held == r.sent && !r.dead
}

// Peek returns up to n of the oldest bytes that wait, without giving them.
func (r *Ring) Peek(n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := (r.start + r.sent) % len(r.buf)
	return r.buf[at:min(at+min(n, r.held-r.sent), len(r.buf))]
}

// MarkSent tells that the n oldest bytes that wait are on their way.
func (r *Ring) MarkSent(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent += n
}

// MarkDropped is Give for bytes that will not be asked for again.
func (r *Ring) MarkDropped(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent += n
	r.dropOldest(r.sent)
}

// Confirm drops given bytes before a position, counted from the first byte that
// the ring ever held.
func (r *Ring) Confirm(to uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to > r.base {
		r.dropOldest(int(min(to-r.base, uint64(r.sent))))
	}
}

func (r *Ring) dropOldest(n int) {
	r.start = (r.start + n) % len(r.buf)
	r.held -= n
	r.sent -= n
	r.base += uint64(n)
	r.cond.Broadcast()
}

// AppendAt appends n bytes from a position on, all of which are held.
func (r *Ring) AppendAt(b []byte, at uint64, n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := (r.start + int(at-r.base)) % len(r.buf)
	m := min(n, len(r.buf)-i)
	return append(append(b, r.buf[i:i+m]...), r.buf[:n-m]...)
}

// Held is how many bytes are held now, given ones included, and the most there
// ever were.
func (r *Ring) Held() (now, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held, r.peakHeld
}
