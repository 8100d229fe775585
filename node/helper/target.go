package helper

import (
	"context"
	"strings"
	"sync"
	"time"

	"mpbond/base/identity"
)

// target is one address of one primary.
type target struct {
	primary identity.Peer
	addr    string
	stop    context.CancelFunc // set by Run

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
	t.set("retrying", err)
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

// States of a target.
const (
	waiting = "waiting" // its pipe waits for a subflow
	busy    = "busy"    // its pipe carries one, and there can be no other
)

// String is the address with its carrier.
func (t *target) String() string {
	if scheme, addr, ok := strings.Cut(t.addr, "://"); ok {
		return scheme + " " + addr
	}
	return "tcp " + t.addr
}

// same tells whether two targets are one device at one address.
func (t *target) same(u *target) bool { return t.addr == u.addr && t.primary.Key == u.primary.Key }
