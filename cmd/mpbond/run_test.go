// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"mpbond/base/porttest"
	"mpbond/base/waittest"
	"mpbond/node/intercept"
)

// The tests run the test binary as `mpbond run` and as an app.
func init() {
	switch os.Getenv("MPBOND_TEST_ROLE") {
	case "run":
		os.Unsetenv("MPBOND_TEST_ROLE")
		os.Exit(mpbondProgram().Run(context.Background(), append([]string{"run"}, os.Args[1:]...), os.Stdout, os.Stderr))
	case "ask":
		os.Exit(askByUDP(os.Args[1:]))
	case "refused":
		os.Exit(refusedByUDP(os.Args[1:]))
	}
}

// inNamespace runs the test again in its own network and mount namespaces and its own cgroup, with a default route for
// both address families that leads nowhere. It reports whether this is that run.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv("MPBOND_TEST_ROLE") == "namespace" {
		for _, c := range []string{
			"ip link set lo up",
			"ip link add v0 type veth peer name v1", "ip link set v0 up", "ip link set v1 up",
			"ip addr add 10.99.0.1/24 dev v0", "ip addr add fd99::1/64 dev v0 nodad",
			"ip route add default via 10.99.0.2", "ip -6 route add default via fd99::2",
		} {
			a := strings.Fields(c)
			if out, err := exec.Command(a[0], a[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", c, err, out)
			}
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		enterNewCgroup(t)
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, p := range []string{"ip", "curl"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), "MPBOND_TEST_ROLE=namespace")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skip("network namespaces are not allowed here")
	}
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP")):
		t.Skipf("%s", out)
	}
	return false
}

// farSide is a Dialer whose destinations exist only here.
type farSide struct {
	mu     sync.Mutex
	at     map[string]string
	dialed []string
}

func (s *farSide) DialStream(ctx context.Context, dest string) (net.Conn, error) {
	s.mu.Lock()
	s.dialed = append(s.dialed, dest)
	addr, ok := s.at[dest]
	s.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("%s: %w", dest, unix.EHOSTUNREACH)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

func (s *farSide) hasDialed(dest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.dialed {
		if d == dest {
			return true
		}
	}
	return false
}

const (
	web4 = "198.51.100.7:80"
	web6 = "[2001:db8::7]:80"
	dns4 = "198.51.100.53:53"
)

// startEdge replaces a primary and returns the port for redirected connections.
func startEdge(t *testing.T) (*farSide, uint16) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "world:%s", b)
	}))
	t.Cleanup(web.Close)
	here := web.Listener.Addr().String()
	w := &farSide{at: map[string]string{web4: here, web6: here, dns4: dnsServer(t)}}
	lns, err := intercept.ListenTransparent(0)
	if err != nil {
		t.Fatal(err)
	}
	direct := func(ctx context.Context, network, dest string) (net.Conn, error) {
		if network != "udp" {
			return nil, errors.New("not in this test")
		}
		return new(net.Dialer).DialContext(ctx, network, dest)
	}
	e := intercept.New(intercept.Config{Dialer: w, Packets: w, Direct: direct,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	var wg sync.WaitGroup
	for _, ln := range lns {
		wg.Go(func() {
			if err := e.ServeTransparent(ln); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { e.Close(); wg.Wait() })
	return w, uint16(lns[0].Addr().(*net.TCPAddr).Port)
}

// dnsServer answers every query for an address with 198.51.100.7, over TCP.
func dnsServer(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var size [2]byte
				if _, err := io.ReadFull(c, size[:]); err != nil {
					return
				}
				q := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(c, q); err != nil {
					return
				}
				var m dnsmessage.Message
				if m.Unpack(q) != nil || len(m.Questions) != 1 {
					return
				}
				m.Response, m.Additionals = true, nil
				if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
					m.Answers = []dnsmessage.Resource{{
						Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60},
						Body:   &dnsmessage.AResource{A: [4]byte{198, 51, 100, 7}},
					}}
				}
				a, _ := m.Pack()
				c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
			}()
		}
	}()
	return ln.Addr().String()
}

func runWith(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "MPBOND_TEST_ROLE=run", "GORACE=atexit_sleep_ms=0")
	return cmd
}

func portFlag(port uint16) string { return "--redirect-port=" + strconv.Itoa(int(port)) }

// runOutput runs `mpbond run` and returns what it printed and its exit code.
func runOutput(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := runWith(args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if stderr.Len() > 0 {
		t.Logf("%v: %s", args, &stderr)
	}
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatal(err)
	}
	return string(out) + stderr.String(), cmd.ProcessState.ExitCode()
}

