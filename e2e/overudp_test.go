// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mpbond/api"
	"mpbond/e2e/rig"
)

// download downloads a file of this size and checks its bytes.
func (n *network) download(size int64) {
	n.Helper()
	if err := n.tryDownload(size); err != nil {
		n.Error(err)
	}
}

// tryDownload downloads a file of this size and returns an error if its bytes are wrong.
func (n *network) tryDownload(size int64) error {
	n.Helper()
	want, err := rig.Sum(rig.Noise(size))
	if err != nil {
		return err
	}
	file := filepath.Join(n.Dir, "got")
	if _, err := n.Run("primary", "curl", "-sSf", "--max-time", "60", "-x", "http://127.0.0.1:1080", "-o", file,
		fmt.Sprintf("http://web/%d", size)); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if got, err := rig.Sum(f); err != nil || got != want {
		return fmt.Errorf("the download has other bytes than expected, %w", err)
	}
	return nil
}

// startDownloads downloads a file of this size again and again, until the returned function is called. It
// returns the first error.
func (n *network) startDownloads(size int64) (end func() error) {
	n.Helper()
	ctx, stop := context.WithCancel(n.Context())
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := n.tryDownload(size); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return func() error {
		stop()
		return <-done
	}
}

// subflowBy returns the subflow of a device, as a role reports it.
func (n *network) subflowBy(role, device string) (p api.Subflow, err error) {
	node := role
	s, err := n.Status(node, role)
	if err != nil {
		return p, err
	}
	for _, b := range s.Bonds {
		for _, p := range b.Subflows {
			if p.Device == device && p.State == api.Up {
				return p, nil
			}
		}
	}
	return p, fmt.Errorf("%s: no subflow by %s in %+v", role, device, s.Bonds)
}

// awaitTransport waits until a device's subflow uses a transport. UDP that was too late is tried
// again by a subflow that carries data.
func (n *network) awaitTransport(role, device, transport string) (p api.Subflow) {
	n.Helper()
	rig.Eventually(n.TB, func() (err error) {
		if p, err = n.subflowBy(role, device); err == nil && p.Transport != transport {
			err = fmt.Errorf("%s goes over %s: %q", device, p.Transport, p.Fallback)
			if transport == "udp" {
				err = errors.Join(err, n.tryDownload(1000))
			}
		}
		return err
	})
	return p
}

// TestOverUDP: a subflow over UDP and one over TCP carry a download together, and the one over UDP
// carries one alone. Its bytes are counted at its link. When the server is killed and returns, so
// does the subflow.
func TestOverUDP(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newUplinkNetwork(t)
	n.Must("primary", "ip", "route", "add", "default", "dev", "lte", "metric", "900")
	start := func() *rig.Process {
		return n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--udp")
	}
	start()
	p := n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "wifi", "--interface", "lte",
		"--udp", "lte")
	n.awaitDevices("laptop/lte", "laptop/wifi")
	n.awaitTransport("primary", "laptop/lte", "udp")
	n.awaitTransport("primary", "laptop/wifi", "tcp")
	n.awaitTransport("server", "laptop/lte", "udp")
	const size = 2 * mb
	primaryAPI := n.NewClient("primary", "primary")
	rx0, tx0 := n.Counters("primary", "lte")
	down0, up0 := n.linkUsage(primaryAPI, "lte")
	n.download(size)
	p.End(os.Interrupt)
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "lte", "--udp", "lte")
	n.awaitDevices("laptop/lte")
	n.download(size)
	rig.Eventually(t, func() error { // the last packets may be in flight
		rx, tx := n.Counters("primary", "lte")
		down, up := n.linkUsage(primaryAPI, "lte")
		is, counted := float64(rx-rx0+tx-tx0), float64(down-down0+up-up0)
		if off := 100 * (counted - is) / is; math.Abs(off) > 1 || is < size {
			return fmt.Errorf("%.0f bytes on the link, counted %+.2f %% more", is, off)
		}
		return nil
	})
	n.signalProcess("server", syscall.SIGKILL)
	start()
	rig.Eventually(t, func() error { return n.tryDownload(1000) })
}

// blockUDP makes the server's packet filter drop UDP.
func (n *network) blockUDP() {
	n.Helper()
	n.Must("server", "nft", "add table inet blocked; add chain inet blocked in { type filter hook input priority 0; }; "+
		"add rule inet blocked in udp dport 7600 drop")
}

// TestUDPBlocked: where UDP does not get through, the subflow uses TCP and reports why.
func TestUDPBlocked(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newUplinkNetwork(t)
	n.blockUDP()
	n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--udp")
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "wifi", "--udp", "any")
	p := n.awaitTransport("primary", "laptop/wifi", "tcp")
	if !strings.Contains(p.Fallback, "no answer over UDP within 300ms") {
		t.Errorf("the reason is %q", p.Fallback)
	}
	n.download(mb)
	if text := n.Must("primary", n.Mpbond, "status"); !strings.Contains(text, "over TCP: no answer over UDP") {
		t.Error(text)
	}
}

// changeAddressKeepRoute is changeAddress that keeps the default route, as DHCP does.
func (n *network) changeAddressKeepRoute(node, link string) {
	n.Helper()
	routes := n.Must(node, "ip", "route", "show", "default")
	old, next := n.pickAddresses(node, link)
	batch := fmt.Sprintf("addr del %s/24 dev %s\naddr add %s/24 dev %s\n", old, link, next, link)
	for r := range strings.Lines(routes) {
		batch += "route replace " + strings.TrimSuffix(strings.TrimSpace(r), "linkdown") + "\n"
	}
	file := filepath.Join(n.Dir, "readdress")
	if err := os.WriteFile(file, []byte(batch), 0o600); err != nil {
		n.Fatal(err)
	}
	n.Must(node, "ip", "-batch", file) // in one step: a link without address for 3 s is given up
}

