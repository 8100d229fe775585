// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"mpbond/base/fault"
	"mpbond/base/identity"
)

// serverPeer is the server of the bond, as the trust file names it. It may change or be removed
// while the primary runs; reloadServerTrust reads the entries again. Safe for concurrent use; only
// the lock of the trust file is taken while mu is held.
type serverPeer struct {
	name  string // configured; "" for the only server
	trust *identity.Trust

	mu      sync.Mutex
	peer    identity.Peer
	missing error // why there is no server now, or nil
}

// newServerPeer returns the server with a name; an error if there is none.
func newServerPeer(name string, trust *identity.Trust) (*serverPeer, error) {
	peer, err := findServer(name, trust)
	return &serverPeer{name: name, trust: trust, peer: peer}, err
}

// currentServer returns the server, and why there is none now, or nil.
func (s *serverPeer) currentServer() (identity.Peer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peer, s.missing
}

// addressFor returns the server address for an attempt: each in turn, the best first.
func (s *serverPeer) addressFor(attempt int) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing != nil {
		return "", s.missing
	}
	return s.peer.Addresses[attempt%len(s.peer.Addresses)], nil
}

// isFleet reports whether the server may be any one of a fleet.
func (s *serverPeer) isFleet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peer.Fleet != "" && (s.name == "" || s.name == s.peer.Fleet)
}

// listFleetServers returns the trusted servers of the server's fleet.
func (s *serverPeer) listFleetServers() []identity.Peer {
	now, _ := s.currentServer()
	return slices.DeleteFunc(s.trust.ByRole(identity.RoleServer), func(p identity.Peer) bool {
		return p.Fleet != now.Fleet || len(p.Addresses) == 0
	})
}

// setServer makes a trusted server the one of the bond, from the next session on. The caller must replace the session
// afterwards.
func (s *serverPeer) setServer(peer identity.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peer, s.missing = peer, nil
}

// reloadServerTrust reads the trust file's entries and reports whether the server is another one
// now. A server in use stays as long as it is trusted.
func (s *serverPeer) reloadServerTrust() (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.peer.Key
	if now, ok := s.trust.Lookup(before); ok && now.HasRole(identity.RoleServer) && len(now.Addresses) > 0 {
		s.peer, s.missing = now, nil
	} else {
		s.peer, s.missing = findServer(s.name, s.trust)
	}
	return s.peer.Key != before
}

// ServerOf returns the server that a primary with that configuration uses.
func ServerOf(cfg Config, trust *identity.Trust) (identity.Peer, error) {
	return findServer(cfg.Server, trust)
}

// findServer returns the server with a name or, if name is empty, the only trusted one. The servers of one fleet
// count as one, also by the fleet's name: it returns the first of them.
func findServer(name string, trust *identity.Trust) (identity.Peer, error) {
	const hint = "pair this device with a server that shows a code, `mpbond pair CODE`, or add it with " +
		"`mpbond trust add NAME --role server --key KEY --addr HOST:PORT`"
	list := trust.ByRole(identity.RoleServer)
	isOne := len(list) > 0 && !slices.ContainsFunc(list, func(s identity.Peer) bool {
		return s.Key != list[0].Key && (s.Fleet == "" || s.Fleet != list[0].Fleet)
	})
	for _, s := range list {
		if name == "" && isOne || s.Name == name || name != "" && s.Fleet == name {
			if len(s.Addresses) == 0 {
				return s, fault.New(fault.Config, fmt.Errorf("server %s has no address", s.Name), hint)
			}
			return s, nil
		}
	}
	if name == "" && len(list) > 1 {
		return identity.Peer{}, fault.New(
			fault.Config,
			fmt.Errorf("%d servers are trusted", len(list)),
			"name one with `server = \"NAME\"` or --server",
		)
	}
	if name == "" {
		return identity.Peer{}, fault.New(fault.Config, errors.New("no server is trusted"), hint)
	}
	return identity.Peer{}, fault.New(fault.Config, fmt.Errorf("no server called %q is trusted", name), hint)
}
