// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mpbond/internal/cli"
)

// killWithParent makes the kernel end cmd when the test binary ends before it.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// TestMissingRights runs the program as a user without rights.
func TestMissingRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it starts processes as another user")
	}
	dir := newPairedHome(t)
	nobody := func(args ...string) *exec.Cmd {
		cmd := newProcess(args...)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		cmd.Dir = "/"
		return cmd
	}
	// Only its owner can reach the test binary.
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.MkdirTemp("", "mpbond")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(public)
	binary := filepath.Join(public, "mpbond")
	if err := errors.Join(os.Chmod(public, 0o755), os.WriteFile(binary, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(public, "home")
	run := func(code int, says, hint, home string, args ...string) {
		t.Helper()
		cmd := nobody(args...)
		cmd.Path = binary
		cmd.Env = append(cmd.Env, "MPBOND_HOME="+home)
		checkFailure(t, cmd, code, says, hint)
	}
	// A key that belongs to another user.
	theirs := filepath.Join(public, "theirs")
	key, err := os.ReadFile(filepath.Join(dir, "device.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(theirs, 0o755), os.WriteFile(filepath.Join(theirs, "device.key"), key,
		0o600)); err != nil {
		t.Fatal(err)
	}
	run(cli.ExitRefused, "permission denied", "run mpbond as the user who made the key", theirs, "server")
	// Their own files, and ports or rules that need root.
	if err := errors.Join(os.Mkdir(own, 0o700), os.Chown(own, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"device.key", "trust.toml"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(own, name), data, 0o600)
		}
		if err == nil {
			err = os.Chown(filepath.Join(own, name), 65534, 65534)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	low, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err == nil && strings.TrimSpace(string(low)) == "1024" {
		run(cli.ExitRefused, "permission denied", "over 1023", own, "server", "--listen", "127.0.0.1:443")
		run(cli.ExitRefused, "permission denied", "ports below 1024 need root", own,
			append(portlessPrimary, "--proxy", "127.0.0.1:443")...)
	} else {
		t.Logf("ordinary users may take low ports here: %s", low)
	}
	_, port := listenOnFreePort(t)
	run(exitRunFailed, "permitted", "root", own, "run", "--redirect-port", port, "--", "true")
}

func TestRunWithoutPrimary(t *testing.T) {
	newPairedHome(t)
	cmd := newProcess("run", "--", "true")
	checkFailure(t, cmd, exitRunFailed, "not running", "start `mpbond primary`")
}