// listLeftovers lists rules and cgroups of `mpbond run`.
func listLeftovers(t *testing.T) string {
	t.Helper()
	rules, err := exec.Command("nft", "list", "tables").CombinedOutput()
	if err != nil {
		t.Skipf("nft is not usable: %v: %s", err, rules)
	}
	var found []string
	for line := range strings.Lines(string(rules)) {
		if strings.Contains(line, "mpbond_run_") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	for _, family := range []string{"-4", "-6"} {
		out, _ := exec.Command("ip", family, "rule").CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "fwmark 0x6d") {
				found = append(found, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(append(found, listCgroups(t)...), "\n")
}

// listCgroups finds cgroups of `mpbond run`.
func listCgroups(t *testing.T) []string {
	t.Helper()
	own, unmount := mountOwnCgroup(t)
	defer unmount()
	found, err := filepath.Glob(filepath.Join(own, "mpbond-run-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// mountOwnCgroup mounts the hierarchy of cgroups for this test, and returns the directory of this process in it.
func mountOwnCgroup(t *testing.T) (dir string, unmount func()) {
	t.Helper()
	root := t.TempDir()
	if err := unix.Mount("none", root, "cgroup2", 0, ""); err != nil {
		t.Skipf("no cgroup version 2: %v", err)
	}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, own, _ := strings.Cut("\n"+string(b), "\n0::")
	own, _, _ = strings.Cut(own, "\n")
	return filepath.Join(root, own), func() { _ = unix.Unmount(root, 0) }
}

// enterNewCgroup moves this process into a cgroup of its own until the test ends. So the test does not find cgroups of
// other tests, which may run at the same time.
func enterNewCgroup(t *testing.T) {
	t.Helper()
	parent, unmount := mountOwnCgroup(t)
	dir := filepath.Join(parent, fmt.Sprintf("run-test-%d", os.Getpid()))
	enter := func(dir string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		enter(parent)
		waittest.UntilSuccess(t, func() error { return unix.Rmdir(dir) }) // once all processes of the test have ended
		unmount()
	})
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	enter(dir)
}

func TestRunCarriesTheAppAndItsChildren(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	w, port := startEdge(t)
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		io.WriteString(w, "local")
	}))
	defer local.Close()
	own, err := net.Listen("tcp", "10.99.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go http.Serve(own, local.Config.Handler)
	defer own.Close()
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 198.51.100.53\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(conf, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	curl := "curl -sS --max-time 60 -g "
	for _, tc := range []struct {
		name, script, want string
	}{
		{"IPv4", "exec " + curl + "-d hi http://" + web4, "world:hi"},
		{"IPv6", "exec " + curl + "-d hi http://" + web6, "world:hi"},
		{"children", "(" + curl + "http://" + web4 + "; setsid -w sh -c '" + curl + "http://" + web6 + "')",
			"world:world:"},
		{"name", "exec " + curl + "http://only-in-the-bond.test/", "world:"},
		{"loopback stays direct", "exec " + curl + local.URL, "local"},
		{"own address stays direct", "exec " + curl + own.Addr().String(), "local"},
	} {
		out, code := runOutput(t, portFlag(port), "--", "sh", "-c", tc.script)
		if !strings.Contains(out, tc.want) || code != 0 {
			t.Errorf("%s: %q, exit code %d; want %q", tc.name, out, code, tc.want)
		}
	}
	if w.hasDialed(local.Listener.Addr().String()) || w.hasDialed(own.Addr().String()) {
		t.Error("this machine was reached through the bond")
	}
	for _, d := range []string{web4, web6, dns4} {
		if !w.hasDialed(d) {
			t.Errorf("%s was not reached through the bond", d)
		}
	}
	// Other processes are not redirected.
	if c, err := net.DialTimeout("tcp", web4, 100*time.Millisecond); err == nil {
		c.Close()
		t.Error("a process outside was redirected")
	}
	// Exempted addresses are not redirected.
	w.mu.Lock()
	w.dialed = nil
	w.mu.Unlock()
	if out, code := runOutput(t, portFlag(port), "--direct=198.51.100.0/24", "--", "curl", "-sS", "--connect-timeout",
		"0.2", "http://"+web4); code != 28 && code != 7 {
		t.Errorf("an exempt destination: %q, exit code %d", out, code)
	}
	if w.hasDialed(web4) {
		t.Error("an exempt destination went through the bond")
	}
	if l := listLeftovers(t); l != "" {
		t.Errorf("left behind: %s", l)
	}
}

func TestRunByUser(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	w, port := startEdge(t)
	out, code := runOutput(t, portFlag(port), "--user=nobody", "--", "sh", "-c",
		"id -un; curl -sS --max-time 60 http://"+web4)
	if !strings.HasPrefix(out, "nobody\nworld:") || code != 0 {
		t.Errorf("%q, exit code %d", out, code)
	}
	if !w.hasDialed(web4) {
		t.Error("not through the bond")
	}
	if out, code := runOutput(t, portFlag(port), "--user=root", "--", "true"); code != exitRunFailed ||
		!strings.Contains(out, "choose another one") {
		t.Errorf("%q, exit code %d", out, code)
	}
}

func TestRunExitCodes(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	_, port := startEdge(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	nobody := netip.MustParseAddrPort(porttest.FreeAddress(t)).Port()
	socket := statusSocket(t, fmt.Sprintf("127.0.0.1:%d", port))
	none := statusSocket(t, "")
	for _, tc := range []struct {
		name string
		args []string
		code int
		text string
	}{
		{"success", []string{portFlag(port), "--", "true"}, 0, ""},
		{"failure", []string{portFlag(port), "--", "sh", "-c", "exit 7"}, 7, ""},
		{"without --", []string{portFlag(port), "sh", "-c", "exit 8"}, 8, ""},
		{"signal", []string{portFlag(port), "--", "sh", "-c", "kill -TERM $$"}, 128 + 15, ""},
		{"input and output", []string{portFlag(port), "--", "sh", "-c", "echo $1", "sh", "--help"}, 0, "--help\n"},
		{"not found", []string{portFlag(port), "--", "no-such-program"}, exitNotFound, "no-such-program"},
		{"no such file", []string{portFlag(port), "--", "./no-such-file"}, exitNotFound, "no-such-file"},
		{"not executable", []string{portFlag(port), "--", plain}, exitNotExecutable, "permission denied"},
		{"no primary", []string{portFlag(nobody), "--", "true"}, exitRunFailed, "start `mpbond primary`"},
		{"status socket", []string{"--socket", socket, "--", "true"}, 0, ""},
		{"no status socket", []string{"--socket", "/nowhere", "--", "true"}, exitRunFailed, "start `mpbond primary`"},
		{"primary without redirection", []string{"--socket", none, "--", "true"}, exitRunFailed,
			"accepts no redirected connections"},
		{"bad prefix", []string{"--direct=10.0.0.0/99", "--", "true"}, exitRunFailed, "give an address or a prefix"},
		{"unknown flag", []string{"--bogus", "--", "true"}, exitRunFailed, "mpbond run --help"},
		{"no command", []string{portFlag(port)}, exitRunFailed, "mpbond run --help"},
		{"bad user", []string{"--user=nobody-at-all", "--", "true"}, exitRunFailed, "no such user"},
	} {
		out, code := runOutput(t, tc.args...)
		if code != tc.code || !strings.Contains(out, tc.text) {
			t.Errorf("%s: exit code %d, want %d; %q, want %q", tc.name, code, tc.code, out, tc.text)
		}
	}
	// A user without rights.
	cmd := runWith(portFlag(port), "--", "true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	copied := filepath.Join(copyForAll(t), "mpbond.test")
	cmd.Path, cmd.Dir = copied, "/"
	if out, err := cmd.CombinedOutput(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != exitRunFailed ||
		!strings.Contains(string(out), "run it as root") {
		t.Errorf("as nobody: %v %q", err, out)
	}
	if l := listLeftovers(t); l != "" {
		t.Errorf("left behind: %s", l)
	}
}

// copyForAll copies the test binary to where any user may run it.
func copyForAll(t *testing.T) string {
	dir, err := os.MkdirTemp("", "mpbond-run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "mpbond.test"), b, 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func statusSocket(t *testing.T, transparent string) string {
	path := filepath.Join(t.TempDir(), "sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/status" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"transparent": transparent, "role": "primary"})
	})}
	go s.Serve(ln)
	t.Cleanup(func() { s.Close() })
	return path
}

// startApp starts `mpbond run` with a shell script that prints "ready", and waits for that.
func startApp(t *testing.T, port uint16, script string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := runWith(portFlag(port), "--", "sh", "-c", script)
	cmd.Stderr = os.Stderr // a file, not a pipe that Wait would wait for
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if _, err := io.ReadFull(out, b); err != nil || string(b) != "ready\n" {
		t.Fatalf("the app says %q, %v", b, err)
	}
	return cmd, out
}

func TestRunPassesSignals(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	_, port := startEdge(t)
	for s, name := range map[syscall.Signal]string{unix.SIGINT: "INT", unix.SIGTERM: "TERM", unix.SIGHUP: "HUP",
		unix.SIGUSR1: "USR1"} {
		if signal.Ignored(s) { // as under nohup, which the app inherits
			t.Logf("%s left out: it is ignored here", name)
			continue
		}
		cmd, out := startApp(t, port, "trap 'echo got; exit 9' "+name+"; echo ready; while :; do sleep 0.05; done")
		cmd.Process.Signal(s)
		b, _ := io.ReadAll(out)
		cmd.Wait()
		if string(b) != "got\n" || cmd.ProcessState.ExitCode() != 9 {
			t.Errorf("%s: %q, exit code %d", name, b, cmd.ProcessState.ExitCode())
		}
	}
	// As under nohup, ignored signals stay ignored.
	signal.Ignore(unix.SIGHUP)
	cmd, out := startApp(t, port, "echo ready; grep SigIgn /proc/self/status")
	b, _ := io.ReadAll(out)
	cmd.Wait()
	mask, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(string(b), "SigIgn:")), 16, 64)
	if err != nil || mask&(1<<(unix.SIGHUP-1)) == 0 {
		t.Errorf("the app ignores %q; want SIGHUP among them", b)
	}
	if l := listLeftovers(t); l != "" {
		t.Errorf("left behind: %s", l)
	}
}
