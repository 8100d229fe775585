// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"mpbond/e2e/rig"
)

// changeAddress gives a node another address on a link. Its interface is down for a time in
// between.
func (n *network) changeAddress(node, link string, down time.Duration) {
	n.Helper()
	old, next := n.pickAddresses(node, link)
	n.Must(node, "ip", "addr", "del", old.String()+"/24", "dev", link)
	if down > 0 {
		n.Must(node, "ip", "link", "set", link, "down")
		time.Sleep(down) // of the emulated network, not of a goroutine
		n.Must(node, "ip", "link", "set", link, "up")
	}
	n.Must(node, "ip", "addr", "add", next.String()+"/24", "dev", link)
}

// pickAddresses returns the address of a node on a link, and a free one.
func (n *network) pickAddresses(node, link string) (old, next netip.Addr) {
	n.Helper()
	old, err := n.Lab.Topology.Addr(node, link)
	if err != nil {
		n.Fatal(err)
	}
	b := old.As4()
	b[3] += 20
	return old, netip.AddrFrom4(b)
}

// TestHelperReaddressed: the helper's address on the pipe's network changes in the middle of a
// download that has no other path. The helped subflow survives.
func TestHelperReaddressed(t *testing.T) {
	t.Parallel() // its bound is far above the time of a quiet machine
	for _, c := range []struct {
		name string
		down time.Duration
	}{{"at once", 0}, {"after 2 s", 2 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNetworkWithoutRace(t, rig.Triangle(t, "20/20/20"))
			const size = 12 * mb
			want, _ := rig.Sum(rig.Noise(size))
			before := n.helpedSubflow()
			x := n.startTransfer(fmt.Sprintf("http://web/%d", size))
			<-x.begun
			if err := n.Lab.Set("ps", "", "outage=on"); err != nil {
				t.Fatal(err)
			}
			rig.Eventually(t, func() error {
				if got := n.LinkBytes("pipe1"); got < 2*mb {
					return fmt.Errorf("the pipe has carried %d bytes", got)
				}
				return nil
			})
			began := time.Now()
			n.changeAddress("helper1", "pipe1", c.down)
			isSameSubflow := func() error { // there may be a second one for another pipe
				for _, after := range n.helpedSubflows() {
					if after.ID == before.ID && after.Resumed+after.Migrated > before.Resumed+before.Migrated {
						return nil
					}
				}
				return fmt.Errorf("the subflow did not continue over another connection: %+v", n.helpedSubflows())
			}
			rig.Eventually(t, isSameSubflow)
			took := time.Since(began) - c.down
			if took > 4*time.Second {
				t.Errorf("the subflow continued after %v", took)
			}
			<-x.done
			if x.err != nil || x.got != want {
				t.Errorf("%s, want %s: %v %s", x.got, want, x.err, &x.errs)
			}
			if err := isSameSubflow(); err != nil {
				t.Error(err)
			}
			t.Logf("back after %v: %+v", took, n.helpedSubflows())
		})
	}
}
