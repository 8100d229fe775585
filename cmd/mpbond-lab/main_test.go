// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"mpbond/internal/cli/clitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runProgram runs the program in this process.
func runProgram(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return clitest.Run(t, thisProgram(), args...)
}

func TestMan(t *testing.T) { clitest.CheckMan(t, thisProgram()) }

// buildPrograms builds all programs into a directory and returns the path of mpbond-lab.
func buildPrograms(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := append(append([]string{"build", "-o", dir + "/"}, flags...), "mpbond/cmd/...")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "mpbond-lab")
}
