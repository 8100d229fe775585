package helper

import "sync"

// ring is the bounded buffer of one direction, between one goroutine that
// fills it and one that empties it. It takes memory as it is needed, up to its
// limit; a full ring blocks the filler, which is the push-back: who does not
// read lets TCP close the window.
type ring struct {
	mu    sync.Mutex
	cond  sync.Cond // signalled to the one that waits; never both do
	buf   []byte
	from  int // where the oldest byte is
	n     int // bytes held
	limit int
	most  int  // the largest n there was
	ended bool // nothing more is filled in
	dead  bool // nothing more is taken out
}

const ringStart = 128 << 10

func newRing(limit int) *ring {
	r := &ring{buf: make([]byte, min(limit, ringStart)), limit: limit}
	r.cond.L = &r.mu
	return r
}

// space blocks until there is room and returns a part of it to be filled; fill
// then tells how much was. It returns nil once the ring is dead.
func (r *ring) space() []byte {
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

// grow is called when the ring is full, by the filler, who thus holds no part
// of it. The emptier may: its part of the old memory stays as it is.
func (r *ring) grow() {
	b := make([]byte, min(r.limit, 2*len(r.buf)))
	n := copy(b, r.buf[r.from:])
	copy(b[n:], r.buf[:r.from])
	r.buf, r.from = b, 0
}

func (r *ring) fill(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n += n
	r.most = max(r.most, r.n)
	r.cond.Signal()
}

// end tells that nothing more will be filled in.
func (r *ring) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.cond.Signal()
}

// kill drops what is held and ends both sides' waiting.
func (r *ring) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = true
	r.cond.Broadcast()
}

// ready blocks until something is held, and reports whether there is: false
// after end, when all was taken, and after kill.
func (r *ring) ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.n == 0 && !r.ended && !r.dead {
		r.cond.Wait()
	}
	return r.n > 0 && !r.dead
}

// delivered reports whether the filler ended and all was taken.
func (r *ring) delivered() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended && r.n == 0 && !r.dead
}

// oldest returns up to n of the oldest bytes held, without removing them.
func (r *ring) oldest(n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf[r.from:min(r.from+min(n, r.n), len(r.buf))]
}

// drop removes the n oldest bytes.
func (r *ring) drop(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from = (r.from + n) % len(r.buf)
	r.n -= n
	r.cond.Signal()
}

// held is how many bytes are held now, and the most there ever were.
func (r *ring) held() (now, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n, r.most
}