// downloadDuring begins a download, calls change in the middle of it, and waits for its end. The
// download must succeed.
func (n *network) downloadDuring(size int64, change func()) {
	n.Helper()
	want, err := rig.Sum(rig.Noise(size))
	if err != nil {
		n.Fatal(err)
	}
	x := n.startTransfer(fmt.Sprintf("http://web/%d", size))
	<-x.begun
	change()
	<-x.done
	if x.err != nil || x.got != want {
		n.Errorf("%s, want %s: %v %s", x.got, want, x.err, &x.errs)
	}
}

// TestUDPReaddressed: the address of the only link changes in the middle of a download. The subflow
// over UDP survives.
func TestUDPReaddressed(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newUplinkNetwork(t)
	n.Must("primary", "ip", "route", "add", "default", "dev", "lte", "metric", "900")
	n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--udp")
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "lte", "--udp", "lte")
	before := n.awaitTransport("primary", "laptop/lte", "udp")
	n.downloadDuring(2*mb, func() { n.changeAddressKeepRoute("primary", "lte") })
	after, err := n.subflowBy("primary", "laptop/lte")
	if err != nil || after.ID != before.ID || after.Migrated != 1 {
		t.Errorf("%v: it was %+v, and is %+v", err, before, after)
	}
}

// TestHelpedOverUDP: a helped subflow with UDP from helper to server carries downloads and uploads
// alone. The server gets reports of the pipe, the helper's link counts its bytes, and the subflow
// survives when that link's address changes.
func TestHelpedOverUDP(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := &network{Network: rig.New(t, rig.Options{Lab: rig.Triangle(t, "20/20/8")})}
	n.startRoles([]string{"--udp"})
	n.helper.End(os.Interrupt)
	n.Start("helper1", n.Mpbond, "helper", "--name", "phone", "--udp", "any")
	helperAPI := n.NewClient("helper1", "helper")
	rig.Eventually(t, func() error {
		p, err := n.subflowBy("server", "phone")
		if err != nil || p.Transport == "udp" {
			return err
		}
		s, err := n.Status("helper1", "helper")
		// The next attempt may be in time.
		if err == nil && s.Helper != nil && strings.Contains(s.Helper.Fallback, "later than TCP") {
			if list, e := helperAPI.Subflows(t.Context()); e == nil && len(list) > 0 {
				err = helperAPI.CloseSubflow(t.Context(), "", list[0].ID)
			}
		}
		return errors.Join(err, fmt.Errorf("the helped subflow goes over TCP: %+v", s.Helper))
	})
	rx0, tx0 := n.Counters("helper1", "hs1")
	down0, up0 := n.linkUsage(helperAPI, "hs1")
	if err := n.Lab.Set("ps", "", "outage=on"); err != nil {
		t.Fatal(err)
	}
	const size = mb
	n.download(size)
	if p := n.awaitTransport("server", "phone", "udp"); p.Hop == nil || p.Hop.FarRateBps == 0 ||
		p.Hop.RejectedReports > 0 {
		t.Errorf("the server does not know of the pipe: %+v", p.Hop)
	}
	file := filepath.Join(n.Dir, "sent")
	writeNoise(t, file, size)
	n.Must("primary", "curl", "-sSf", "--max-time", "60", "-x", "http://127.0.0.1:1080", "-T", file, "http://web/upload")
	rig.Eventually(t, func() error {
		rx, tx := n.Counters("helper1", "hs1")
		down, up := n.linkUsage(helperAPI, "hs1")
		is, counted := float64(rx-rx0+tx-tx0), float64(down-down0+up-up0)
		if off := 100 * (counted - is) / is; math.Abs(off) > 1 || is < 2*size {
			return fmt.Errorf("%.0f bytes on the helper's link, counted %+.2f %% more", is, off)
		}
		return nil
	})
	s, err := n.Status("helper1", "helper")
	if err == nil && (s.Helper == nil || s.Helper.OverUDP != 1 || s.Helper.Fallback != "") {
		err = errors.New("the subflow does not use UDP")
	}
	if err != nil {
		t.Errorf("%v: %+v", err, s.Helper)
	}
	before := n.helpedSubflow()
	n.downloadDuring(2*mb, func() { n.changeAddressKeepRoute("helper1", "hs1") })
	if after := n.helpedSubflowByID(before.ID); after.ID != before.ID {
		t.Errorf("it was %+v, and is %+v", before, after)
	}
	if err := n.Lab.Set("ps", "", "outage=off"); err != nil {
		t.Fatal(err)
	}
}

var slowTests = flag.Bool("patient", false,
	"run the slow parts: the UDP backoff, the release of memory and a minute of logs: 3 minutes")

// TestUDPAgain: a subflow that uses TCP because UDP was blocked is replaced when UDP gets through,
// in the middle of a download.
func TestUDPAgain(t *testing.T) {
	if !*slowTests {
		t.Skip("takes three quarters of a minute: make again")
	}
	n := newUplinkNetwork(t)
	n.blockUDP()
	n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--udp")
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "wifi", "--udp", "any")
	n.awaitTransport("primary", "laptop/wifi", "tcp")
	n.Must("server", "nft", "delete table inet blocked")
	n.downloadDuring(90*mb, func() { n.awaitTransport("primary", "laptop/wifi", "udp") })
}
