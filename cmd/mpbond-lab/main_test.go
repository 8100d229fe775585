// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"mpbond/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	var err error
	if programDir, err = os.MkdirTemp("", "mpbond-lab"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(programDir)
		os.Exit(code)
	}))
}

// runProgram runs the program in this process.
func runProgram(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return clitest.Run(t, mpbondLabProgram(), args...)
}

func TestMan(t *testing.T) { clitest.CheckMan(t, mpbondLabProgram()) }

// buildPrograms builds all programs, with version v1, and returns the path of mpbond-lab. All tests
// share one build.
func buildPrograms(t *testing.T) string {
	t.Helper()
	if out, err := builtPrograms(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(programDir, "mpbond-lab")
}

var programDir string // of this run of all tests

var builtPrograms = sync.OnceValues(func() ([]byte, error) {
	return exec.Command("go", "build", "-ldflags", "-s -w -X mpbond/internal/cli.Version=v1", "-o", programDir+"/",
		"mpbond/cmd/...").CombinedOutput()
})
