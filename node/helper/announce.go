package helper

import (
	"maps"
	"slices"
	"sync"

	"mpbond/base/identity"
	"mpbond/link/wire"
)

// announcer sends the facts of this device to primaries, on each pipe that waits or carries
// a subflow: what is known when the pipe is added, and each change. A primary that the
// owner has paused receives that this device refuses it. The newest facts are sent last on
// each pipe. Sending may block as long as a primary does not read; adding and announcing
// then wait, removing does not. Pipes stay their callers'; one that fails is left to them.
// Methods may be called by any goroutine. The sources are called with sending held.
type announcer struct {
	facts           func() wire.Facts           // the present ones
	pausedPrimaries func() []identity.PublicKey // primaries

	sending    sync.Mutex // held while facts are sent; taken before mu
	sent       wire.Facts // as last announced, with sentPaused
	sentPaused []identity.PublicKey

	mu    sync.Mutex
	pipes map[factsPipe]identity.PublicKey // and their primaries
}

// factsPipe is a *pipe.Offer or *pipe.Link.
type factsPipe interface{ SendFacts(wire.Facts) error }

func newAnnouncer(facts func() wire.Facts, paused func() []identity.PublicKey) *announcer {
	return &announcer{facts: facts, pausedPrimaries: paused, pipes: map[factsPipe]identity.PublicKey{}}
}

// addPipe sends the facts that were last announced on p, if there are any, and each change until
// remove.
func (a *announcer) addPipe(p factsPipe, primary identity.PublicKey) {
	a.mu.Lock()
	a.pipes[p] = primary
	a.mu.Unlock()
	a.sending.Lock()
	defer a.sending.Unlock()
	if f := a.factsFor(primary); f != (wire.Facts{}) {
		_ = p.SendFacts(f) // a pipe that broke is noticed by who waits on it
	}
}

func (a *announcer) removePipe(p factsPipe) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pipes, p)
}

// sendChanges sends the present facts on all pipes if they, or the primaries that are paused,
// have changed.
func (a *announcer) sendChanges() {
	a.sending.Lock()
	defer a.sending.Unlock()
	f, paused := a.facts(), a.pausedPrimaries()
	if f == a.sent && slices.Equal(paused, a.sentPaused) {
		return
	}
	a.sent, a.sentPaused = f, paused
	a.mu.Lock()
	pipes := maps.Clone(a.pipes)
	a.mu.Unlock()
	for p, primary := range pipes {
		_ = p.SendFacts(a.factsFor(primary)) // see add
	}
}

// factsFor returns what a primary receives. sending must be held.
func (a *announcer) factsFor(primary identity.PublicKey) wire.Facts {
	f := a.sent
	if slices.Contains(a.sentPaused, primary) {
		f.RefusalReason = errPaused.Error()
	}
	return f
}
