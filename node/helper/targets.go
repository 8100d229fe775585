// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/tcp"
)

// targetSet holds the addresses of primaries that are called. It owns the list; each target has its
// own lock and a goroutine of pipeCaller. replaceTargets has one caller; the other methods are safe
// for concurrent use. The zero targetSet is empty.
type targetSet struct {
	mu   sync.Mutex
	list []*target
}

// replaceTargets sets the targets. Targets that exist already stay, missing ones are stopped, and
// new ones are returned for the caller to start.
func (s *targetSet) replaceTargets(list []*target) (added []*target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.list {
		if !slices.ContainsFunc(list, t.isSameTarget) {
			t.stop()
		}
	}
	for i, t := range list {
		if at := slices.IndexFunc(s.list, t.isSameTarget); at >= 0 {
			list[i] = s.list[at]
		} else {
			added = append(added, t)
		}
	}
	s.list = list
	return added
}

// listTargets returns the targets.
func (s *targetSet) listTargets() []*target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// targetsOfPrimary returns the targets of a primary.
func (s *targetSet) targetsOfPrimary(key identity.PublicKey) []*target {
	return slices.DeleteFunc(s.listTargets(), func(t *target) bool { return t.primary.Key != key })
}

// connectedAddresses returns the addresses of a primary that are called, and whether a pipe waits
// or is in use there.
func (s *targetSet) connectedAddresses(key identity.PublicKey) map[string]bool {
	at := map[string]bool{}
	for _, t := range s.targetsOfPrimary(key) {
		state, _, _ := t.currentPipeState()
		at[t.addr] = state == stateWaiting || state == stateBusy
	}
	return at
}

// countWaitingPipes returns the number of pipes that wait for a primary's request.
func (s *targetSet) countWaitingPipes(key identity.PublicKey) (n int) {
	for _, t := range s.targetsOfPrimary(key) {
		if state, _, _ := t.currentPipeState(); state == stateWaiting {
			n++
		}
	}
	return n
}

// target is one address of one primary, and the state of the calls there.
type target struct {
	primary identity.Peer
	addr    string
	stop    context.CancelFunc // set by startOffering

	mu           sync.Mutex
	state        string
	err          error
	readySince   time.Time // when a pipe last began to wait
	failingSince time.Time // since when no pipe could be opened; zero while there is one

	primaryTrouble peerTrouble
}

// setTargetState sets the state of the target, why it fails, and since when it is ready or failing.
func (t *target) setTargetState(state string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state, t.err = state, err
	switch {
	case state == stateWaiting:
		t.readySince, t.failingSince = time.Now(), time.Time{}
	case err == nil:
		t.failingSince = time.Time{}
	}
}

// setAttemptFailed records that an attempt started at began made no pipe.
func (t *target) setAttemptFailed(began time.Time, err error) {
	t.setTargetState(stateRetrying, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failingSince.IsZero() {
		t.failingSince = began
	}
}

// waitedSince returns how long a pipe opened after since has waited, 0 without one.
func (t *target) waitedSince(since time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.readySince.Before(since) {
		return 0
	}
	return time.Since(t.readySince)
}

// currentPipeState returns the state, and since when and why there is no pipe.
func (t *target) currentPipeState() (state string, since time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state, t.failingSince, t.err
}

// describeTarget returns the state for the API, with the primary's current name.
func (t *target) describeTarget(name string) PipeStatus {
	state, _, err := t.currentPipeState()
	p := PipeStatus{Primary: name, Address: t.addr, State: state, Hint: fault.HintOf(err)}
	if err != nil {
		p.Error = err.Error()
		p.Trouble = &api.Trouble{
			Kind:  fault.KindOf(err),
			Cause: tcp.CauseOf(err),
			At:    t.addr,
			Text:  p.Error,
			Hint:  p.Hint,
		}
	} else if f := t.primaryTrouble.currentTrouble(); state == stateWaiting && f.Text != "" {
		p.Trouble = &api.Trouble{Kind: fault.Unreachable, Cause: causeFromCode(f.Code), By: name, At: f.Address, Text: f.Text}
	}
	return p
}

// States of a target.
const (
	stateStarting = "starting"
	stateWaiting  = "waiting" // its pipe waits for a subflow
	stateBusy     = "busy"    // its pipe is in use, and there can be no second
	stateRetrying = "retrying"
)

// String returns the carrier and the address.
func (t *target) String() string {
	if scheme, addr, ok := strings.Cut(t.addr, "://"); ok {
		return scheme + " " + addr
	}
	return "tcp " + t.addr
}

// isSameTarget reports whether two targets are the same address of the same device.
func (t *target) isSameTarget(u *target) bool {
	return t.addr == u.addr && t.primary.Key == u.primary.Key
}
