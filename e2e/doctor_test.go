package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/doctor"
	"mpbond/fault"
	"mpbond/identity"
	"mpbond/unit"
)

// doctor runs `mpbond doctor` at the primary, and checks how it ends.
func (n *network) doctor(code int, args ...string) doctor.Report {
	n.Helper()
	return n.doctorAt("primary", code, args...)
}

func (n *network) doctorAt(node string, code int, args ...string) (r doctor.Report) {
	n.Helper()
	out, err := n.command(node, append([]string{n.mpbond, "doctor", "--json"}, args...)...).Output()
	n.ended(code, err)
	if err := json.Unmarshal(out, &r); err != nil {
		n.Fatalf("%v: %s", err, out)
	}
	return r
}

// found tells whether a report has such a finding; subject and text are the
// beginning and a part of it.
func found(r doctor.Report, check, subject string, level doctor.Level, text string) bool {
	return slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool {
		return f.Check == check && strings.HasPrefix(f.Subject, subject) && f.Level == level && strings.Contains(f.Text, text)
	})
}

func (n *network) ended(code int, err error) {
	n.Helper()
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		n.Fatal(err)
	}
	if got != code {
		n.Errorf("exit code %d, want %d", got, code)
	}
}

// names checks what a report calls the bottleneck.
func (n *network) names(r doctor.Report, what, subject string) {
	n.Helper()
	if r.Bottleneck.What != what || r.Bottleneck.Subject != subject {
		n.Errorf("the bottleneck is %+v, want %q of %q, from %+v", r.Bottleneck, what, subject, r.Findings)
	}
}

// stop ends a process in order.
func (n *network) stop(p *process) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.done
}

// portalPage is what a captive portal says at every address.
func portalPage(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "http://login.example/", http.StatusFound)
}

