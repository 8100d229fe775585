// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"testing"
	"time"

	"mpbond/control/policy"
)

// TestChangedPeers checks the sums of each peer over days and months, and that a peer is returned once for each
// change.
func TestChangedPeers(t *testing.T) {
	u, clock, _ := newUsage(t)
	*clock = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	a := &fakeConn{local: "10.0.0.1:1", peer: "A"}
	b := &fakeConn{local: "10.0.0.2:1", peer: "B"}
	unknown, other := &fakeConn{local: "10.0.0.1:1"}, &fakeConn{local: "10.0.0.1:1", peer: "A"}
	for _, c := range []*fakeConn{a, b, unknown} {
		c.open(u, policy.ForSubflow)
	}
	other.open(u, policy.ForPipe)
	a.in, a.out, unknown.in, other.in = 100, 10, 5, 7
	expect := func(want string) {
		t.Helper()
		list := u.ChangedPeers(policy.ForSubflow)
		got := ""
		for _, p := range list {
			got += fmt.Sprintf("%s %s %d/%d %d/%d;", p.Peer, p.Day, p.MonthDown, p.MonthUp, p.AllDown, p.AllUp)
		}
		if got != want {
			t.Errorf("peers %q, want %q", got, want)
		}
	}
	expect("A 2026-11-30 100/10 100/10;")
	expect("")
	b.in = 9
	expect("B 2026-11-30 9/0 9/0;")
	*clock = clock.AddDate(0, 0, 1)
	a.in, a.out = 130, 15
	expect("A 2026-12-01 30/5 130/15;")
	*clock = clock.AddDate(0, 0, 1)
	a.in = 131
	expect("A 2026-12-02 31/5 131/15;")
	if list := (*Usage)(nil).ChangedPeers(policy.ForSubflow); list != nil {
		t.Errorf("nothing counts %v", list)
	}
}
