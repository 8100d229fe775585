// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestRunCleansUp(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	_, port := startEdge(t)
	// While it runs it has rules and a cgroup.
	cmd, out := startApp(t, port, "echo ready; echo $$; exec sleep 60")
	pid := readPID(t, out)
	defer syscall.Kill(pid, syscall.SIGKILL)
	if l := listLeftovers(t); strings.Count(l, "mpbond") != 2 {
		t.Errorf("while it runs: %q", l)
	}
	if b, err := exec.Command("nft", "list", "ruleset").CombinedOutput(); err != nil ||
		!bytes.Contains(b, []byte("redirect to :"+strconv.Itoa(int(port)))) {
		t.Errorf("nft shows %s, %v", b, err)
	}
	// If it is killed the kernel removes the rules, and the next run removes the empty cgroup.
	cmd.Process.Kill()
	cmd.Process.Wait()
	if l := listLeftovers(t); strings.Contains(l, "table") || strings.Count(l, "mpbond") != 1 {
		t.Errorf("after a kill, while the app goes on: %q", l)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	io.ReadAll(out) // ends with the app
	runOutput(t, portFlag(port), "--", "true")
	if l := listLeftovers(t); l != "" {
		t.Errorf("after the next run: %s", l)
	}
	// The cgroup is removed even if a process outlives the app.
	said, code := runOutput(t, portFlag(port), "--", "sh", "-c", "sleep 60 >/dev/null 2>&1 </dev/null & echo $!")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	defer syscall.Kill(readPID(t, strings.NewReader(said)), syscall.SIGKILL)
	if l := listLeftovers(t); l != "" {
		t.Errorf("with a process that goes on: %s", l)
	}
}

func readPID(t *testing.T, r io.Reader) int {
	t.Helper()
	var pid int
	if _, err := fmt.Fscanln(r, &pid); err != nil || pid <= 1 {
		t.Fatalf("pid %d, %v", pid, err)
	}
	return pid
}

// TestLeftoversAreRemoved checks that `mpbond doctor --repair` and the start of any role remove
// what a killed `mpbond run` left: an ip rule and a cgroup.
func TestLeftoversAreRemoved(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	t.Setenv("MPBOND_HOME", t.TempDir())
	_, port := startEdge(t)
	leave := func() {
		t.Helper()
		cmd, out := startApp(t, port, "echo ready; echo $$; exec sleep 60")
		pid := readPID(t, out)
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = io.ReadAll(out) // ends with the app
		if l := listLeftovers(t); !strings.Contains(l, "mpbond-run-") || !strings.Contains(l, "fwmark") {
			t.Fatalf("%q is left: this test tests nothing", l)
		}
	}
	leave()
	out, _ := newProcess("doctor", "--repair", "--no-rate").CombinedOutput() // fails: there is no key
	if s := string(out); !strings.Contains(s, "removed: routing rule and routes of a killed mpbond run (process ") ||
		!strings.Contains(s, "removed: control group /") {
		t.Errorf("doctor says %s", s)
	}
	if l := listLeftovers(t); l != "" {
		t.Errorf("after doctor --repair: %s", l)
	}
	if out, _ := newProcess("doctor", "--repair", "--no-rate").CombinedOutput(); !strings.Contains(string(out),
		"killed processes left nothing") {
		t.Errorf("the second time doctor says %s", out)
	}
	leave()
	server := newProcess("server", "--listen", "127.0.0.1:0")
	log, err := server.StderrPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), "removed leftovers of a killed mpbond") {
	}
	if l := listLeftovers(t); l != "" || lines.Err() != nil {
		t.Errorf("after the start of a server: %q, %v", l, lines.Err())
	}
	_ = server.Process.Signal(syscall.SIGTERM)
	_, _ = io.Copy(io.Discard, log)
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}
