// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/base/pace"
	"mpbond/base/waittest"
)

// TestIdleProgramsSleep checks that programs with an idle subflow, and with an open stream that carries nothing,
// hardly ever wake up. Something that runs every second, at a time of its own, would wake them too often.
func TestIdleProgramsSleep(t *testing.T) {
	if testing.Short() {
		t.Skip("it lasts a minute")
	}
	if !inNamespace(t) { // others' changes of the network would wake them
		return
	}
	homes := map[string]string{"server": t.TempDir(), "primary": t.TempDir(), "helper": t.TempDir()}
	keys := map[string]identity.PublicKey{}
	for role, home := range homes {
		key, err := identity.CreateKey(filepath.Join(home, "device.key"))
		if err != nil {
			t.Fatal(err)
		}
		keys[role] = key.Public()
	}
	const server, pipes, proxy = "127.0.0.1:7600", "127.0.0.1:7602", "127.0.0.1:1080" // free in this namespace
	trust := func(role, peer, addr string) {
		list, err := identity.OpenTrust(filepath.Join(homes[role], "trust.toml"))
		if err == nil {
			p := identity.Peer{Name: peer, Roles: []identity.Role{identity.Role(peer)}, Key: keys[peer]}
			if addr != "" {
				p.Addresses = []string{addr}
			}
			err = list.Add(p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	trust("server", "primary", "")
	trust("primary", "server", server)
	trust("primary", "helper", "")
	trust("helper", "primary", pipes)
	trust("helper", "server", server)
	programs := map[string]*exec.Cmd{}
	var log *safeBuffer
	for _, args := range [][]string{
		{"server", "--listen", server, "--allow", "127.0.0.0/8"},
		{"helper"},
		{"primary", "--pipe", pipes, "--proxy", proxy, "--transparent", "0"},
	} {
		t.Setenv("MPBOND_HOME", homes[args[0]])
		programs[args[0]], log = startRole(t, args...)
	}
	awaitStatus(t, "primary", log, func(s api.Status) bool { return len(s.Bonds) == 1 && len(s.Bonds[0].Subflows) == 2 })
	requireSleep(t, "no stream", programs)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", l.Addr())
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	requireSleep(t, "an open stream", programs)
}

// TestNetworkChangeTicks checks that a new address makes tasks with the longest intervals run.
func TestNetworkChangeTicks(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	r := role{clock: pace.New()}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.watchNetwork(ctx); close(ended) }()
	tick := r.clock.NewTicker(time.Hour)
	defer tick.Stop()
	n := 0
	waittest.UntilSuccess(t, func() error { // the watch may not have begun
		n++
		addr := fmt.Sprintf("10.98.0.%d/24", n)
		if out, err := exec.Command("ip", "addr", "add", addr, "dev", "v0").CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", addr, err, out)
		}
		select {
		case <-tick.C:
			return nil
		case <-time.After(time.Second):
			return errors.New("no tick")
		}
	})
	cancel()
	<-ended
}

// requireSleep checks that each of some programs soon wakes up a few times only in sleepWindow.
func requireSleep(t *testing.T, state string, programs map[string]*exec.Cmd) {
	t.Helper()
	// An idle program ticks once in sleepWindow. A tick wakes several threads, one each second would do so more
	// than maxWakeups times.
	const sleepWindow, maxWakeups, tries = 10 * time.Second, 25, 4
	counts := map[string][]int{}
	for range tries { // it may just have done something
		awake := false
		for role, n := range countWakeupsWithin(t, sleepWindow, programs) {
			counts[role], awake = append(counts[role], n), awake || n > maxWakeups
		}
		if !awake {
			t.Logf("%s: %v wake-ups in %v", state, counts, sleepWindow)
			return
		}
	}
	t.Errorf("%s: %v wake-ups in %v, want at most %d", state, counts, sleepWindow, maxWakeups)
}

// countWakeupsWithin lets time pass and returns how often the threads of each program waited within it.
func countWakeupsWithin(t *testing.T, d time.Duration, programs map[string]*exec.Cmd) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for role, cmd := range programs {
		counts[role] = -countWakeups(t, cmd.Process.Pid)
	}
	time.Sleep(d)
	for role, cmd := range programs {
		counts[role] += countWakeups(t, cmd.Process.Pid)
	}
	return counts
}

// countWakeups returns how often the threads of a process have waited for something so far.
func countWakeups(t *testing.T, pid int) (sum int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	for _, name := range files {
		status, _ := os.ReadFile(name) // a thread may have ended
		for line := range bytes.Lines(status) {
			if n, ok := bytes.CutPrefix(line, []byte("voluntary_ctxt_switches:")); ok {
				waits, err := strconv.Atoi(string(bytes.TrimSpace(n)))
				if err != nil {
					t.Fatal(err)
				}
				sum += waits
			}
		}
	}
	return sum
}
