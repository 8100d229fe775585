// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/e2e/rig"
	"mpbond/node/doctor"
)

// diagnosis is a run of `mpbond doctor --json` and its expected result.
type diagnosis struct {
	node          string // "" is the primary
	args          string
	code          int
	what, subject string
	accept        func(doctor.Report) bool // nil if only the bottleneck matters
}

// diagnose runs the program and returns its report, which must be as expected.
func (n *network) diagnose(d diagnosis) (r doctor.Report) {
	n.Helper()
	argv := append([]string{n.Mpbond, "doctor", "--json"}, strings.Fields(d.args)...)
	out, err := n.Command(cmp.Or(d.node, "primary"), argv...).Output()
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	if err := json.Unmarshal(out, &r); err != nil {
		n.Fatalf("code %d, %v: %s", code, err, out)
	}
	if v := r.Bottleneck; code != d.code || v.What != d.what || v.Subject != d.subject ||
		d.accept != nil && !d.accept(r) {
		n.Fatalf("doctor %q at %s: want %q of %q with code %d: got code %d, %+v", d.args, cmp.Or(d.node, "primary"),
			d.what, d.subject, d.code, code, r)
	}
	return r
}

// hasFinding reports whether a report has a finding with this check and level, whose subject begins
// with subject and whose text contains text.
func hasFinding(r doctor.Report, check, subject string, level doctor.Level, text string) bool {
	return slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool {
		return f.Check == check && strings.HasPrefix(f.Subject, subject) && f.Level == level && strings.Contains(f.Text, text)
	})
}

// portalPage is the answer of a captive portal at every address.
func portalPage(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "http://login.example/", http.StatusFound)
}

// TestDoctor: the real program finds nothing wrong where all is well, and names the slowest hop. What
// it measures counts as usage.
func TestDoctor(t *testing.T) {
	t.Parallel() // of the rates, only their order matters
	n := newNetworkWithoutRace(t, rig.Triangle(t, "8/8/8"))
	primary := n.processIn("primary")

	rtt := map[string]float64{doctor.HopPSPath: 50, doctor.HopPipe: 5, doctor.HopHSPath: 70} // of the emulated links
	n.diagnose(diagnosis{args: "--no-rate", what: "none", accept: func(r doctor.Report) bool {
		hops := 0
		for _, l := range r.Subflows {
			for _, h := range l.Hops {
				if h.RTTms >= rtt[h.Name] && h.MTU == 1500 {
					hops++
				}
			}
		}
		return len(r.Subflows) == 2 && hops == 3 && hasFinding(r, "pipe", "phone at 10.77.3.2", doctor.OK,
			"carries a subflow")
	}})
	n.diagnose(diagnosis{node: "helper1", what: "none", accept: func(r doctor.Report) bool {
		return hasFinding(r, "pipe", "laptop at 10.77.3.1:7602", doctor.OK, "is ready") &&
			hasFinding(r, "server", "10.77.1.1:7600", doctor.OK, "answers")
	}})
	n.diagnose(diagnosis{node: "server", what: "none", accept: func(r doctor.Report) bool {
		return hasFinding(r, "device", "laptop", doctor.OK, "is connected, with 2 subflows")
	}})
	text, err := n.Run("primary", n.Mpbond, "doctor", "--no-rate")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"subflow phone", "ok    clock", "no NAT: the server sees 10.77.", "phone    helped",
		"PS-path  -", "\nbottleneck: "} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	if _, err := n.Run("primary", n.Mpbond, "doctor", "--no-rate", "fone"); err == nil ||
		!strings.Contains(err.Error(), `no subflow "fone"`) {
		t.Errorf("an unknown subflow: %v", err)
	}

	// Rates: the two hops of the helper's subflow have different limits. doctor names the slower
	// one.
	n.setLink("pipe1", "down", "rate=700kbit/s")
	n.setLink("hs1", "up", "rate=1400kbit/s")
	n.diagnose(diagnosis{args: "phone", what: "pipe", subject: "pipe to phone", accept: func(r doctor.Report) bool {
		if len(r.Subflows) != 1 || len(r.Subflows[0].Hops) != 2 {
			return false
		}
		l, pipe, hs := r.Subflows[0], r.Subflows[0].Hops[0], r.Subflows[0].Hops[1]
		return !pipe.DownAtLeast && hs.DownAtLeast && pipe.UpAtLeast && !hs.UpAtLeast &&
			l.DownBps > 0 && l.DownBps < unit.Mbps && l.UpBps > 0 && l.UpBps < 2*unit.Mbps
	}})
	n.setLink("pipe1", "", "rate=8Mbit/s")
	n.setLink("hs1", "", "rate=8Mbit/s")

	// Measurements of an own link go over the primary's subflow and count as its usage.
	c := n.NewClient("primary", "primary")
	downBefore, upBefore := n.linkUsage(c, "ps")
	r := n.diagnose(diagnosis{args: "laptop", what: "ps_path", subject: "PS-path by laptop"})
	down, up := n.linkUsage(c, "ps")
	down, up = down-downBefore, up-upBefore
	if l := r.Subflows[0]; float64(down) < float64(l.DownBps)/8 || float64(up) < float64(l.UpBps)/8 { // half of the 2 s
		t.Errorf("%v down and %v up were measured for 2 s each, and %d and %d bytes counted", l.DownBps, l.UpBps, down, up)
	}

	primary.End(syscall.SIGTERM)
	n.diagnose(diagnosis{args: "--no-rate", what: "none", accept: func(r doctor.Report) bool {
		return len(r.Subflows) == 1 && r.Subflows[0].Up && hasFinding(r, "port", ":7602", doctor.OK, "free for helpers")
	}})
	// Without a running primary, doctor counts its usage in the file of the next primary.
	file := filepath.Join(n.Dir, "primary", "usage-primary.jsonl")
	before := readUsageDown(t, file, "ps")
	r = n.diagnose(diagnosis{what: "ps_path", subject: "PS-path by primary"})
	if down := readUsageDown(t, file, "ps") - before; float64(down) < float64(r.Subflows[0].DownBps)/8 {
		t.Errorf("%v were measured for 2 s, and %d bytes counted", r.Subflows[0].DownBps, down)
	}
}

