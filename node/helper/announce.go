// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"maps"
	"slices"
	"sync"

	"mpbond/base/identity"
	"mpbond/link/wire"
)

// announcer sends the facts of this device to primaries, on each pipe that waits or carries a
// subflow: the current facts when a pipe is added, then each change. A primary paused by the owner
// receives a refusal. The newest facts are sent last on each pipe. Sending may block while a
// primary does not read; adding and announcing then wait, removing does not. Callers own the pipes
// and handle their failures. Safe for concurrent use. facts and pausedPrimaries are called with
// sending held.
type announcer struct {
	facts           func() wire.Facts           // current facts
	pausedPrimaries func() []identity.PublicKey // primaries paused by the owner

	sending    sync.Mutex // held while facts are sent; taken before mu
	sent       wire.Facts // last announced, with sentPaused
	sentPaused []identity.PublicKey

	mu    sync.Mutex
	pipes map[factsPipe]identity.PublicKey // with their primaries
}

// factsPipe is a *pipe.Offer or *pipe.Link.
type factsPipe interface{ SendFacts(wire.Facts) error }

func newAnnouncer(facts func() wire.Facts, paused func() []identity.PublicKey) *announcer {
	return &announcer{facts: facts, pausedPrimaries: paused, pipes: map[factsPipe]identity.PublicKey{}}
}

// addFactsPipe sends the last announced facts on p, if any, and each change until removeFactsPipe.
func (a *announcer) addFactsPipe(p factsPipe, primary identity.PublicKey) {
	a.mu.Lock()
	a.pipes[p] = primary
	a.mu.Unlock()
	a.sending.Lock()
	defer a.sending.Unlock()
	if f := a.factsForPrimary(primary); f != (wire.Facts{}) {
		_ = p.SendFacts(f) // the waiting goroutine notices that the pipe broke
	}
}

func (a *announcer) removeFactsPipe(p factsPipe) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pipes, p)
}

// sendChanges sends the current facts on all pipes if the facts or the paused primaries have
// changed.
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
		_ = p.SendFacts(a.factsForPrimary(primary)) // see addFactsPipe
	}
}

// factsForPrimary returns the facts for a primary. sending must be held.
func (a *announcer) factsForPrimary(primary identity.PublicKey) wire.Facts {
	f := a.sent
	if slices.Contains(a.sentPaused, primary) {
		f.RefusalReason = errPaused.Error()
	}
	return f
}
