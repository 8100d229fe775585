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

// targetSet holds the addresses of primaries that are called. It owns the list; each target
// is kept by a goroutine of pipeCaller and has its own lock. Methods may be
// called by any goroutine but replace, which has one caller. The zero targetSet is empty.
type targetSet struct {
	mu   sync.Mutex
	list []*target
}

// replace makes list the targets. Those of them that there were go on as they are, those
// that are not in it any more are stopped, and the new ones are returned: the caller has
// them kept.
func (s *targetSet) replace(list []*target) (added []*target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.list {
		if !slices.ContainsFunc(list, t.same) {
			t.stop()
		}
	}
	for i, t := range list {
		if at := slices.IndexFunc(s.list, t.same); at >= 0 {
			list[i] = s.list[at]
		} else {
			added = append(added, t)
		}
	}
	s.list = list
	return added
}

// all returns the targets.
func (s *targetSet) all() []*target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// of returns the targets of a primary.
func (s *targetSet) of(key identity.PublicKey) []*target {
	return slices.DeleteFunc(s.all(), func(t *target) bool { return t.primary.Key != key })
}

// connected returns the addresses of a primary that are called, and whether a pipe waits or
// is in use there.
func (s *targetSet) connected(key identity.PublicKey) map[string]bool {
	at := map[string]bool{}
	for _, t := range s.of(key) {
		state, _, _ := t.get()
		at[t.addr] = state == waiting || state == busy
	}
	return at
}

// waitingAt returns at how many addresses a pipe waits for a primary's request.
func (s *targetSet) waitingAt(key identity.PublicKey) (n int) {
	for _, t := range s.of(key) {
		if state, _, _ := t.get(); state == waiting {
			n++
		}
	}
	return n
}

// target is one address of one primary, and what became of calls there.
type target struct {
	primary identity.Peer
	addr    string
	stop    context.CancelFunc // set by keep

	mu      sync.Mutex
	state   string
	err     error
	ready   time.Time // when a pipe last began to wait
	failing time.Time // since when no pipe could be made; zero while one is there

	peer peerTrouble
}

func (t *target) set(state string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state, t.err = state, err
	switch {
	case state == waiting:
		t.ready, t.failing = time.Now(), time.Time{}
	case err == nil:
		t.failing = time.Time{}
	}
}

// fail notes that an attempt which began at a time made no pipe.
func (t *target) fail(began time.Time, err error) {
	t.set(retrying, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failing.IsZero() {
		t.failing = began
	}
}

// waited returns for how long the pipe has waited that was made after a time.
func (t *target) waited(since time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ready.Before(since) {
		return 0
	}
	return time.Since(t.ready)
}

// get returns the state, and since when and why there is no pipe.
func (t *target) get() (state string, since time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state, t.failing, t.err
}

// status returns the state for the api, with the name that the primary has now.
func (t *target) status(name string) PipeStatus {
	state, _, err := t.get()
	p := PipeStatus{Primary: name, Address: t.addr, State: state, Hint: fault.HintOf(err)}
	if err != nil {
		p.Error = err.Error()
		p.Trouble = &api.Trouble{Kind: fault.KindOf(err), Cause: tcp.CauseOf(err), At: t.addr, Text: p.Error, Hint: p.Hint}
	} else if f := t.peer.get(); state == waiting && f.Text != "" {
		p.Trouble = &api.Trouble{Kind: fault.Unreachable, Cause: causeOf(f.Code), By: name, At: f.At, Text: f.Text}
	}
	return p
}

// States of a target.
const (
	starting = "starting"
	waiting  = "waiting" // its pipe waits for a subflow
	busy     = "busy"    // its pipe carries one, and there can be no other
	retrying = "retrying"
)

// String is the address with its carrier.
func (t *target) String() string {
	if scheme, addr, ok := strings.Cut(t.addr, "://"); ok {
		return scheme + " " + addr
	}
	return "tcp " + t.addr
}

// same reports whether two targets are one device at one address.
func (t *target) same(u *target) bool { return t.addr == u.addr && t.primary.Key == u.primary.Key }
