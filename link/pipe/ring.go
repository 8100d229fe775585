package pipe

import "sync"

// Ring is a bounded buffer between one goroutine that fills it and one that
// empties it, which keeps what was taken out until it is confirmed: bytes are
// waiting, then given, then dropped. It takes memory as it is needed, up to its
// limit; a full ring blocks the filler, which is the push-back: who does not
// read lets TCP close the window. All methods may be called by any goroutine,
// Space and Fill by the filler only, Ready, Next and Give by the emptier only.
type Ring struct {
	mu    sync.Mutex
	cond  sync.Cond
	buf   []byte
	base  uint64 // position of the oldest byte: how many were dropped before
	from  int    // where the oldest byte is
	n     int    // bytes held
	given int    // the oldest of them, which were given and are not confirmed
	limit int
	most  int  // the largest n there was
	ended bool // nothing more is filled in
	dead  bool // nothing more is taken out
}

const ringStart = 128 << 10

// NewRing makes a ring of at most limit bytes.
func NewRing(limit int) *Ring {
	r := &Ring{buf: make([]byte, min(limit, ringStart)), limit: limit}
	r.cond.L = &r.mu
	return r
}

// Space blocks until there is room and returns a part of it to be filled; Fill
// then tells how much was. It returns nil once the ring is dead.
func (r *Ring) Space() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.n == len(r.buf) && !r.dead {
		if len(r.buf) < r.limit {
			r.grow()
		} else {
			r.cond.Wait()
		}
	}
	if r.dead {
		return nil
	}
	if r.n == 0 {
		r.from = 0 // the start again: memory that is never needed is never touched
	}
	at := (r.from + r.n) % len(r.buf)
	if at < r.from {
		return r.buf[at:r.from]
	}
	return r.buf[at:]
}

// WaitRoom blocks until Space would not, and reports whether the ring lives.
func (r *Ring) WaitRoom() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.n == r.limit && !r.dead {
		r.cond.Wait()
	}
	return !r.dead
}

// grow is called when the ring is full, by the filler, who thus holds no part
// of it. The emptier may: its part of the old memory stays as it is.
func (r *Ring) grow() {
	b := make([]byte, min(r.limit, 2*len(r.buf)))
	n := copy(b, r.buf[r.from:])
	copy(b[n:], r.buf[:r.from])
	r.buf, r.from = b, 0
}

// Fill tells that n bytes of what Space returned are filled.
func (r *Ring) Fill(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n += n
	r.most = max(r.most, r.n)
	r.cond.Broadcast()
}

// End tells that nothing more will be filled in.
func (r *Ring) End() {
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

// Ready blocks until bytes wait, and reports whether there are: false after
// End, when all were given, and after Kill.
func (r *Ring) Ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.n == r.given && !r.ended && !r.dead {
		r.cond.Wait()
	}
	return r.n > r.given && !r.dead
}

// Delivered reports whether the filler ended and all was given.
func (r *Ring) Delivered() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended && r.n == r.given && !r.dead
}

// Next returns up to n of the oldest bytes that wait, without giving them.
func (r *Ring) Next(n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := (r.from + r.given) % len(r.buf)
	return r.buf[at:min(at+min(n, r.n-r.given), len(r.buf))]
}

// Give tells that the n oldest bytes that wait are on their way.
func (r *Ring) Give(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.given += n
}

// Drop is Give for bytes that will not be asked for again.
func (r *Ring) Drop(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.given += n
	r.drop(r.given)
}

// Confirm drops given bytes before a position, counted from the first byte that
// the ring ever held.
func (r *Ring) Confirm(to uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to > r.base {
		r.drop(int(min(to-r.base, uint64(r.given))))
	}
}

func (r *Ring) drop(n int) {
	r.from = (r.from + n) % len(r.buf)
	r.n -= n
	r.given -= n
	r.base += uint64(n)
	r.cond.Broadcast()
}

// AppendAt appends n bytes from a position on, all of which are held.
func (r *Ring) AppendAt(b []byte, at uint64, n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := (r.from + int(at-r.base)) % len(r.buf)
	m := min(n, len(r.buf)-i)
	return append(append(b, r.buf[i:i+m]...), r.buf[:n-m]...)
}

// Held is how many bytes are held now, given ones included, and the most there
// ever were.
func (r *Ring) Held() (now, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n, r.most
}
