// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
	onloading "mpbond/onload/relay"
)

// onloadURL fetches a URL through the helper phone. It prints the digest of the answer, or the kind
// of fault and the error, and the number of bytes received.
func onloadURL(at, url string) error {
	home := os.Getenv("MPBOND_HOME")
	key, err := identity.LoadKey(filepath.Join(home, "device.key"))
	if err != nil {
		return err
	}
	trust, err := identity.OpenTrust(filepath.Join(home, "trust.toml"))
	if err != nil {
		return err
	}
	phone, _ := trust.LookupName("phone")
	d := &onloading.Dialer{Key: key, Helper: phone, Addresses: []string{at}}
	var came int64
	sum, err := func() (string, error) {
		q, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		a, err := d.Transport().RoundTrip(q)
		if err != nil {
			return "", err
		}
		defer a.Body.Close()
		h := sha256.New()
		came, err = io.Copy(h, a.Body)
		return fmt.Sprintf("%d:%x", came, h.Sum(nil)), err
	}()
	if err != nil {
		sum = fmt.Sprintf("%s: %v", fault.KindOf(err), err)
	}
	fmt.Printf("%s\n%d\n", sum, came)
	return nil
}

// watchShare samples what a helper may share of its link until stop is called. stop returns the first
// share that was limited, as text, and the highest shared rate. It polls, because no event has them.
func watchShare(t *testing.T, helper *client.Client) (stop func() (busy string, peak unit.Rate)) {
	ctx, cancel := context.WithCancel(t.Context())
	var busy string
	var peak unit.Rate
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			s, err := helper.Status(ctx, false)
			if err != nil || s.Helper == nil {
				continue
			}
			for _, l := range s.Helper.LinkShares {
				if peak = max(peak, l.SharedBps); l.Limited && busy == "" {
					busy = fmt.Sprintf("%+v", l)
				}
			}
		}
	}()
	return func() (string, unit.Rate) { cancel(); <-done; return busy, peak }
}

// TestOnloadAllowance: onloaded data arrives complete and counts as such. It stops before the day's
// limit by the interface's own counters, and a partial answer never looks complete. A restart
// forgets nothing of the usage.
func TestOnloadAllowance(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetworkWith(t, "10/80/80", "", nil)
	const limit = 20_000_000
	writeFile(t, filepath.Join(n.Dir, "helper1", "helper.toml"),
		"[onload]\nallowance = \"20MB\"\nallow = [\"10.77.0.0/16\"]\n")
	restartPhone := func() {
		n.helper.End(os.Interrupt)
		n.helper = n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
	}
	restartPhone()
	helper := n.NewClient("helper1", "helper")
	awaitState := func(ok func(api.OnloadStatus) bool) (st api.OnloadStatus) {
		t.Helper()
		rig.Eventually(t, func() error {
			s, err := helper.Status(t.Context(), false)
			if err != nil || s.Onload == nil || !ok(*s.Onload) {
				return fmt.Errorf("%+v, %v", s.Onload, err)
			}
			st = *s.Onload
			return nil
		})
		return st
	}
	awaitState(func(st api.OnloadStatus) bool { return st.Open && st.Bounded && st.DayBytes == limit })
	addr, err := n.Lab.Topology.Addr("helper1", "pipe1")
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(size int64) (what string, came int64) {
		t.Helper()
		out := n.Must("primary", os.Args[0], "lab", "onload", addr.String()+":7604",
			fmt.Sprintf("http://%s/%d", n.web4, size))
		if _, err := fmt.Sscanf(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:], "%d", &came); err != nil {
			t.Fatal(out, err)
		}
		what, _, _ = strings.Cut(out, "\n")
		return what, came
	}
	rx, tx := n.Counters("helper1", "hs1")
	before := rx + tx
	const first = 4 * mb
	want, _ := rig.Sum(rig.Noise(first))
	if got, _ := fetch(first); got != want {
		t.Fatalf("%s instead of %s", got, want)
	}
	st := awaitState(func(st api.OnloadStatus) bool { return st.CarriedBytes > first })
	if rx, tx := n.Counters("helper1", "hs1"); float64(st.CarriedBytes) > 1.01*float64(rx+tx-before) ||
		float64(st.CarriedBytes) < .97*float64(rx+tx-before) {
		t.Errorf("counted %v of %d bytes", st.CarriedBytes, rx+tx-before)
	}
	stop := watchShare(t, helper)
	got, came := fetch(32 * mb)
	if busy, most := stop(); busy != "" || most < 8*unit.Mbps {
		t.Errorf("while the phone onloads it shares %v at most: %s", most, busy)
	}
	if !strings.Contains(got, "other: ") && !strings.Contains(got, "limit: ") {
		t.Errorf("beyond the allowance: %s", got)
	}
	st = awaitState(func(st api.OnloadStatus) bool { return !st.Open && st.LeftBytes == 0 && len(st.Tunnels) == 0 })
	rx, tx = n.Counters("helper1", "hs1")
	t.Logf("received %d and %d, carried %d, counted %v: %s", first, came, rx+tx-before, st.CarriedBytes, st.Why)
	if carried := rx + tx - before; carried > limit || carried < limit*98/100 {
		t.Errorf("carried %d of %d bytes", carried, limit)
	}
	for _, restart := range []bool{false, true} {
		if restart {
			restartPhone()
			awaitState(func(st api.OnloadStatus) bool { return !st.Open })
		}
		if got, _ := fetch(1000); !strings.HasPrefix(got, string(fault.Limit)) || !strings.Contains(got, "used up") {
			t.Errorf("after it, restarted %v: %s", restart, got)
		}
	}
	if text := n.Must("helper1", n.Mpbond, "usage"); !strings.Contains(text, "onload") ||
		!strings.Contains(text, "all onloading: the daily cap of 20 MB is used up") {
		t.Error(text)
	}
	if text := n.Must("helper1", n.Mpbond, "status"); !strings.Contains(text, "onloading closed") {
		t.Error(text)
	}
}