// TestDoctorNamesTheFault breaks one thing after another on the way to the server. The real program
// names each.
func TestDoctorNamesTheFault(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetworkWith(t, "8/8/8", "", nil)
	primary := n.processIn("primary")
	n.Must("primary", "ip", "link", "set", "dev", "ps", "mtu", "1200")
	n.diagnose(diagnosis{args: "--no-rate", what: "mtu", subject: "PS-path by laptop"})
	n.Must("primary", "ip", "link", "set", "dev", "ps", "mtu", "1500")

	n.Must("primary", "sh", "-c", "echo nameserver 10.77.1.1 >/etc/resolv.conf") // nothing listens there
	n.diagnose(diagnosis{args: "--no-rate", code: 1, what: "names"})
	n.Must("primary", "sh", "-c", "echo '# none' >/etc/resolv.conf")

	n.Start("primary", os.Args[0], "lab", "portal", "127.0.0.1:8088")
	n.Must("primary", "sh", "-c", "nft add table ip p && "+
		"nft add chain ip p out '{ type nat hook output priority -100; }' && "+
		"nft add rule ip p out oifname ps tcp dport '{ 80, 7600 }' redirect to :8088")
	rig.Eventually(t, func() error {
		_, err := n.Run("primary", "curl", "-s", "http://10.77.1.1/")
		return err
	})
	n.diagnose(diagnosis{args: "--no-rate", code: 3, what: "portal", subject: "10.77.1.1:7600",
		accept: func(r doctor.Report) bool {
			return strings.Contains(r.Bottleneck.Text, "login.example")
		}})
	n.Must("primary", "nft", "delete", "table", "ip", "p")

	n.Must("server", "sh", "-c", "nft add table ip p && "+
		"nft add chain ip p out '{ type filter hook output priority 0; }' && "+
		"nft add rule ip p out oifname ps meta length '>' 1490 drop")
	n.diagnose(diagnosis{args: "--no-rate", code: 1, what: "mtu", subject: "10.77.1.1:7600"})
	n.Must("server", "nft", "delete", "table", "ip", "p")

	primary.End(syscall.SIGTERM)
	n.processIn("server").End(syscall.SIGTERM)
	n.diagnose(diagnosis{args: "--no-rate", code: 3, what: "server", subject: "10.77.1.1:7600",
		accept: bottleneckHas("home refuses TCP port 7600 at 10.77.1.1: no `mpbond server` listens there",
			"start `mpbond server`")})
}

