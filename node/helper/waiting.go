package helper

import (
	"context"
	"net"
	"sync"
)

// waitingPipes holds the pipes that wait until a primary asks for something, so that they
// can be given up: nothing tells a waiting pipe that it is dead before its keep-alives do.
// Methods may be called by any goroutine. The zero waitingPipes is ready.
type waitingPipes struct {
	mu  sync.Mutex
	set map[*waitingPipe]struct{}
}

// waitingPipe is one of them.
type waitingPipe struct {
	local net.Addr
	drop  context.CancelCauseFunc
}

// trackPipe returns a context for the wait on a pipe that goes from local. It ends with ctx, with
// the error of drop as its cause, and when the caller calls done, as it must.
func (w *waitingPipes) trackPipe(ctx context.Context, local net.Addr) (_ context.Context, done func()) {
	ctx, drop := context.WithCancelCause(ctx)
	p := &waitingPipe{local, drop}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set == nil {
		w.set = map[*waitingPipe]struct{}{}
	}
	w.set[p] = struct{}{}
	return ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.set, p)
		drop(nil)
	}
}

// dropWhere gives up, for the reason err, the pipes that go from an address for which lost
// returns true.
func (w *waitingPipes) dropWhere(err error, lost func(local net.Addr) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.set {
		if lost(p.local) {
			p.drop(err)
		}
	}
}

// wakeSignal ends the waits of all who wait for it. The zero wakeSignal is ready.
type wakeSignal struct {
	mu sync.Mutex
	c  chan struct{}
}

// nextSignal returns a channel that is closed by the next call of now.
func (w *wakeSignal) nextSignal() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c == nil {
		w.c = make(chan struct{})
	}
	return w.c
}

func (w *wakeSignal) fireSignal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c != nil {
		close(w.c)
		w.c = nil
	}
}
