// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/base/waittest"
	"mpbond/internal/cli"
)

// TestDemo runs the demo to its end, and interrupts it at several moments. Nothing may be left each
// time.
func TestDemo(t *testing.T) {
	t.Parallel() // it judges no figures
	program := buildPrograms(t)
	runtime, err := os.MkdirTemp("", "demo") // short: a socket's path has 108 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(runtime)
	for _, after := range []time.Duration{0, 30 * time.Millisecond, 150 * time.Millisecond, 600 * time.Millisecond,
		2500 * time.Millisecond} {
		cmd := exec.Command(program, "demo", "--size", "512KB", "--links", "8/10/5")
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+runtime)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if after > 0 {
			time.Sleep(after)                      // any moment of its run will do
			_ = cmd.Process.Signal(syscall.SIGINT) // it may have ended
		}
		err := cmd.Wait()
		switch code := cmd.ProcessState.ExitCode(); {
		case strings.Contains(stderr.String(), "lacks what the lab needs"):
			t.Skip(strings.TrimSpace(stderr.String()))
		case after == 0 && code != cli.ExitOK:
			t.Errorf("%v: %s", err, stderr.String())
		case after == 0:
			for _, row := range []string{`single .* 100 % +0 % .* right`, `mptcp .* right`,
				`mpbond .* \d+ % +\d+ % .* right`, `fluid bound of all links +0.43 s`} {
				if !regexp.MustCompile(row).MatchString(stdout.String()) {
					t.Errorf("no row like %q in\n%s", row, stdout.String())
				}
			}
		case code != cli.ExitInterrupted && code != cli.ExitOK && code != -1: // -1: before it handled signals
			t.Errorf("after %v: %v: %s", after, err, stderr.String())
		}
		awaitNothingLeft(t, fmt.Sprintf("after %v", after), runtime)
	}
}

// awaitNothingLeft waits until runtime is empty and no process refers to it.
func awaitNothingLeft(t *testing.T, after, runtime string) {
	t.Helper()
	waittest.UntilSuccess(t, func() error {
		left := ""
		if files, _ := os.ReadDir(runtime); len(files) > 0 {
			left = fmt.Sprint(files)
		}
		environ, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range environ {
			if b, _ := os.ReadFile(file); bytes.Contains(b, []byte("XDG_RUNTIME_DIR="+runtime)) {
				name, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
				left += " " + strings.ReplaceAll(string(name), "\x00", " ")
			}
		}
		if left != "" {
			return fmt.Errorf("%s: left: %s", after, left)
		}
		return nil
	})
}
