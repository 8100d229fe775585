// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
)

// attacker is a process that attacks until it is stopped.
type attacker struct {
	t       *testing.T
	cmd     interface{ Wait() error }
	in      io.Closer
	out     *bufio.Reader
	stopped bool
}

// startAttack starts an attacker in a node and returns it when it has printed its first line.
func (n *network) startAttack(t *testing.T, node string, args ...string) (a *attacker, first string) {
	t.Helper()
	cmd := n.Command(node, append([]string{os.Args[0], "lab"}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	a = &attacker{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() { a.stop() })
	if first, err = a.out.ReadString('\n'); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return a, strings.TrimSpace(first)
}

// stop ends the attacker and returns its last output.
func (a *attacker) stop() string {
	a.t.Helper()
	if a.stopped {
		return ""
	}
	a.stopped = true
	a.in.Close()
	last, _ := io.ReadAll(a.out)
	if err := a.cmd.Wait(); err != nil {
		a.t.Error(err)
	}
	return strings.TrimSpace(string(last))
}

// newVictim makes a network with a server that is started by the command prefix within. Its node
// helper1 has the key of a tablet that the server trusts as a second primary.
func newVictim(t *testing.T, within []string) *network {
	t.Helper()
	n := &network{Network: rig.New(t, rig.Options{Lab: rig.Triangle(t, "-/-/-")})}
	n.exchangeTrust()
	key, err := identity.LoadKey(filepath.Join(n.Dir, "helper1", "device.key"))
	if err != nil {
		t.Fatal(err)
	}
	trust, err := identity.OpenTrust(filepath.Join(n.Dir, "server", "trust.toml"))
	if err == nil {
		err = trust.Add(identity.Peer{Name: "tablet", Roles: []identity.Role{identity.RolePrimary}, Key: key.Public()})
	}
	if err != nil {
		t.Fatal(err)
	}
	n.startServer(within...)
	return n
}

// startPrimary starts the primary and returns how long it took until its first subflow was up.
func (n *network) startPrimary() time.Duration {
	n.Helper()
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop")
	return n.awaitSubflow()
}

// awaitSubflow waits until the primary has a subflow and returns how long that took.
func (n *network) awaitSubflow() time.Duration {
	n.Helper()
	began := time.Now()
	rig.Eventually(n, func() error {
		up, err := n.Up()
		if err == nil && len(up) == 0 {
			err = errors.New("no subflow is up")
		}
		return err
	})
	return time.Since(began)
}

// residentMemory returns the resident memory of a process.
func residentMemory(t *testing.T, p *rig.Process) unit.Bytes {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Cmd.Process.Pid))
	var size, resident unit.Bytes
	if err == nil {
		_, err = fmt.Sscan(string(b), &size, &resident)
	}
	if err != nil {
		t.Fatal(err)
	}
	return resident * unit.Bytes(os.Getpagesize())
}

// processorTime returns the processor time that a process has used.
func processorTime(t *testing.T, p *rig.Process) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	var user, system time.Duration
	f := strings.Fields(rest)
	_, _ = fmt.Sscan(f[11], &user) // in ticks of 10 ms: proc(5)
	_, _ = fmt.Sscan(f[12], &system)
	return (user + system) * 10 * time.Millisecond
}

// TestExhaustedServer: an enrolled device sends one byte into each page of its streams, or every
// other byte backwards. It neither kills a server with 600 MB nor ends the streams of another
// device. The server gives the memory back within 30 s.
func TestExhaustedServer(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	const limit = 600 * unit.MB
	for _, kind := range []string{"pages", "gaps"} {
		t.Run(kind, func(t *testing.T) {
			n := newVictim(t, rig.NewMemoryGroup(t, limit))
			n.startPrimary()
			const size = 40 * mb
			download := func() time.Duration {
				t.Helper()
				began := time.Now()
				n.download(size)
				return time.Since(began)
			}
			alone := download()
			server := n.processIn("server")
			peakMemory(t, server)
			before, used := residentMemory(t, server), processorTime(t, server)
			running := n.startTransfer(fmt.Sprintf("http://web/%d?paced", mb)) // takes some 4 s
			<-running.begun
			a, sent := n.startAttack(t, "helper1", "exhaust", kind)
			beside := download()
			cost := processorTime(t, server) - used
			after := download()
			peak := peakMemory(t, server)
			if <-running.done; running.err != nil {
				t.Errorf("the concurrent transfer: %v %s", running.err, &running.errs)
			}
			a.stop()
			t.Logf("%s; peak memory %v of %v, %v before; %v of processor time while another device loaded 40 MB, "+
				"which took %v alone, %v during the attack, %v after it",
				sent, peak, limit, before, cost, alone.Round(time.Millisecond), beside.Round(time.Millisecond),
				after.Round(time.Millisecond))
			if peak > limit*9/10 {
				t.Errorf("the server used %v of %v", peak, limit)
			}
			if *slowTests {
				time.Sleep(30 * time.Second) // what is in use after this time is the result
				if now := residentMemory(t, server); now > before+64*unit.MB {
					t.Errorf("%v in use 30 s after the end, %v before", now, before)
				} else {
					t.Logf("%v in use 30 s after the end", now)
				}
			}
		})
	}
}

