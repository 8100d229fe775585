// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mpbond/e2e/rig"
)

// newCrashNetwork is newNetwork with a plain web server, whose process it returns. It has no race
// detector, with which processes start slowly.
func newCrashNetwork(t *testing.T) (*network, *rig.Process) {
	t.Helper()
	n := &network{Network: rig.New(t, rig.Options{Lab: rig.Triangle(t, "60/60/60")})}
	n.startRoles(nil)
	web := n.Start("web", os.Args[0], "lab", "plain", ":81")
	n.awaitPort("web", 81) // the proxy reports a closed port
	return n, web
}

// awaitPort waits until a port of a node is open.
func (n *network) awaitPort(node string, port int) {
	n.Helper()
	rig.Eventually(n, func() error {
		_, err := n.Run(node, "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", port))
		return err
	})
}

// TestKilledPrimaryResetsApps: a part of an answer never looks complete when the primary is killed,
// however the app connects. The primary may be killed more often within a minute than its server
// lets a device have bonds.
func TestKilledPrimaryResetsApps(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n, _ := newCrashNetwork(t)
	curl := []string{"curl", "-gsSfN", "--max-time", "60"}
	by4, by6 := fmt.Sprintf("http://%s:81/%d?paced", n.web4, 20*mb), fmt.Sprintf("http://[%s]:81/%d?paced", n.web6, 20*mb)
	ways := [][]string{
		append(curl, "--socks5-hostname", "127.0.0.1:1080", by4),
		append(curl, "--socks5-hostname", "127.0.0.1:1080", by6),
		append(curl, "-0", "-x", "http://127.0.0.1:1080", by4),
		append(curl, "-p", "-x", "http://127.0.0.1:1080", by6),
		append([]string{n.Mpbond, "run", "--"}, append(curl, by4)...),
		append([]string{n.Mpbond, "run", "--"}, append(curl, by6)...),
	}
	for round := range 10 {
		var apps []*transfer
		for _, way := range ways[round%2*3:][:3] {
			apps = append(apps, n.startAppTransfer(20_000, way...))
		}
		for _, x := range apps {
			<-x.begun
		}
		n.signalProcess("primary", syscall.SIGKILL)
		for _, x := range apps {
			<-x.done
			switch errs := x.errs.String(); {
			case x.err == nil:
				t.Errorf("round %d: %v took %s as complete", round, x.cmd.Args, x.got)
			case !strings.Contains("\n"+errs, "\ncurl: (56)"):
				t.Errorf("round %d: %v: %v after %s: %s", round, x.cmd.Args, x.err, x.got, errs)
			case !strings.HasPrefix(errs, "curl: (56)"): // mpbond run has warned
				t.Logf("round %d: %v: %s", round, x.cmd.Args, errs)
			}
		}
		n.Start("primary", n.Mpbond, "primary", "--name", "laptop")
		rig.Eventually(t, func() error {
			up, err := n.Up()
			if err == nil && len(up) == 0 {
				err = errors.New("no subflow is up")
			}
			return err
		})
	}
}

// awaitUploadBegin waits until a plain web server has printed that it has an upload's request.
func awaitUploadBegin(t *testing.T, web *rig.Process, number int) {
	t.Helper()
	rig.Eventually(t, func() error {
		if !strings.Contains(web.Log.String(), fmt.Sprintf("begin %d\n", number)) {
			return fmt.Errorf("upload %d has not begun", number)
		}
		return nil
	})
}

// awaitUploadEnd waits until a plain web server has printed how an upload ended, and returns that.
func awaitUploadEnd(t *testing.T, web *rig.Process, number int) (how string) {
	t.Helper()
	rig.Eventually(t, func() error {
		for line := range strings.Lines(web.Log.String()) {
			var ok bool
			if how, ok = strings.CutPrefix(line, fmt.Sprintf("upload %d: ", number)); ok {
				return nil
			}
		}
		return fmt.Errorf("upload %d has not ended", number)
	})
	return strings.TrimSpace(how)
}

// TestKilledServerResetsUploads: a part of an upload never looks complete to the web server when
// the bonding server is killed or crashes as the Go runtime does. It does look complete when a
// relay without protection is killed.
func TestKilledServerResetsUploads(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n, web := newCrashNetwork(t)
	file := filepath.Join(n.Dir, "upload")
	writeNoise(t, file, 20*mb)
	relay := n.Start("server", os.Args[0], "lab", "relay", ":82", n.web4+":81")
	n.awaitPort("server", 82)
	addr, err := n.Lab.Topology.Addr("server", "core")
	if err != nil {
		t.Fatal(err)
	}
	x := n.startAppTransfer(0, "curl", "-gsSfN", "--max-time", "60", "--limit-rate", "1M", "-H", "Expect:", "-T", file,
		fmt.Sprintf("http://%v:82/0", addr))
	rig.Eventually(t, func() error {
		if _, sent := n.Counters("server", "core"); sent < 200_000 {
			return fmt.Errorf("only %d bytes were sent", sent)
		}
		return nil
	})
	relay.End(syscall.SIGKILL)
	if how := awaitUploadEnd(t, web, 0); how != "end" {
		t.Errorf("the upload by a killed relay ended with %s, want end", how)
	}
	<-x.done
	n.All = slices.DeleteFunc(n.All, func(p *rig.Process) bool { return p == relay })
	number := 1
	for round := range 4 {
		var apps []*transfer
		began := number
		for i := range 5 {
			at := []string{n.web4, "[" + n.web6 + "]"}[i%2]
			x := n.startAppTransfer(0, "curl", "-gsSfN", "--max-time", "60", "--limit-rate", "1M", "-H", "Expect:",
				"--socks5-hostname",
				"127.0.0.1:1080", "-T", file, fmt.Sprintf("http://%s:81/%d", at, number))
			apps, number = append(apps, x), number+1
		}
		for i := began; i < number; i++ {
			awaitUploadBegin(t, web, i)
		}
		rig.Eventually(t, func() error {
			s, err := n.Status("server", "server")
			for _, b := range s.Bonds {
				for _, p := range b.Subflows {
					if p.State == "up" && b.Streams >= 5 && p.RxBytes > 200_000 {
						return err
					}
				}
			}
			return errors.New("the uploads have not come far")
		})
		crashed := n.processIn("server")
		crashed.End([]os.Signal{syscall.SIGKILL, syscall.SIGABRT}[round%2])
		// A crash has an exit code that the cleanup would report.
		n.All = slices.DeleteFunc(n.All, func(p *rig.Process) bool { return p == crashed })
		for i := began; i < number; i++ {
			if how := awaitUploadEnd(t, web, i); how != "reset" {
				t.Errorf("round %d: upload %d ended with %s, want reset", round, i, how)
			}
		}
		n.startServer()
		for _, x := range apps {
			if <-x.done; x.err == nil {
				t.Errorf("round %d: an upload succeeded", round)
			}
		}
	}
}
