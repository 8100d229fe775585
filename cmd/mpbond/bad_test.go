// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/identity"
	"mpbond/base/waittest"
	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
	"mpbond/node/primary"
)

// The test binary can run as the program itself.
func init() {
	if os.Getenv("MPBOND_TEST_ROLE") == "program" {
		os.Unsetenv("MPBOND_TEST_ROLE")
		main()
	}
}

// newProcess prepares mpbond as a separate process.
func newProcess(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "MPBOND_TEST_ROLE=program", "GORACE=atexit_sleep_ms=0")
	killWithParent(cmd)
	return cmd
}

// expectFailure runs mpbond, which must end with that exit code, error and hint.
func expectFailure(t *testing.T, code int, says, hint string, args ...string) {
	t.Helper()
	cmd := newProcess(args...)
	checkFailure(t, cmd, code, says, hint)
}

func checkFailure(t *testing.T, cmd *exec.Cmd, code int, says, hint string) {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !stop.Stop() {
		t.Errorf("%q does not end", cmd.Args[1:])
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Errorf("%q: %v, want code %d", cmd.Args[1:], err, code)
	}
	last := errs.String()[strings.LastIndex(errs.String(), "mpbond: ")+1:]
	text, h, found := strings.Cut(last, "\nhint: ")
	if !strings.Contains(text, says) || !found || !strings.Contains(h, hint) {
		t.Errorf("%q says, where %q and the hint %q are wanted:\n%s", cmd.Args[1:], says, hint, &errs)
	}
}