// TestIdleConnectionsOfAProgram: 5,000 idle connections of a local program keep no other app out of
// the proxy and end no stream.
func TestIdleConnectionsOfAProgram(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newVictim(t, nil)
	n.startPrimary()
	running := n.startTransfer(fmt.Sprintf("http://web/%d?paced", mb))
	<-running.begun
	idle, _ := n.startAttack(t, "primary", "idle", "5000", "127.0.0.1:1080")
	want, _ := rig.Sum(rig.Noise(mb))
	for _, way := range [][]string{{"--socks5-hostname", "127.0.0.1:1080"}, {"-x", "http://127.0.0.1:1080"},
		{"-p", "-x", "http://127.0.0.1:1080"}} {
		began := time.Now()
		x := n.startAppTransfer(0, append([]string{"curl", "-sSfN", "--max-time", "60", fmt.Sprintf("http://web/%d", mb)},
			way...)...)
		if <-x.done; x.err != nil || x.got != want {
			t.Errorf("%v: %s, %v %s", way, x.got, x.err, &x.errs)
		}
		t.Logf("%v: 1 MB took %v", way, time.Since(began).Round(time.Millisecond))
	}
	if <-running.done; running.err != nil {
		t.Errorf("the earlier transfer: %v %s", running.err, &running.errs)
	}
	idle.stop()
	if lines := strings.Count(n.processIn("primary").Log.String(), "not taken"); lines > 2 {
		t.Errorf("%d lines in the log", lines)
	}
}

// startCrowd starts a crowd with this number of addresses in node helper1.
func (n *network) startCrowd(t *testing.T, addresses int, kinds ...string) *attacker {
	t.Helper()
	by, err := n.Lab.Topology.Addr("helper1", "hs1")
	if err != nil {
		t.Fatal(err)
	}
	// the node owns all these addresses
	n.Must("helper1", "ip", "route", "replace", "local", "10.78.0.0/24", "dev", "lo")
	n.Must("server", "ip", "route", "replace", "10.78.0.0/24", "via", by.String())
	a, _ := n.startAttack(t, "helper1", append([]string{"crowd", "10.78.0.1", fmt.Sprint(addresses)}, kinds...)...)
	return a
}

// TestCrowdsAndANewPrimary: a primary that the server has never seen joins at its first try while
// strangers hold all places. It also returns when the server has restarted.
func TestCrowdsAndANewPrimary(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	for _, c := range []struct {
		addresses int
		kind      string
	}{{24, "silent"}, {240, "silent"}, {240, "half"}} {
		t.Run(fmt.Sprintf("%d %s", c.addresses, c.kind), func(t *testing.T) {
			n := newVictim(t, nil)
			crowd := n.startCrowd(t, c.addresses, c.kind)
			took := n.startPrimary()
			n.download(mb)
			if log := n.processIn("primary").Log.String(); strings.Contains(log, "no subflow") {
				t.Errorf("the first try failed: %s", log)
			}
			n.signalProcess("server", syscall.SIGKILL) // a primary that was connected before returns too
			rig.Eventually(t, func() error {
				up, err := n.Up()
				if err == nil && len(up) > 0 {
					err = errors.New("the primary has not noticed")
				}
				return err
			})
			n.startServer()
			again := n.awaitSubflow()
			n.download(mb)
			if took > 10*time.Second || again > 10*time.Second { // 0.3 s on a quiet machine
				t.Errorf("the first subflow was up after %v, and after a restart of the server %v", took, again)
			}
			t.Logf("%d x 64 connections: the first subflow was up %v after the primary's start, "+
				"and %v after a restart of the server; %s",
				c.addresses, took.Round(time.Millisecond), again.Round(time.Millisecond), crowd.stop())
		})
	}
}

// TestUnknownCallersInTheLog: whatever strangers do, the server logs only a few lines a minute.
func TestUnknownCallersInTheLog(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newVictim(t, nil)
	server := n.processIn("server")
	before := strings.Count(server.Log.String(), "\n")
	kinds := []string{"silent", "byte", "half", "stranger", "garbage", "oversize", "hello", "version", "pair"}
	began := time.Now()
	crowd := n.startCrowd(t, 60, kinds...)
	if *slowTests {
		time.Sleep(time.Minute) // the length of the attack
	}
	n.startPrimary()
	n.download(mb)
	last, took := crowd.stop(), time.Since(began)
	log := server.Log.String()
	lines := strings.Count(log, "\n") - before - 1 // without the primary's line
	t.Logf("%d lines in %v; %s", lines, took.Round(time.Second), last)
	if minutes := int(took/time.Minute) + 1; lines < 3 || lines > minutes*len(kinds) {
		t.Errorf("%d lines: %s", lines, log)
	}
}
