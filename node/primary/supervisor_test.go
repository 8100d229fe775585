// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/wire"
)

// newTestSupervisor returns a supervisor without a server.
func newTestSupervisor(t *testing.T) *subflowSupervisor {
	t.Helper()
	b := newBondHolder(t, time.Minute)
	k := &subflowSupervisor{
		fleet:  &fleetGuide{},
		cfg:    Default,
		name:   "laptop",
		key:    newKey(t),
		trust:  b.names.trust,
		bond:   b,
		demand: b.demand,
		server: &serverPeer{
			peer: identity.Peer{Name: "home", Key: newKey(t).Public(), Addresses: []string{"192.0.2.1:1"}},
		},
		states: newTestStates(
			t,
			"",
			b.names,
		),
		locations:    &locationMemory{currentLocation: func() (string, error) { return "", nil }},
		countSubflow: func(string, int) {},
		log:          b.log,
	}
	k.troubles = &troubleLog{
		server:   k.server,
		trust:    k.trust,
		log:      b.log,
		onChange: func() {},
		last:     map[string]api.Trouble{},
	}
	return k
}

// TestSpentLink: the last check is for the link of the connection, whatever the routes predicted;
// then nothing is sent over it.
func TestSpentLink(t *testing.T) {
	k := newTestSupervisor(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k.server.peer.Addresses = []string{l.Addr().String()}
	spent := policy.Caps{Daily: 20e6}.Evaluate(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
	k.cfg.Allowed = func(of device.CapTarget) policy.Allowance {
		if of.Link == "" { // a server on this device has no predicted link
			return policy.Allowance{}
		}
		return spent
	}
	if _, err := k.openDirect(t.Context(), "", "laptop", 0); !fault.Is(err, fault.Limit) {
		t.Errorf("a subflow: %v", err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		t.Errorf("%d bytes were sent, and then %v", len(b), err)
	}
}

// TestSpentLinkBacksOff: a link with a used-up cap is tried every limitBackoff although apps want
// streams, since a dial to find out carries bytes itself.
func TestSpentLinkBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTestSupervisor(t)
		k.bond.streamTimeout = time.Hour
		tries := 0
		spent := policy.Caps{Daily: 20e6}.Evaluate(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
		k.cfg.Allowed = func(device.CapTarget) policy.Allowance {
			tries++
			return spent
		}
		ctx, cancel := context.WithTimeout(t.Context(), 6*limitBackoff-time.Second)
		defer cancel()
		wanted := make(chan error)
		go func() {
			_, err := k.bond.dialBondStream(ctx, "web:80", wire.ModeBond, nil)
			wanted <- err
		}()
		k.superviseDirect(ctx, "wwan0")
		if err := <-wanted; err == nil {
			t.Error("a stream was opened")
		}
		if tries != 6 {
			t.Errorf("%d tries", tries)
		}
	})
}
