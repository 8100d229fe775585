// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"mpbond/link/wire"
)

// roamer is a connection from an address, until it moves.
type roamer struct {
	net.Conn
	at  string
	now string
	err error
}

func (r *roamer) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(r.at)) }
func (r *roamer) Move() error {
	if r.err == nil {
		r.at = r.now
	}
	return r.err
}

// TestFollow: subflows that have lost their address retry until they have moved to another one;
// others are not touched.
func TestFollow(t *testing.T) {
	b := newBondHolder(t, time.Minute)
	present := map[netip.Addr]bool{netip.MustParseAddr("10.0.0.1"): true, netip.MustParseAddr("10.9.0.1"): true}
	fails := false
	a := &addressTracker{known: map[netip.Addr]bool{}, listAddresses: func() (map[netip.Addr]bool, error) {
		if fails {
			return nil, errors.New("no")
		}
		return present, nil
	}}
	a.detectLost()
	lte, wifi, odd := &roamer{
		at:  "10.0.0.1:1",
		now: "10.0.0.21:1",
	}, &roamer{
		at: "10.9.0.1:1",
	}, &roamer{
		at: "10.66.0.1:1",
	}
	s := b.active
	s.subflows[1], s.subflows[2], s.subflows[3], s.subflows[4] = &sessionSubflow{
		conn: lte,
	}, &sessionSubflow{
		conn: wifi,
	}, &sessionSubflow{
		conn: odd,
	}, &sessionSubflow{}
	expect := func(moved int, at string) {
		t.Helper()
		b.migrateSubflows(a.detectLost())
		if s.subflows[1].moves != moved || lte.at != at || s.subflows[2].moves+s.subflows[3].moves > 0 {
			t.Errorf("%d times, at %s; want %d at %s", s.subflows[1].moves, lte.at, moved, at)
		}
	}
	expect(0, "10.0.0.1:1")
	delete(present, netip.MustParseAddr("10.0.0.1"))
	lte.err, fails = errors.New("no address"), true
	expect(0, "10.0.0.1:1") // the list fails
	fails = false
	expect(0, "10.0.0.1:1") // there is none
	if now := time.Now(); !b.isSubflowMoving(s, 1, now) || b.isSubflowMoving(s, 1, now.Add(silentLimit)) ||
		b.isSubflowMoving(s, 2, now) ||
		b.isSubflowMoving(s, 9, now) {
		t.Error("it is not waited for, or for ever")
	}
	lte.err = nil
	present[netip.MustParseAddr("10.0.0.21")] = true
	expect(1, "10.0.0.21:1")
	expect(1, "10.0.0.21:1")
	for id := range wire.SubflowID(5) {
		delete(s.subflows, id)
	}
}
