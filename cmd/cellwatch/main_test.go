// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"go.uber.org/goleak"

	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runCellwatch runs the program in this process.
func runCellwatch(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return clitest.Run(t, cellwatchProgram(), args...)
}

func TestCommandsAreComplete(t *testing.T) {
	clitest.CheckCommands(t, cellwatchProgram(), clitest.Excuses{
		"cellwatch grid": "a picture for people: watch --json has what is in it",
	}, clitest.Excuses{
		"cellwatch capacity": "a file or socket",
		"cellwatch check":    "files or sockets",
		"cellwatch stats":    "a file or socket",
		"cellwatch grid":     "a file or socket",
		"cellwatch scan":     "a file or socket",
		"cellwatch watch":    "files or sockets",
	})
}

func TestMan(t *testing.T) { clitest.CheckMan(t, cellwatchProgram()) }

func TestExitCodes(t *testing.T) {
	for args, want := range map[string]int{"version": cli.ExitOK, "frobnicate": cli.ExitUsage, "stats": cli.ExitUsage,
		"grid": cli.ExitUsage} {
		if code, out, errs := runCellwatch(t, args); code != want {
			t.Errorf("%s: code %d, want %d: %s%s", args, code, want, out, errs)
		}
	}
}

// TestReference checks that docs/reference/cellwatch.md matches the commands.
func TestReference(t *testing.T) {
	clitest.CheckCommandReference(t, "../../docs/reference/cellwatch.md", cellwatchProgram())
}
