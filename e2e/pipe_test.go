// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/e2e/rig"
)

// helpedSubflow returns the subflow by the helper.
func (n *network) helpedSubflow() (p api.Subflow) {
	n.Helper()
	s, err := n.Status("primary", "primary")
	if err != nil {
		n.Fatal(err)
	}
	for _, path := range s.Bonds[0].Subflows {
		if path.Kind == api.Helped {
			p = path
		}
	}
	return p
}

// helpedSubflowByID returns the helped subflow of that ID; zero if it is not up. Another one may be
// up too, over another pipe.
func (n *network) helpedSubflowByID(id uint32) (p api.Subflow) {
	n.Helper()
	for _, p := range n.helpedSubflows() {
		if p.ID == id {
			return p
		}
	}
	return p
}

// TestPipeBreaks: the pipe's link is down for 3 s in the middle of a download. In another download
// its connection is reset. The helped subflow survives both, and every byte is right.
func TestPipeBreaks(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetworkWith(t, "10/10/10", "", nil)
	const size = 10 * mb
	want, _ := rig.Sum(rig.Noise(size))
	for _, c := range []struct {
		name string
		hurt func(t *testing.T)
	}{
		{"link away", func(*testing.T) { n.silenceLinks(3*time.Second, "pipe1") }},
		{"reset", func(t *testing.T) {
			if _, err := n.Run("helper1", "ss", "-K", "dport", "=", ":7602"); err != nil {
				t.Skip("this kernel cannot kill sockets (CONFIG_INET_DIAG_DESTROY):", err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := n.helpedSubflow()
			x := n.startAppTransfer(3*mb/2, n.Mpbond, "run", "--", "curl", "-sSf", "--max-time", "40",
				fmt.Sprintf("http://web/%d", size))
			<-x.begun
			c.hurt(t)
			if <-x.done; x.err != nil || x.got != want {
				t.Errorf("%s, want %s; %v %s", x.got, want, x.err, &x.errs)
			}
			rig.Eventually(t, func() error {
				after := n.helpedSubflowByID(before.ID)
				if after.State != api.Up || after.ID != before.ID {
					return fmt.Errorf("%+v, before %+v", after, before)
				}
				if c.name == "reset" && after.Resumed+after.Migrated == before.Resumed+before.Migrated {
					return fmt.Errorf("the subflow did not continue over another connection: %+v", after)
				}
				return nil
			})
			t.Logf("%+v", n.helpedSubflow())
		})
	}
}