// newPairedHome creates a home with a key and a trusted server, primary and helper.
func newPairedHome(t *testing.T) (dir string) {
	t.Helper()
	dir = newHome(t)
	if _, err := identity.CreateKey(filepath.Join(dir, "device.key")); err != nil {
		t.Fatal(err)
	}
	trust, err := identity.OpenTrust(filepath.Join(dir, "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range identity.Roles() {
		key, err := identity.Generate()
		if err == nil {
			err = trust.Add(identity.Peer{Name: "my-" + string(r), Roles: []identity.Role{r}, Key: key.Public(),
				Addresses: []string{"127.0.0.1:9"}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func listenOnFreePort(t *testing.T) (addr, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return l.Addr().String(), port
}

// portlessPrimary are arguments of a primary that uses no port that may be in use.
var portlessPrimary = []string{"primary", "--proxy", "", "--transparent", "0", "--pipe", ""}

func TestPortsInUse(t *testing.T) {
	newPairedHome(t)
	addr, port := listenOnFreePort(t)
	expectFailure(t, cli.ExitFailure, addr+": bind: address already in use", "ss -ltnp", "server", "--listen", addr)
	expectFailure(t, cli.ExitFailure, "address already in use", "ss -ltnp", append(portlessPrimary, "--pipe", addr)...)
	expectFailure(t, cli.ExitFailure, "proxy: ", "choose one with --proxy", append(portlessPrimary, "--proxy", addr)...)
	expectFailure(t, cli.ExitFailure, "address already in use", "choose one with --transparent",
		append(portlessPrimary, "--transparent", port)...)
	expectFailure(t, cli.ExitUsage, "203.0.113.1", "ip address", "server", "--listen", "203.0.113.1:7600")
}

func TestBadAddresses(t *testing.T) {
	newPairedHome(t)
	for _, addr := range []string{"7600", "localhost", ":99999", "::1:7600"} {
		expectFailure(t, cli.ExitUsage, "listen on "+addr, "HOST:PORT", "server", "--listen", addr)
		expectFailure(t, cli.ExitUsage, "listen on "+addr, "HOST:PORT", append(portlessPrimary, "--pipe", addr)...)
	}
}

func TestSecondProcess(t *testing.T) {
	newPairedHome(t)
	startRole(t, "server", "--listen", "127.0.0.1:0")
	expectFailure(t, cli.ExitFailure, "mpbond is already running", "--socket", "server", "--listen", "127.0.0.1:0")
}

func TestMissingOrBrokenFiles(t *testing.T) {
	dir := newPairedHome(t)
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range []string{"server", "primary", "helper"} {
		write("bad.toml", "listn = 'x'\n", 0o600)
		expectFailure(t, cli.ExitUsage, `bad.toml:1: unknown setting "listn"`, "", role, "--config",
			filepath.Join(dir, "bad.toml"))
		write("bad.toml", "\n[[[", 0o600)
		expectFailure(t, cli.ExitUsage, "bad.toml:2", "quotes around text", role, "--config",
			filepath.Join(dir, "bad.toml"))
		expectFailure(t, cli.ExitFailure, "no such file", "path", role, "--config", filepath.Join(dir, "none.toml"))
	}
	write("bad.toml", "max_streams = 'many'\n", 0o600)
	expectFailure(t, cli.ExitUsage, "bad.toml:1: max_streams", "quotes around text", "server", "--config",
		filepath.Join(dir, "bad.toml"))
	expectFailure(t, cli.ExitUsage, "everything", "192.168.7.0/24", "server", "--allow", "everything")
	expectFailure(t, cli.ExitUsage, "unknown scheduler", "scheduler", "server", "--scheduler", "best")

	trust := filepath.Join(dir, "trust.toml")
	good, err := os.ReadFile(trust)
	if err != nil {
		t.Fatal(err)
	}
	write("trust.toml", string(good), 0o666)
	expectFailure(t, cli.ExitRefused, "open to other users", "chmod 600", "server")
	write("trust.toml", "[[peer]]\nname = 'x'\n", 0o600)
	expectFailure(t, cli.ExitUsage, "has no role", "correct the file", "server")
	write("trust.toml", "", 0o600)
	expectFailure(t, cli.ExitUsage, "no server is trusted", "mpbond trust add", portlessPrimary...)
	write("device.key", "nonsense", 0o600)
	expectFailure(t, cli.ExitUsage, "no PEM block", "mpbond keygen", "server")
}

func TestMissingKernelFeature(t *testing.T) {
	dir := newPairedHome(t)
	for _, args := range [][]string{
		{"server", "--listen", "127.0.0.1:0", "--congestion", "warp"},
		append(portlessPrimary[:len(portlessPrimary):len(portlessPrimary)], "--pipe", "127.0.0.1:0", "--congestion",
			"warp"),
		append(portlessPrimary[:len(portlessPrimary):len(portlessPrimary)], "--congestion", "warp"),
	} {
		expectFailure(t, cli.ExitUsage, `congestion control "warp"`, "this kernel has: ", args...)
	}
	for _, hop := range []string{"pipe", "hs"} {
		if err := os.WriteFile(filepath.Join(dir, "helper.toml"), []byte(hop+"_congestion = 'warp'\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		expectFailure(t, cli.ExitUsage, `congestion control "warp"`, "this kernel has: ", "helper")
	}
}

// startRole starts a role and waits until its status socket answers. When the test ends it stops
// the role and checks that it ends without error.
func startRole(t *testing.T, args ...string) (cmd *exec.Cmd, log *safeBuffer) {
	t.Helper()
	cmd, log = newProcess(args...), &safeBuffer{}
	cmd.Stderr = log
	awaitStarted(t, cmd, args[0], log)
	return cmd, log
}

func awaitStarted(t *testing.T, cmd *exec.Cmd, role string, log fmt.Stringer) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		stop := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil || !stop.Stop() {
			t.Errorf("%q ended with %v:\n%s", cmd.Args[1:], err, log)
		}
	})
	awaitStatus(t, role, log, func(api.Status) bool { return true })
}

// awaitStatus asks a role for its status until right accepts it.
func awaitStatus(t *testing.T, role string, log fmt.Stringer, right func(api.Status) bool) {
	t.Helper()
	c := client.New(api.SocketPath(role))
	defer c.Close()
	waittest.UntilSuccess(t, func() error {
		s, err := c.Status(t.Context(), false)
		if err == nil && right(s) {
			return nil
		}
		return fmt.Errorf("status of %s: %+v, %w:\n%s", role, s, err, log)
	})
}

// safeBuffer is the log of a running program.
type safeBuffer struct{ clitest.LockedBuffer }

// awaitText waits until the log contains a text.
func (s *safeBuffer) awaitText(t *testing.T, words string) {
	t.Helper()
	waittest.UntilSuccess(t, func() error {
		if log := s.String(); !strings.Contains(log, words) {
			return fmt.Errorf("it does not say %q:\n%s", words, log)
		}
		return nil
	})
}

// TestFullDisk checks that a role runs on if its log or trace cannot be written.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	newPairedHome(t)
	_, log := startRole(t, "server", "--listen", "127.0.0.1:0", "--trace", "/dev/full")
	quietly := newProcess(append(portlessPrimary[:len(portlessPrimary):len(portlessPrimary)], "--trace",
		"/dev/full")...)
	quietly.Stderr = full // all of its log is lost
	awaitStarted(t, quietly, "primary", log)
	expectFailure(t, cli.ExitUsage, "/nowhere/", "--trace", "server", "--listen", "127.0.0.1:0", "--trace",
		"/nowhere/trace")
}

// TestGarbageAtTheAppsDoors checks that proxy and status socket answer garbage with an error and go
// on.
func TestGarbageAtTheAppsDoors(t *testing.T) {
	newPairedHome(t)
	_, log := startRole(t, "primary", "--proxy", "127.0.0.1:0", "--transparent", "0", "--pipe", "")
	var proxy string
	awaitStatus(t, "primary", log, func(s api.Status) bool { proxy = s.HTTP; return true })
	for _, c := range []struct{ network, addr, said, answer string }{
		{"tcp", proxy, "\x00\x01\x02\x03\x04\x05\r\n\r\n", ""},
		{"tcp", proxy, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ""},
		{"tcp", proxy, "\x05\x00", "\x05\xff"}, // SOCKS5 without a way to log in
		{"tcp", proxy, "FROBNICATE\r\n\r\n", "400"},
		{"tcp", proxy, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "this is a proxy"},
		{"unix", api.SocketPath("primary"), "\x00\x01\x02\r\n\r\n", "400"},
		{"unix", api.SocketPath("primary"), "GET /frob HTTP/1.0\r\n\r\n", "404"},
		{"unix", api.SocketPath("primary"), "GET /" + strings.Repeat("x", 100_000) + " HTTP/1.0\r\n\r\n", "4"},
	} {
		conn, err := net.Dial(c.network, c.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, c.said) // the answer may come before all of it
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
		b, err := io.ReadAll(conn)
		var n net.Error
		if !strings.Contains(string(b), c.answer) || errors.As(err, &n) && n.Timeout() {
			t.Errorf("%.20q at the %s door: %.200q, %v", c.said, c.network, b, err)
		}
		conn.Close()
	}
	awaitStatus(t, "primary", log, func(s api.Status) bool { return s.Role == "primary" })
}

// TestFallback checks that a proxy that others can reach does not connect directly unless
// configured, and never to this device itself.
func TestFallback(t *testing.T) {
	here, _ := listenOnFreePort(t)
	yes, no := true, false
	for _, c := range []struct {
		listen  string
		wanted  *bool
		on, own bool
	}{
		{"", nil, true, true}, {"127.0.0.1:0", nil, true, true}, {"127.0.0.1:0", &no, false, false},
		{":0", nil, false, false}, {":0", &no, false, false}, {":0", &yes, true, false},
	} {
		a, err := openAppListeners(primary.Config{Proxy: c.listen})
		if err != nil {
			t.Fatal(err)
		}
		if a.proxy != nil {
			defer a.proxy.Close()
		}
		dial := newFallbackDialer(primary.Config{Direct: c.wanted}, a)
		if (dial != nil) != c.on {
			t.Errorf("proxy at %q: on is %v", c.listen, dial != nil)
			continue
		}
		_, port, _ := net.SplitHostPort(here)
		for _, host := range []string{"127.0.0.1", "0.0.0.0", "localhost", "::ffff:127.0.0.1"} {
			if dial == nil {
				break
			}
			conn, err := dial(t.Context(), "tcp", net.JoinHostPort(host, port))
			if err == nil {
				conn.Close()
			}
			if (err == nil) != c.own {
				t.Errorf("proxy at %q, to %s: %v", c.listen, host, err)
			}
		}
	}
}

// TestReload checks that each role rereads the trust file on SIGHUP, and keeps the last one if it
// is invalid.
func TestReload(t *testing.T) {
	dir := newPairedHome(t)
	for _, args := range [][]string{{"server", "--listen", "127.0.0.1:0"}, portlessPrimary,
		{"helper", "--name", "phone"}} {
		cmd, log := startRole(t, args...)
		hangup := func() {
			t.Helper()
			if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
		hangup()
		log.awaitText(t, `msg="trust file reread" devices=3`)
		path := filepath.Join(dir, "trust.toml")
		good, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte("[[[peer"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		hangup()
		log.awaitText(t, "trust file not reread, using the last one")
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		awaitStatus(t, args[0], log, func(s api.Status) bool { return s.Role == args[0] })
	}
	trust, err := identity.OpenTrust(filepath.Join(dir, "trust.toml"))
	if err != nil || len(trust.Peers()) != 3 {
		t.Errorf("%v, %v", trust.Peers(), err)
	}
}

// TestStatusOfAWaitingHelper checks that the status says why a helper has no pipe.
func TestStatusOfAWaitingHelper(t *testing.T) {
	newPairedHome(t)
	_, log := startRole(t, "helper", "--name", "phone")
	awaitStatus(t, "helper", log, func(s api.Status) bool {
		return s.Name == "phone" && s.Helper != nil && strings.Contains(s.Helper.LastError, "refused") &&
			strings.Contains(s.Helper.LastError, "is mpbond running")
	})
	if code, out, errs := runProgram(t, "status"); code != cli.ExitOK || !strings.Contains(out, "refused") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}
