package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/identity"
	"mpbond/lab"
)

// raceDetector tells that this test, and so the program it builds, has it.
var raceDetector bool

// build makes the program once, in a directory that the test removes.
func build(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mpbond")
	args := []string{"build", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "mpbond/cmd/mpbond")...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// network is the emulated network
//
//	primary ─────────── ps ────────── server ─ core ─ web
//	   └─ pipe1 ─ helper1 ─ hs1 ─────────┘
//
// with the real program in it.
type network struct {
	testing.TB
	l      *lab.Lab
	mpbond string
	dir    string // of keys, sockets and logs
	web4   string
	web6   string
	helper *process
	all    []*process
}

// process is one that runs in a node until the test ends.
type process struct {
	node string
	cmd  *exec.Cmd
	done chan struct{}
	log  *journal
	err  error // once done is closed
}

func newNetwork(t testing.TB) *network {
	t.Helper()
	return newNetworkOf(t, "60/60/60", "", nil)
}

// newNetworkOf makes one with a house, packets captured in a directory unless
// that is "", and flags for the server.
func newNetworkOf(t testing.TB, house, pcap string, server []string) *network {
	t.Helper()
	topology, err := lab.House(house)
	if err != nil {
		t.Fatal(err)
	}
	return newNetworkIn(t, topology, pcap, server)
}

// newNetworkIn is newNetworkOf in a topology with the nodes of a house.
func newNetworkIn(t testing.TB, topology *lab.Topology, pcap string, server []string) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: `mpbond run` sets up redirection")
	}
	for _, p := range []string{"ip", "nft", "curl", "nsenter"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
	dir, err := os.MkdirTemp("", "e2e") // short: a socket's path has 108 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	n := &network{TB: t, mpbond: build(t), dir: dir}
	if n.l, err = lab.Up(topology, lab.Options{Name: "e2e", Tied: true, Pcap: pcap}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.down)
	addr, err := topology.Addr("web", "")
	if err != nil {
		t.Fatal(err)
	}
	n.web4 = addr.String()
	n.web6 = strings.Fields(n.must("web", "sh", "-c", "ip -6 -o addr show scope global | sed 's/.*inet6 //; s,/.*,,'"))[0]
	n.start("web", os.Args[0], "lab", "web", ":80")
	n.trust()
	n.start("server", append([]string{n.mpbond, "server", "--allow", "10.77.0.0/16", "--allow", "fd77::/16"}, server...)...)
	n.start("primary", n.mpbond, "primary", "--name", "laptop")
	n.helper = n.start("helper1", n.mpbond, "helper", "--name", "phone")
	n.await(2)
	return n
}

