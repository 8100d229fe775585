// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"mpbond/base/identity"
	"mpbond/control/fleet"
	"mpbond/link/pairing"
	"mpbond/link/wire"
)

// lossyFleet ends the connection of the first device that it enrolls, before the device learns of it.
type lossyFleet struct {
	pairing.Fleet
	once sync.Once
	cut  func()
}

func (f *lossyFleet) Enroll(ctx context.Context, code string, e pairing.Enrollee) (string, error) {
	name, err := f.Fleet.Enroll(ctx, code, e)
	f.once.Do(f.cut)
	return name, err
}

// TestLostAnswer checks that a device joins by its code although the last message of a first try was lost.
func TestLostAnswer(t *testing.T) {
	w := newWorld(t)
	a := w.join("eu1", nil)
	w.awaitReady(a)
	newSelf := func(key *identity.Key, name string, role wire.PairRoles) pairing.Self {
		trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.json"))
		w.must(err)
		return pairing.Self{Key: key, Trust: trust,
			About: func() wire.PairIdentity { return wire.PairIdentity{Name: name, Roles: role} }}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	var server net.Conn // of the running call
	acceptor := pairing.NewAcceptor(newSelf(newKey(t), "eu1", wire.PairServer), slog.New(slog.DiscardHandler))
	acceptor.Fleet = &lossyFleet{Fleet: a.Member, cut: func() { server.Close() }}
	var calls sync.WaitGroup
	calls.Go(func() {
		for {
			if server, err = l.Accept(); err != nil {
				return
			}
			acceptor.ServeConn(context.Background(), server)
		}
	})
	defer calls.Wait()
	defer l.Close()
	d := device{newKey(t)}
	code := w.invite(fleet.InviteTerms{})
	code.Addrs = []string{l.Addr().String()}
	joined := false
	self := newSelf(d.Key, "laptop", wire.PairPrimary)
	self.CheckFleet = func(identity.PublicKey, []byte) error { return nil }
	self.JoinFleet = func(identity.PublicKey, []byte, identity.PublicKey) (identity.Peer, error) {
		joined = true
		return identity.Peer{}, nil
	}
	for _, isLost := range []bool{true, false} {
		call, err := pairing.CallAny(t.Context(), code, self)
		w.must(err)
		if _, err := call.Finish(t.Context()); (err != nil) != isLost || joined == isLost {
			t.Errorf("the answer is lost: %v, the device has joined: %v, %v", isLost, joined, err)
		}
	}
	w.awaitKnown(a, d, true)
}
