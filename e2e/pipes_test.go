// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/e2e/rig"
)

// helpedSubflows returns the helped subflows that are up.
func (n *network) helpedSubflows() (list []api.Subflow) {
	n.Helper()
	s, err := n.Status("primary", "primary")
	if err != nil {
		n.Fatal(err)
	}
	for _, p := range s.Bonds[0].Subflows {
		if p.Kind == api.Helped && p.State == api.Up {
			list = append(list, p)
		}
	}
	return list
}

// TestTwoPipesTogether: the helper has two pipes, of 5 and 3 Mbit/s, and an HS-path of 10. A long
// download uses both pipes.
func TestTwoPipesTogether(t *testing.T) {
	t.Parallel() // its bound is far above the time that the links take
	n := newNetworkWithoutRace(t, rig.Triangle(t, "1/10/5+3"))
	const size = 16 * mb
	want, _ := rig.Sum(rig.Noise(size))
	began := time.Now()
	x := n.startTransfer(fmt.Sprintf("http://web/%d", size))
	<-x.done
	took := time.Since(began)
	if x.err != nil || x.got != want {
		t.Errorf("%s, want %s: %v %s", x.got, want, x.err, &x.errs)
	}
	a, b := n.LinkBytes("pipe1"), n.LinkBytes("pipe1b")
	t.Logf("%v; pipes have carried %d and %d bytes; %+v", took.Round(time.Millisecond), a, b, n.helpedSubflows())
	if min(a, b) < 2*mb {
		t.Errorf("pipes have carried %d and %d bytes", a, b)
	}
	// The direct path and the better pipe carry 6 Mbit/s at most.
	if alone := time.Second * size * 8 / 6_000_000; took > alone {
		t.Errorf("the download took %v; without the second pipe it would take %v", took, alone)
	}
}

// TestPipeFalls: the HS-path needs only one of two pipes, and the rate of the one in use falls to
// 0.3 Mbit/s. The same subflow continues over the other pipe.
func TestPipeFalls(t *testing.T) {
	t.Parallel() // it compares bytes, not times
	n := newNetworkWithoutRace(t, rig.Triangle(t, "2/8/10+10"))
	const size = 8 * mb
	want, _ := rig.Sum(rig.Noise(size))
	before := n.helpedSubflows()
	if len(before) != 1 {
		t.Fatalf("%+v", before)
	}
	inUse, other := "pipe1", "pipe1b"
	if a, err := n.Lab.Topology.Addr("helper1", other); err != nil {
		t.Fatal(err)
	} else if strings.HasPrefix(before[0].Pipe, a.String()+":") {
		inUse, other = other, inUse
	}
	x := n.startTransfer(fmt.Sprintf("http://web/%d", size))
	rig.Eventually(t, func() error { // until the rate of this pipe is known
		if got := n.LinkBytes(inUse); got < 1_500_000 {
			return fmt.Errorf("%s has carried %d bytes", inUse, got)
		}
		return nil
	})
	if err := n.Lab.Set(inUse, "", "rate=0.3Mbit/s"); err != nil {
		t.Fatal(err)
	}
	<-x.done
	if x.err != nil || x.got != want {
		t.Errorf("%s, want %s: %v %s", x.got, want, x.err, &x.errs)
	}
	after := n.helpedSubflowByID(before[0].ID)
	a, b := n.LinkBytes(inUse), n.LinkBytes(other)
	t.Logf("%s and %s have carried %d and %d bytes; %+v", inUse, other, a, b, after)
	if after.ID != before[0].ID || after.Migrated == 0 || b < 2*mb {
		t.Errorf("%s has carried %d bytes; %+v, before %+v", other, b, after, before)
	}
}
