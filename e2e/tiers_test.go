// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
)

// setTier puts the phone into a tier and waits until both ends know.
func (n *network) setTier(name string) {
	n.Helper()
	writeFile(n, filepath.Join(n.Dir, "primary", "policy.toml"), fmt.Sprintf("[device.phone]\ntier = %q\n", name))
	rig.Eventually(n, func() error {
		for _, role := range []string{"primary", "server"} {
			p, err := n.phoneSubflow(role)
			if err != nil || p.Tier != name || p.State != api.Up {
				return fmt.Errorf("at the %s the phone's subflow is %+v, %v", role, p, err)
			}
		}
		return nil
	})
}

// phoneSubflow returns the subflow by the helper, as a role reports it.
func (n *network) phoneSubflow(role string) (one api.Subflow, err error) {
	s, err := n.Status(role, role)
	if err != nil || len(s.Bonds) == 0 {
		return one, fmt.Errorf("no bond: %w", err)
	}
	for _, p := range s.Bonds[0].Subflows {
		if p.Device == "phone" && p.ID != 0 {
			return p, nil
		}
	}
	return one, fmt.Errorf("no subflow by the phone: %+v", s.Bonds[0].Subflows)
}

// countPhoneBytes returns what the helper's subflow carries while f runs, to the primary and from
// it. A subflow that was replaced counts from 0.
func (n *network) countPhoneBytes(f func()) (down, up unit.Bytes) {
	n.Helper()
	before, err := n.phoneSubflow("primary")
	if err != nil {
		n.Fatal(err)
	}
	f()
	after, err := n.phoneSubflow("primary")
	if err != nil {
		n.Fatal(err)
	}
	if after.ID != before.ID {
		return after.RxBytes, after.TxBytes
	}
	return after.RxBytes - before.RxBytes, after.TxBytes - before.TxBytes
}

// rescuedBytes returns how many bytes both ends have sent again over another subflow because the
// first one was late with them.
func (n *network) rescuedBytes() (sum unit.Bytes) {
	n.Helper()
	for _, role := range []string{"primary", "server"} {
		s, err := n.Status(role, role)
		if err != nil || len(s.Bonds) == 0 {
			n.Fatalf("no bond: %v", err)
		}
		for cause, bytes := range s.Bonds[0].WastedBytes {
			if strings.HasPrefix(cause, "reinjected_") {
				sum += bytes
			}
		}
	}
	return sum
}

// longestGap returns the longest time without a byte within a download, which must arrive complete.
func (n *network) longestGap(size int64) (longest time.Duration) {
	n.Helper()
	cmd := n.Command("primary", "curl", "-sSfN", "--max-time", "60", "--socks5-hostname", "127.0.0.1:1080",
		fmt.Sprintf("http://web/%d", size))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.Fatal(err)
	}
	var last time.Time
	got := int64(0)
	for b := make([]byte, 64<<10); err == nil; {
		var k int
		k, err = out.Read(b)
		if now := time.Now(); k > 0 {
			if got > 0 {
				longest = max(longest, now.Sub(last))
			}
			last = now
			got += int64(k)
		}
	}
	if end := cmd.Wait(); err != io.EOF || end != nil || got != size {
		n.Errorf("%d of %d bytes came: %v, %v", got, size, err, end)
	}
	return longest
}

// TestTiers: a helper of tier secondary carries nothing that the direct path can carry, down or up,
// and its part of bulk data. One of tier backup carries nothing until the direct path falls silent,
// then everything. Afterwards it is idle again. If the direct path was late in the meantime, because
// a program got no processor for two round trips, the helper may carry what it can.
func TestTiers(t *testing.T) {
	t.Parallel() // it compares bytes, not times
	n := newNetworkWithoutRace(t, rig.Triangle(t, "10/20/20"))
	get := func(url string) {
		t.Helper()
		if _, err := n.Run("primary", "curl", "-sSf", "--max-time", "60", "--socks5-hostname", "127.0.0.1:1080", "-o",
			"/dev/null", "http://web/"+url); err != nil {
			t.Error(err)
		}
	}
	// A subflow carries acknowledgements of its own frames, and hardly anything else.
	const little = 2 * unit.KB
	expectQuiet := func(what string, f func()) {
		t.Helper()
		rescued := n.rescuedBytes()
		down, up := n.countPhoneBytes(f)
		rescued = n.rescuedBytes() - rescued
		t.Logf("%s: the phone carried %v down and %v up; %v were rescued", what, down, up, rescued)
		if (down > little || up > little) && rescued == 0 {
			t.Errorf("%s: the phone carried %v down and %v up", what, down, up)
		}
	}
	n.setTier("secondary")
	expectQuiet("2 Mbit/s down", func() { get("500000?paced") })
	expectQuiet("2 Mbit/s up", func() {
		const paced = `i=0; while [ $i -lt 50 ]; do head -c 10000 /dev/zero; sleep 0.04; i=$((i+1)); done | ` +
			`curl -sSf -o /dev/null --socks5-hostname 127.0.0.1:1080 -T - http://web/up`
		if _, err := n.Run("primary", "sh", "-c", paced); err != nil {
			t.Error(err)
		}
	})
	bulk, _ := n.countPhoneBytes(func() { get(fmt.Sprint(5 * mb)) })
	if t.Logf("the phone, of tier secondary, carried %v of 5 MB", bulk); bulk < unit.MB {
		t.Errorf("the phone, of tier secondary, carried %v of 5 MB", bulk)
	}

	n.setTier("backup")
	expectQuiet("1 MB beside a backup", func() { get(fmt.Sprint(mb)) })
	var gap time.Duration
	down, _ := n.countPhoneBytes(func() {
		before, done := n.primaryBondBytes(), make(chan struct{})
		go func() { defer close(done); gap = n.longestGap(5 * mb) }()
		rig.Eventually(t, func() error { // some is there before the silence, and most is not
			if carried := n.primaryBondBytes() - before; carried < mb {
				return fmt.Errorf("%d bytes were carried", carried)
			}
			return nil
		})
		n.silenceLinks(2*time.Second, "ps")
		<-done
	})
	t.Logf("the longest gap is %v; the backup carried %v of 5 MB", gap, down)
	if down < unit.MB {
		t.Errorf("while the direct path was silent the backup carried %v", down)
	}
	if gap > rig.Patience/4 {
		t.Errorf("nothing arrived for %v", gap)
	}
	rig.Eventually(t, func() error {
		s, err := n.Status("primary", "primary")
		if err != nil {
			return err
		}
		for _, p := range s.Bonds[0].Subflows {
			if p.Kind == api.Direct && p.State == api.Up {
				return nil
			}
		}
		return fmt.Errorf("the direct path is not back: %+v", s.Bonds[0].Subflows)
	})
	get("100000") // its last data is acknowledged
	expectQuiet("1 MB after the direct path is back", func() { get(fmt.Sprint(mb)) })
}
