// SPDX-License-Identifier: Apache-2.0

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

// helper is one connected helper with its pipes. A pipe waits while it is in reserve, or held by
// the supervisor because the helper is suspended. It is unused while it waits, and while a subflow
// joins over it. The link carries the subflow, over one pipe after the other. At most one
// supervisor uses it at a time: admitNewPipe starts one, and takeNextPipe returns nil to end it.
// The caller that takes a pipe from the reserve owns it. Safe for concurrent use; mu is held while
// locks of pipes are taken and events are recorded.
type helper struct {
	key          identity.PublicKey
	revoked      chan struct{}    // closed when the helper is no longer trusted
	reserveGrown chan struct{}    // signals that the reserve has grown
	moveRequests chan moveRequest // received by its supervisor
	rec          *trace.Recorder  // nil: no trace

	mu            sync.Mutex
	name          string          // current name
	hasSupervisor bool            // a supervisor maintains its subflow
	lastPipe      time.Time       // when the last pipe came
	reserve       []*pipe.Waiting // oldest first
	heldPipe      *pipe.Waiting   // while the helper is suspended, else nil
	joiningPipe   *pipe.Waiting   // while a subflow joins over it, else nil
	link          *pipe.Link      // session of pipes that carries its subflow; may be nil
	attempt       int             // index of the server address in use
}

// moveRequest asks to move a subflow to the waiting pipe at an address.
type moveRequest struct {
	subflow wire.SubflowID
	to      string
	done    chan error // buffered; receives the result
}

// maxReserve bounds the pipes in reserve. One for each address at which a helper finds this device
// is enough.
const maxReserve = 8

func newHelper(key identity.PublicKey, name string, rec *trace.Recorder) *helper {
	return &helper{
		key:          key,
		name:         name,
		rec:          rec,
		revoked:      make(chan struct{}),
		reserveGrown: make(chan struct{}, 1),
		moveRequests: make(chan moveRequest),
	}
}

// admitNewPipe accepts a new pipe. first reports that the caller owns the pipe and becomes the
// supervisor; otherwise the pipe joins the reserve.
func (h *helper) admitNewPipe(w *pipe.Waiting, now time.Time) (first bool) {
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

// addReserve adds a pipe to the reserve. Broken pipes make room, then the oldest one. mu must be
// held.
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

// takeNextPipe takes the pipe for the supervisor to go on with from the reserve, or returns nil if
// there is none. If closing is set it closes the pipes in reserve and returns nil. After nil, the
// next pipe starts a supervisor again.
func (h *helper) takeNextPipe(closing bool) *pipe.Waiting {
	h.mu.Lock()
	defer h.mu.Unlock()
	if closing || h.isRevoked() {
		h.closeReserve()
	}
	w := h.takeMatchingLocked(func(*pipe.Waiting) bool { return true })
	if h.hasSupervisor = w != nil; !h.hasSupervisor {
		h.rec.Add(trace.Event{Kind: trace.DeviceDown, Device: h.name})
	}
	return w
}

// takeNewest takes the newest pipe in reserve that works. It returns nil if there is none.
func (h *helper) takeNewest() *pipe.Waiting {
	return h.takeMatching(func(*pipe.Waiting) bool { return true })
}

// takeReservePipeVia takes the newest reserve pipe over an interface of this device, or returns
// nil.
func (h *helper) takeReservePipeVia(iface string) *pipe.Waiting {
	return h.takeMatching(func(w *pipe.Waiting) bool { return w.Via() == iface })
}

// takeReservePipeAt takes the newest reserve pipe to an address, or returns nil.
func (h *helper) takeReservePipeAt(addr string) *pipe.Waiting {
	return h.takeMatching(func(w *pipe.Waiting) bool { return w.RemoteAddr().String() == addr })
}

// takeMatching takes the newest working reserve pipe that matches, or returns nil.
func (h *helper) takeMatching(match func(*pipe.Waiting) bool) *pipe.Waiting {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.takeMatchingLocked(match)
}

// takeMatchingLocked is takeMatching with mu held.
func (h *helper) takeMatchingLocked(match func(*pipe.Waiting) bool) *pipe.Waiting {
	for i, w := range slices.Backward(h.reserve) {
		if match(w) && w.Err() == nil {
			h.reserve = slices.Delete(h.reserve, i, i+1)
			return w
		}
	}
	return nil
}

// reservePipes returns the pipes in reserve without taking them.
func (h *helper) reservePipes() []*pipe.Waiting {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.reserve)
}

// allWaitingPipes returns the pipes that wait: those in reserve and the one that the supervisor
// holds.
func (h *helper) allWaitingPipes() []*pipe.Waiting {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.reserve)
	if h.heldPipe != nil {
		list = append(list, h.heldPipe)
	}
	return list
}

// setHeldPipe sets the pipe that the supervisor holds; nil for none.
func (h *helper) setHeldPipe(w *pipe.Waiting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heldPipe = w
}

// setJoiningPipe sets the pipe over which a subflow joins; nil for none.
func (h *helper) setJoiningPipe(w *pipe.Waiting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.joiningPipe = w
}

// unusedPipes returns all pipes that carry no subflow yet: those that wait, and the one over which
// a subflow joins.
func (h *helper) unusedPipes() []*pipe.Waiting {
	list := h.allWaitingPipes()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.joiningPipe != nil {
		list = append(list, h.joiningPipe)
	}
	return list
}

// setCarryingLink sets the link that carries the subflow; nil for none.
func (h *helper) setCarryingLink(l *pipe.Link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link = l
}

// currentLink returns the link that carries the subflow, nil if there is none, and the number of
// pipes in reserve.
func (h *helper) currentLink() (*pipe.Link, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.link, len(h.reserve)
}

// requestPipeFor asks the link to move to another pipe soon, if its token is t.
func (h *helper) requestPipeFor(t wire.Token) {
	if l, _ := h.currentLink(); l != nil && l.Token() == t {
		l.RequestConn()
	}
}

// setAttempt sets the index of the server address that the subflow uses.
func (h *helper) setAttempt(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempt = n
}

// lastAttempt returns the value last set by setAttempt.
func (h *helper) lastAttempt() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.attempt
}

// currentHelperName returns the helper's current name.
func (h *helper) currentHelperName() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.name
}

// setHelperName changes the helper's name and returns the previous one.
func (h *helper) setHelperName(to string) (from string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from, h.name = h.name, to
	return from
}

// lastPipeTime returns when the last pipe came.
func (h *helper) lastPipeTime() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastPipe
}

// revoke ends everything of a helper that is no longer trusted. It must be called once.
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
	for _, w := range h.reserve {
		w.Close()
	}
	h.reserve = nil
}
