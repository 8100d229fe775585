package e2e

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"mpbond/e2e/rig"
)

// TestOverUDP: one subflow over UDP beside one over TCP carry a download, and the
// one over UDP alone; what it carried is counted at its link.
func TestOverUDP(t *testing.T) {
	n := newUplinks(t)
	n.Must("primary", "ip", "route", "add", "default", "dev", "lte", "metric", "900")
	n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--udp")
	p := n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "wifi", "--interface", "lte", "--udp", "lte")
	n.uses("laptop/lte", "laptop/wifi")
	if n.Must("primary", "cat", "/proc/net/udp") == n.Must("web", "cat", "/proc/net/udp") {
		t.Error("the primary has no UDP socket")
	}
	const size = 2 * mb
	want, err := rig.Sum(rig.Noise(size))
	if err != nil {
		t.Fatal(err)
	}
	asker := n.Asker("primary", "primary")
	download := func() {
		t.Helper()
		file := filepath.Join(n.Dir, "got")
		n.Must("primary", "curl", "-sSf", "--max-time", "60", "-x", "http://127.0.0.1:1080", "-o", file, fmt.Sprintf("http://web/%d", size))
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got, err := rig.Sum(f); err != nil || got != want {
			t.Errorf("what came is not what was asked for, %v", err)
		}
	}
	rx0, tx0 := n.counters("primary", "lte")
	down0, up0 := n.used(asker, "lte")
	download()
	rx1, _ := n.counters("primary", "lte")
	if rx1-rx0 < size/20 {
		t.Errorf("%d bytes of %d came by the link with UDP", rx1-rx0, size)
	}
	p.End(os.Interrupt)
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "lte", "--udp", "lte")
	n.uses("laptop/lte")
	download()
	rig.Eventually(t, func() error { // the last packets may be on their way
		rx, tx := n.counters("primary", "lte")
		down, up := n.used(asker, "lte")
		is, counted := float64(rx-rx0+tx-tx0), float64(down-down0+up-up0)
		if off := 100 * (counted - is) / is; math.Abs(off) > 1 || is < size {
			return fmt.Errorf("%.0f bytes went by the link, %+.2f %% of that were counted too much", is, off)
		}
		return nil
	})
}