// TestDoctorNamesTheHelper breaks one thing after another on the way over the helper. The real program
// names each, at both ends.
func TestDoctorNamesTheHelper(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetworkWith(t, "8/8/8", "", nil)
	// A helper without Internet reports that over the pipe. doctor names it at both ends.
	n.Must("helper1", "sh", "-c", "nft add table ip p && "+
		"nft add chain ip p out '{ type filter hook output priority 0; }' && "+
		"nft add rule ip p out oifname hs1 drop")
	_, _ = n.Run("primary", n.Mpbond, "doctor", "--no-rate") // its traffic lets the primary notice the silence
	rig.Eventually(t, func() error {                         // the helper's call to the server times out
		s, err := n.Status("primary", "primary")
		if err != nil {
			return err
		}
		for _, path := range s.Bonds[0].Subflows {
			if path.Device == "phone" && path.LastError != "" && !strings.Contains(path.LastError, "silent") {
				return nil
			}
		}
		return fmt.Errorf("the helper has not reported its error: %+v", s.Bonds[0].Subflows)
	})
	n.diagnose(diagnosis{args: "--no-rate", code: 3, what: "helper", subject: "phone",
		accept: bottleneckHas("phone has no way to home at 10.77.1.1:7600: no answer", "open a web page on phone")})
	n.diagnose(diagnosis{node: "helper1", code: 3, what: "server", subject: "10.77.1.1:7600",
		accept: bottleneckHas("the server does not answer on TCP port 7600 at 10.77.1.1",
			"this device (phone) has no Internet")})
	n.Must("helper1", "nft", "delete", "table", "ip", "p")

	_ = n.helper.Cmd.Process.Kill()
	<-n.helper.Done
	n.diagnose(diagnosis{args: "--no-rate", code: 3, what: "helper", subject: "phone",
		accept: bottleneckHas("phone no longer calls TCP port 7602 of this device (laptop): its last call was",
			"runs `mpbond helper`")})

	// The laptop's firewall drops the helper's calls. The laptop learns of them from the server.
	n.Must("primary", "sh", "-c", "nft add table ip p && "+
		"nft add chain ip p in '{ type filter hook input priority 0; }' && "+
		"nft add rule ip p in tcp dport 7602 drop")
	n.helper = n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
	rig.Eventually(t, func() error {
		if log := n.helper.Log.String(); !strings.Contains(log, "reported an unreachable primary to a server") {
			return fmt.Errorf("the helper has reported nothing: %s", log)
		}
		return nil
	})
	n.diagnose(diagnosis{args: "--no-rate", code: 3, what: "helper", subject: "phone",
		accept: bottleneckHas("phone calls TCP port 7602 of this device (laptop) at 10.77.3.1 and gets no answer: "+
			"a firewall blocks it",
			"open TCP port 7602 in this device's firewall")})
	n.diagnose(diagnosis{node: "helper1", code: 3, what: "pipe", subject: "laptop at 10.77.3.1:7602",
		accept: bottleneckHas("laptop does not answer on TCP port 7602 at 10.77.3.1: its firewall blocks the call",
			"on laptop open TCP port 7602 in the firewall")})
	n.Must("primary", "nft", "delete", "table", "ip", "p")
}

// bottleneckHas returns a function that reports whether the bottleneck has these parts in its text
// and advice.
func bottleneckHas(text, advice string) func(doctor.Report) bool {
	return func(r doctor.Report) bool {
		return strings.Contains(r.Bottleneck.Text, text) && strings.Contains(r.Bottleneck.Advice, advice)
	}
}

// readUsageDown returns the bytes received over a link according to a usage file.
func readUsageDown(t *testing.T, file, link string) (down unit.Bytes) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	last := map[policy.UsageRecord]unit.Bytes{} // later lines replace earlier ones
	for line := range strings.Lines(string(text)) {
		var row policy.UsageRecord
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		n := row.Down
		row.Down, row.Up = 0, 0
		last[row] = n
	}
	for of, n := range last {
		if of.Link == link {
			down += n
		}
	}
	return down
}

// setLink changes properties of a link.
func (n *network) setLink(link, direction string, props ...string) {
	n.Helper()
	if err := n.Lab.Set(link, direction, props...); err != nil {
		n.Fatal(err)
	}
}

// TestDoctorClock: doctor names a wrong clock, with the offset and its direction.
func TestDoctorClock(t *testing.T) {
	w := newTestbed(t)
	w.startServer()
	w.primary.addPeer(w.server, identity.RoleServer, w.scfg.Listen)
	for _, off := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		peer, _ := w.primary.trust.Lookup(w.server.key.Public())
		f := doctor.Gather(t.Context(), doctor.Config{Key: w.primary.key, Server: peer, Name: "laptop",
			Now: func() time.Time { return time.Now().Add(off) }, Progress: func(string) {}})
		if d := f.Server.ClockAhead + off; d > time.Minute || d < -time.Minute {
			t.Errorf("the server's clock is %v ahead of one that is %v ahead", f.Server.ClockAhead, off)
		}
		f.Host.Names = nil // depend on the machine that runs the test
		f.Host.Uplinks = []string{"eth0"}
		f.Server.Names = nil
		if r := doctor.Evaluate(f); r.Bottleneck.What != "clock" || r.Kind != fault.Other {
			t.Errorf("%+v", r.Bottleneck)
		}
	}
}
