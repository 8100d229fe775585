// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"net"
	"sync"
)

// waitingPipes holds the pipes that wait for a request of a primary, so that they can be dropped: a
// waiting pipe does not notice that it is dead before its keep-alives fail. Safe for concurrent
// use. The zero waitingPipes is ready.
type waitingPipes struct {
	mu  sync.Mutex
	set map[*waitingPipe]struct{}
}

// waitingPipe is one waiting pipe.
type waitingPipe struct {
	local net.Addr
	drop  context.CancelCauseFunc
}

// trackPipe returns a context for the wait on a pipe with a local address. It ends with ctx, with
// the error passed to dropPipesWhere as its cause, or when the caller calls done, as it must.
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

// dropPipesWhere drops, for the reason err, the pipes with a local address that lost accepts.
func (w *waitingPipes) dropPipesWhere(err error, lost func(local net.Addr) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.set {
		if lost(p.local) {
			p.drop(err)
		}
	}
}

// wakeSignal wakes all goroutines that wait for it. The zero wakeSignal is ready.
type wakeSignal struct {
	mu sync.Mutex
	c  chan struct{}
}

// nextSignal returns a channel that the next call of fireSignal closes.
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