// down ends everything and checks that nothing is left.
func (n *network) down() {
	n.Helper()
	for _, p := range n.all {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, p := range n.all {
		select {
		case <-p.done:
		case <-time.After(patience):
			n.Errorf("%s does not end", p.cmd)
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		var exit *exec.ExitError
		if errors.As(p.err, &exit) && exit.ExitCode() > 0 {
			n.Errorf("%s: %v", p.cmd, p.err)
		}
		if n.Failed() || strings.Contains(p.log.String(), "DATA RACE") {
			n.Errorf("-- %s:\n%s", p.node, p.log)
		}
	}
	rules, err := n.run("primary", "sh", "-c", "nft list ruleset; ip rule; ip -6 rule")
	if err != nil || strings.Contains(rules, "mpbond") || strings.Contains(rules, "fwmark") {
		n.Errorf("rules are left: %s, %v", rules, err)
	}
	if err := n.l.Down(); err != nil {
		n.Error(err)
	}
	if names, err := lab.Names(); err != nil || len(names) > 0 {
		n.Errorf("labs are left: %v, %v", names, err)
	}
	left, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range left {
		if exe, err := os.Readlink(link); err == nil && strings.HasPrefix(exe, n.mpbond) {
			n.Errorf("a process is left: %s", link)
		}
	}
}

// command prepares a program in a node.
func (n *network) command(node string, argv ...string) *exec.Cmd {
	n.Helper()
	cmd, err := n.l.Command(context.Background(), node, argv...)
	if err != nil {
		n.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "MPBOND_HOME="+filepath.Join(n.dir, node), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// run runs a program in a node to its end.
func (n *network) run(node string, argv ...string) (string, error) {
	n.Helper()
	cmd := n.command(node, argv...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, &errs)
	}
	return string(out), err
}

func (n *network) must(node string, argv ...string) string {
	n.Helper()
	out, err := n.run(node, argv...)
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// start starts a program that runs until the test ends.
func (n *network) start(node string, argv ...string) *process {
	n.Helper()
	p := &process{node: node, cmd: n.command(node, argv...), done: make(chan struct{}), log: newJournal()}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	n.all = append(n.all, p)
	return p
}

// trust makes keys and has the devices trust each other.
func (n *network) trust() {
	n.Helper()
	keys := map[string]identity.PublicKey{}
	addr := func(node, link string) string {
		a, err := n.l.Topology.Addr(node, link)
		if err != nil {
			n.Fatal(err)
		}
		return a.String()
	}
	for _, node := range []string{"server", "primary", "helper1"} {
		k, err := identity.CreateKey(filepath.Join(n.dir, node, "device.key"))
		if err != nil {
			n.Fatal(err)
		}
		keys[node] = k.Public()
	}
	server := addr("server", "core") + ":7600"
	var pipes []string
	for _, link := range n.l.Topology.Links() {
		if strings.HasPrefix(link, "pipe") {
			pipes = append(pipes, addr("primary", link)+":7602")
		}
	}
	for _, e := range []struct {
		at, who, name string
		role          identity.Role
		addr          []string
	}{
		{"server", "primary", "laptop", identity.RolePrimary, nil},
		{"primary", "server", "home", identity.RoleServer, []string{server}},
		{"primary", "helper1", "phone", identity.RoleHelper, nil},
		{"helper1", "server", "home", identity.RoleServer, []string{server}},
		{"helper1", "primary", "laptop", identity.RolePrimary, pipes},
	} {
		t, err := identity.OpenTrust(filepath.Join(n.dir, e.at, "trust.toml"))
		if err == nil {
			err = t.Add(identity.Peer{Name: e.name, Roles: []identity.Role{e.role}, Key: keys[e.who], Addresses: e.addr})
		}
		if err != nil {
			n.Fatal(err)
		}
	}
}

// status asks a role in its node.
func (n *network) status(node, role string) (s api.Status, err error) {
	c := client.New(filepath.Join(n.dir, node, "run", role+".sock"))
	defer c.Close()
	return c.Status(n.Context(), false)
}

// await waits until just so many subflows are up.
func (n *network) await(want int) {
	n.Helper()
	eventually(n.TB, func() error {
		s, err := n.status("primary", "primary")
		if err != nil {
			return err
		}
		up := 0
		for _, p := range s.Bonds[0].Paths {
			if p.State == api.Up {
				up++
			}
		}
		if up != want {
			return fmt.Errorf("%d subflows are up: %+v", up, s.Bonds[0].Paths)
		}
		return nil
	})
}

// carried is how many bytes the bond has carried, both ways.
func (n *network) carried() (sum int64) {
	n.Helper()
	s, err := n.status("server", "server")
	if err != nil {
		n.Fatal(err)
	}
	for _, p := range s.Bonds[0].Paths {
		sum += int64(p.RxBytes + p.TxBytes)
	}
	return sum
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeNoise writes a file of n bytes, and returns them.
func writeNoise(t *testing.T, path string, n int64) []byte {
	t.Helper()
	b, _ := io.ReadAll(noise(n))
	writeFile(t, path, string(b))
	return b
}

func TestApps(t *testing.T) {
	n := newNetwork(t)
	want, _ := sum(noise(mb))
	file := filepath.Join(n.dir, "upload")
	b := writeNoise(t, file, mb)
	run := []string{n.mpbond, "run", "--"}
	socks, proxy := []string{"--socks5-hostname", "127.0.0.1:1080"}, []string{"-x", "http://127.0.0.1:1080"}
	by4, by6, byName := fmt.Sprintf("http://%s/%d", n.web4, mb), fmt.Sprintf("http://[%s]/%d", n.web6, mb), fmt.Sprintf("http://web/%d", mb)
	for _, c := range []struct {
		name   string
		before []string
		args   []string
		upload bool
	}{
		{"run by name", run, []string{byName}, false},
		{"run by IPv4", run, []string{by4}, false},
		{"run by IPv6", run, []string{by6}, false},
		{"run, upload", run, []string{"-T", file, "http://web/"}, true},
		{"SOCKS5 by name", nil, append(socks, byName), false},
		{"SOCKS5 by IPv6", nil, append(socks, by6), false},
		{"SOCKS5, upload", nil, append(socks, "-T", file, "http://web/"), true},
		{"HTTP proxy", nil, append(proxy, byName), false},
		{"HTTP proxy, upload", nil, append(proxy, "-T", file, "http://web/"), true},
		{"HTTP CONNECT", nil, append(proxy, "-p", by4), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := n.carried()
			curl := append(append(c.before[:len(c.before):len(c.before)], "curl", "-gsSf", "--max-time", "10", "-H", "Expect:"), c.args...)
			out, err := n.run("primary", curl...)
			if err != nil {
				t.Fatal(err)
			}
			got := out
			if !c.upload {
				got, _ = sum(strings.NewReader(out))
			}
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if now := n.carried(); now < before+mb {
				t.Errorf("the bond has carried %d bytes of it", now-before)
			}
		})
	}
	t.Run("get", func(t *testing.T) {
		_, hash, _ := strings.Cut(want, ":")
		out := filepath.Join(n.dir, "got")
		n.must("primary", n.mpbond, "get", "--quiet", "--sha256", hash, "-o", out, byName)
		if f, err := os.ReadFile(out); err != nil || !bytes.Equal(f, b) {
			t.Errorf("%d bytes, %v", len(f), err)
		}
	})
	t.Run("status", func(t *testing.T) {
		var s []api.Status
		out := n.must("primary", n.mpbond, "status", "--json")
		var one api.Status
		if err := json.Unmarshal([]byte(out), &one); err == nil {
			s = append(s, one)
		} else if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, p := range s[0].Bonds[0].Paths {
			if p.State != api.Up || p.RxBytes == 0 || p.TxBytes == 0 {
				t.Errorf("%+v", p)
			}
		}
		h, err := n.status("helper1", "helper")
		if err != nil || h.Helper == nil || h.Helper.Subflows != 1 || h.Helper.RelayedBytes < 64<<10 || h.Helper.Primary != "laptop" {
			t.Errorf("%+v, %v", h.Helper, err)
		}
	})
	t.Run("trust taken back", func(t *testing.T) {
		n.must("primary", n.mpbond, "trust", "remove", "phone")
		for _, p := range n.all {
			if p.node == "primary" {
				if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
					t.Fatal(err)
				}
			}
		}
		n.await(1)
		n.must("primary", append(run, "curl", "-sSf", "-o", "/dev/null", byName)...)
	})
}

// TestFaults breaks what a transfer goes over, in its middle.
func TestFaults(t *testing.T) {
	n := newNetwork(t)
	const size = 12 * mb
	want, _ := sum(noise(size))
	for _, f := range []struct {
		name       string
		hurt, heal func() error
	}{
		{"helper killed", func() error { return n.helper.cmd.Process.Kill() }, func() error {
			<-n.helper.done
			n.helper = n.start("helper1", n.mpbond, "helper", "--name", "phone")
			return nil
		}},
		{"pipe cut", func() error { return n.l.Set("pipe1", "", "outage=on") }, func() error { return n.l.Set("pipe1", "", "outage=off") }},
		{"HS-path a black hole", func() error { return n.l.Set("hs1", "", "outage=on") }, func() error { return n.l.Set("hs1", "", "outage=off") }},
	} {
		t.Run(f.name, func(t *testing.T) {
			cmd := n.command("primary", n.mpbond, "run", "--", "curl", "-sSf", "--max-time", "15", fmt.Sprintf("http://web/%d", size))
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			h := sha256.New()
			first, err := io.CopyN(h, out, 3*mb)
			if e := f.hurt(); e != nil {
				t.Error(e)
			}
			rest, e := io.Copy(h, out)
			got, err := fmt.Sprintf("%d:%x", first+rest, h.Sum(nil)), errors.Join(err, e)
			if e := cmd.Wait(); err != nil || e != nil || got != want {
				t.Errorf("%s, want %s; %v %v %s", got, want, err, e, &errs)
			}
			if err := f.heal(); err != nil {
				t.Fatal(err)
			}
			n.await(2)
		})
	}
}
