package primary

import (
	"slices"
	"sync"
	"time"

	"mpbond/base/identity"
	"mpbond/core/trace"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// helper is one helper that calls, with its pipes: those that wait in reserve, the one that
// its keeper holds while the helper may carry nothing, and the link that carries its subflow.
// Exactly one keeper uses it at a time: admitPipe says whose pipe makes a keeper, nextPipe when
// it ends. Whoever takes a pipe from the reserve owns it. Safe for concurrent use; its lock is
// held while those of pipes are taken, and while events are recorded.
type helper struct {
	key          identity.PublicKey
	revoked      chan struct{}    // closed when the helper is trusted no longer
	reserveGrown chan struct{}    // gets a value when the reserve has grown
	moveRequests chan moveRequest // its keeper takes them
	rec          *trace.Recorder  // nil: nothing is traced

	mu            sync.Mutex
	name          string          // as it is called now
	hasSupervisor bool            // a keeper keeps its subflow
	lastPipe      time.Time       // when one came last
	reserve       []*pipe.Waiting // oldest first
	heldPipe      *pipe.Waiting   // while the helper rests; else nil
	link          *pipe.Link      // that carries its subflow, or nil
	attempt       int             // which of the server's addresses that subflow goes to
}

// moveRequest asks for a subflow to go on over the pipe that waits at an address.
type moveRequest struct {
	path wire.SubflowID
	to   string
	done chan error // has room for what has become of it
}

// maxReserve bounds the pipes in reserve: one for each address at which a
// helper finds us, and more is of no use.
const maxReserve = 8

func newHelper(key identity.PublicKey, name string, rec *trace.Recorder) *helper {
	return &helper{key: key, name: name, rec: rec, revoked: make(chan struct{}), reserveGrown: make(chan struct{}, 1), moveRequests: make(chan moveRequest)}
}

// admitPipe takes a pipe that has come, and reports whether its caller becomes the keeper and
// owns it; else it waits in reserve.
func (h *helper) admitPipe(w *pipe.Waiting, now time.Time) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastPipe = now
	if first = !h.hasSupervisor; first {
		h.rec.Add(trace.Event{Kind: trace.DeviceUp, Device: h.name})
	}
	h.rec.Add(trace.Event{Kind: trace.PipeUp, Device: h.name, Text: w.RemoteAddr().String()})
	if h.hasSupervisor {
		h.addReserve(w)
	}
	h.hasSupervisor = true
	return first
}

// addReserve puts a pipe into the reserve. Broken ones make room, then the oldest. mu must be held.
func (h *helper) addReserve(w *pipe.Waiting) {
	h.reserve = slices.DeleteFunc(h.reserve, func(r *pipe.Waiting) bool {
		select {
		case <-r.Done():
			return true
		default:
			return false
		}
	})
	if len(h.reserve) == maxReserve {
		h.reserve[0].Close()
		h.reserve = h.reserve[1:]
	}
	h.reserve = append(h.reserve, w)
	select {
	case h.reserveGrown <- struct{}{}:
	default:
	}
}

// nextPipe returns the pipe with which its keeper goes on, nil if there is none. With
// over all pipes are closed. After nil the next pipe that comes makes a keeper again.
func (h *helper) nextPipe(over bool) *pipe.Waiting {
	h.mu.Lock()
	defer h.mu.Unlock()
	if over || h.isRevoked() {
		h.closeReserve()
	}
	w := h.takeLast()
	if h.hasSupervisor = w != nil; !h.hasSupervisor {
		h.rec.Add(trace.Event{Kind: trace.DeviceDown, Device: h.name})
	}
	return w
}

// takeNewest returns the newest pipe in reserve, the likeliest to work, or nil.
func (h *helper) takeNewest() *pipe.Waiting {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.takeLast()
}

// takeLast takes the newest pipe in reserve. mu must be held.
func (h *helper) takeLast() *pipe.Waiting {
	n := len(h.reserve)
	if n == 0 {
		return nil
	}
	w := h.reserve[n-1]
	h.reserve = h.reserve[:n-1]
	return w
}

// takeVia returns the newest pipe in reserve over a link of this device, or nil.
func (h *helper) takeVia(link string) *pipe.Waiting {
	return h.takeMatching(func(w *pipe.Waiting) bool { return w.Via() == link })
}

// takeAt returns the newest pipe in reserve to an address, or nil.
func (h *helper) takeAt(addr string) *pipe.Waiting {
	return h.takeMatching(func(w *pipe.Waiting) bool { return w.RemoteAddr().String() == addr })
}

// takeMatching returns the newest pipe in reserve that works and matches, or nil.
func (h *helper) takeMatching(match func(*pipe.Waiting) bool) *pipe.Waiting {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, w := range slices.Backward(h.reserve) {
		if match(w) && w.Err() == nil {
			h.reserve = slices.Delete(h.reserve, i, i+1)
			return w
		}
	}
	return nil
}

// reservePipes returns the pipes in reserve, which stay there.
func (h *helper) reservePipes() []*pipe.Waiting {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.reserve)
}

// waitingPipes returns all pipes that wait.
func (h *helper) waitingPipes() []*pipe.Waiting {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.reserve)
	if h.heldPipe != nil {
		list = append(list, h.heldPipe)
	}
	return list
}

// setHeldPipe notes the pipe that its keeper holds, nil for none.
func (h *helper) setHeldPipe(w *pipe.Waiting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heldPipe = w
}

// setLink notes the link that carries its subflow, nil for none.
func (h *helper) setLink(l *pipe.Link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link = l
}

// currentLink returns the link that carries its subflow, nil for none, and how many pipes wait
// beside it.
func (h *helper) currentLink() (*pipe.Link, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.link, len(h.reserve)
}

// requestPipeFor makes the link look for another pipe soon, if it is the one of a token.
func (h *helper) requestPipeFor(t wire.Token) {
	if l, _ := h.currentLink(); l != nil && l.Token() == t {
		l.RequestConn()
	}
}

// setAttempt notes which of the server's addresses its subflow goes to.
func (h *helper) setAttempt(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempt = n
}

// lastAttempt returns what setAttempt has noted.
func (h *helper) lastAttempt() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.attempt
}

// currentName returns the helper's name now.
func (h *helper) currentName() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.name
}

// setName gives the helper another name, and returns the one that it had.
func (h *helper) setName(to string) (from string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from, h.name = h.name, to
	return from
}

// lastPipeTime returns when a pipe came last.
func (h *helper) lastPipeTime() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastPipe
}

// revoke ends all for a helper that is trusted no longer. It is called once.
func (h *helper) revoke() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.revoked)
	h.closeReserve()
}

func (h *helper) isRevoked() bool {
	select {
	case <-h.revoked:
		return true
	default:
		return false
	}
}

// closeReserve closes the pipes in reserve. mu must be held.
func (h *helper) closeReserve() {
	for w := h.takeLast(); w != nil; w = h.takeLast() {
		w.Close()
	}
}