// TestDoctor: the real program names what was broken in its network, one thing
// after another.
func TestDoctor(t *testing.T) {
	n := newNetworkOf(t, "8/8/8", "", nil)
	primary := n.of("primary")

	r := n.doctor(0, "--no-rate")
	n.names(r, "none", "")
	if len(r.Lanes) != 2 || !r.Lanes[0].Up || !r.Lanes[1].Up || len(r.Lanes[0].Hops) != 1 || len(r.Lanes[1].Hops) != 2 {
		t.Fatalf("%+v", r.Lanes)
	}
	for name, ms := range map[string]float64{doctor.PSPath: 50, doctor.Pipe: 5, doctor.HSPath: 70} { // the links' own
		for _, l := range r.Lanes {
			for _, h := range l.Hops {
				if h.Name == name && (h.RTTms < ms || h.MTU != 1500) {
					t.Errorf("%+v", h)
				}
			}
		}
	}
	text, err := n.run("primary", n.mpbond, "doctor", "--no-rate")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"ok    lane phone", "reaches the server", "ok    clock", "no NAT: the server sees 10.77.", "phone   helped", "PS-path  -", "bottleneck: nothing is wrong; rates were not measured\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}

	// At the other devices.
	for _, c := range []struct{ node, check, subject, text string }{
		{"helper1", "pipe", "laptop at 10.77.3.1:7602", "is ready"}, {"helper1", "server", "10.77.1.1:7600", "answers"},
		{"server", "device", "laptop", "is there, with 2 subflows"},
	} {
		if r := n.doctorAt(c.node, 0); !found(r, c.check, c.subject, doctor.OK, c.text) || r.Bottleneck.What != "none" {
			t.Errorf("no %s of %s: %+v", c.check, c.subject, r)
		}
	}
	if !found(r, "pipe", "phone at 10.77.3.2", doctor.OK, "carries a subflow") {
		t.Errorf("no pipe in %+v", r.Findings)
	}
	if _, err := n.run("primary", n.mpbond, "doctor", "--no-rate", "fone"); err == nil || !strings.Contains(err.Error(), `no lane "fone"`) {
		t.Errorf("a lane that is not there: %v", err)
	}

	// Rates: the helper's lane has another limit in each direction.
	for _, s := range [][2]string{{"pipe1", "down"}, {"hs1", "up"}} {
		if err := n.l.Set(s[0], s[1], "rate=1Mbit/s"); err != nil {
			t.Fatal(err)
		}
	}
	r = n.doctor(0, "phone")
	if len(r.Lanes) != 1 {
		t.Fatalf("%+v", r.Lanes)
	}
	if v := r.Bottleneck; v.What != "pipe" && v.What != "hs_path" || !strings.HasSuffix(v.Subject, " phone") {
		t.Errorf("%+v", v)
	}
	pipe, hs := r.Lanes[0].Hops[0], r.Lanes[0].Hops[1]
	if pipe.DownAtLeast || !hs.DownAtLeast || !pipe.UpAtLeast || hs.UpAtLeast {
		t.Errorf("limits: %+v", r.Lanes)
	}
	if l := r.Lanes[0]; l.DownBps == 0 || l.UpBps == 0 || l.DownBps > 1050*unit.Kbps || l.UpBps > 1050*unit.Kbps {
		t.Errorf("rates beyond those of the links: %+v", r.Lanes)
	}
	for _, s := range []string{"pipe1", "hs1"} {
		if err := n.l.Set(s, "", "rate=8Mbit/s"); err != nil {
			t.Fatal(err)
		}
	}

	n.must("primary", "ip", "link", "set", "dev", "ps", "mtu", "1200")
	n.names(n.doctor(0, "--no-rate"), "mtu", "PS-path by laptop")
	n.must("primary", "ip", "link", "set", "dev", "ps", "mtu", "1500")

	n.must("primary", "sh", "-c", "echo nameserver 10.77.1.1 >/etc/resolv.conf") // nobody listens there
	r = n.doctor(1, "--no-rate")
	n.names(r, "names", "")
	n.must("primary", "sh", "-c", "echo '# none' >/etc/resolv.conf")

	n.start("primary", os.Args[0], "lab", "portal", "127.0.0.1:8088")
	n.must("primary", "sh", "-c", "nft add table ip p && nft add chain ip p out '{ type nat hook output priority -100; }' && nft add rule ip p out oifname ps tcp dport '{ 80, 7600 }' redirect to :8088")
	eventually(t, func() error {
		_, err := n.run("primary", "curl", "-s", "http://10.77.1.1/")
		return err
	})
	r = n.doctor(3, "--no-rate")
	n.names(r, "portal", "10.77.1.1:7600")
	if !strings.Contains(r.Bottleneck.Text, "login.example") {
		t.Errorf("%+v", r.Bottleneck)
	}
	n.must("primary", "nft", "delete", "table", "ip", "p")

	_ = n.helper.cmd.Process.Kill()
	<-n.helper.done
	n.await(1)
	n.names(n.doctor(3, "--no-rate"), "helper", "phone")

	n.must("server", "sh", "-c", "nft add table ip p && nft add chain ip p out '{ type filter hook output priority 0; }' && nft add rule ip p out oifname ps meta length '>' 1490 drop")
	n.names(n.doctor(1, "--no-rate"), "mtu", "10.77.1.1:7600")
	n.must("server", "nft", "delete", "table", "ip", "p")

	n.stop(primary)
	r = n.doctor(0, "--no-rate")
	n.names(r, "none", "")
	if len(r.Lanes) != 1 || !r.Lanes[0].Up || !found(r, "port", ":7602", doctor.OK, "free for helpers") {
		t.Errorf("without a primary: %+v", r)
	}
	n.stop(n.of("server"))
	n.names(n.doctor(3, "--no-rate"), "server", "10.77.1.1:7600")

	if err := os.Chmod(n.dir+"/primary/device.key", 0o644); err != nil {
		t.Fatal(err)
	}
	r = n.doctor(4)
	n.names(r, "configuration", "")
}

// TestDoctorClock: a clock that is wrong is named, by how much and in which
// direction.
func TestDoctorClock(t *testing.T) {
	w := newWorld(t)
	w.startServer()
	w.primary.trusts(w.server, identity.RoleServer, w.scfg.Listen)
	for _, off := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		peer, _ := w.primary.trust.Lookup(w.server.key.Public())
		f := doctor.Gather(t.Context(), doctor.Patient{Key: w.primary.key, Server: peer, Name: "laptop",
			Now: func() time.Time { return time.Now().Add(off) }, Progress: func(string) {}})
		if d := f.Server.Ahead + off; d > time.Minute || d < -time.Minute {
			t.Errorf("the server's clock is %v ahead of one that is %v ahead", f.Server.Ahead, off)
		}
		f.Host.Names = nil // of the machine that tests
		f.Host.Uplinks = []string{"eth0"}
		f.Server.Names = nil
		if r := doctor.Judge(f); r.Bottleneck.What != "clock" || r.Kind != fault.Other {
			t.Errorf("%+v", r.Bottleneck)
		}
	}
}
