// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
)

func TestCommandsAreComplete(t *testing.T) {
	clitest.CheckCommands(t, mpbondLabProgram(), clitest.Excuses{
		"mpbond-lab permit serve":   "it runs on: permit status --json tells, and --log-format json logs",
		"mpbond-lab up":             "it prints nothing: ls --json tells",
		"mpbond-lab exec":           "what it prints is its command's",
		"mpbond-lab set":            "as up",
		"mpbond-lab start":          "as up",
		"mpbond-lab rewind":         "as up",
		"mpbond-lab down":           "as up",
		"mpbond-lab record":         "it writes files",
		"mpbond-lab demo":           "a picture for people: run --json has what is in it",
		"mpbond-lab fleet":          "as demo: mpbond fleet status --json has what is in it",
		"mpbond-lab permit":         "it has subcommands",
		"mpbond-lab exp":            "it has subcommands",
		"mpbond-lab exp ages":       "it prints warnings, or writes files",
		"mpbond-lab exp worker":     "it runs on: exp run --json has the results",
		"mpbond-lab exp queue":      "it has subcommands",
		"mpbond-lab exp queue drop": "it prints nothing: exp queue list --json shows the runs that remain",
	}, clitest.Excuses{
		"mpbond-lab permit ask":     "an address",
		"mpbond-lab permit status":  "an address",
		"mpbond-lab up":             "a file",
		"mpbond-lab exp ages":       "files",
		"mpbond-lab exp queue drop": "names in an engine, which completion does not ask",
		"mpbond-lab run":            "a file",
		"mpbond-lab bound":          "a file",
		"mpbond-lab flow":           "a file",
		"mpbond-lab replay":         "a file",
		"mpbond-lab exec":           "a node of a lab, and a command",
		"mpbond-lab record":         "a network of a lab",
		"mpbond-lab set":            "a link of a lab, and its properties",
	})
}

// Shells complete IDs of rows.
func TestRowsAreCompleted(t *testing.T) {
	if _, out, _ := runProgram(t, "__complete", "exp", "run", ""); !strings.Contains(out, "\nm3") ||
		!strings.Contains(out, "all\n") {
		t.Errorf("rows: %s", out)
	}
}

func TestMisusedLab(t *testing.T) {
	links := []string{"--links", "8/10/5"}
	size := append(links, "--get", "1MB")
	for _, c := range []struct {
		command string
		args    []string
		says    string
	}{
		{"up", nil, "--links"},
		{"up", []string{"--links", "8/10"}, "needs two rates"},
		{"up", []string{"--house", "8/10"}, "needs two rates"}, // the former name
		{"up", append(links, "example.toml"), "one of them"},
		{"up", []string{"/none.toml"}, "no such file"},
		{"run", links, "--get BYTES or --put BYTES"},
		{"run", append(size, "--put", "1MB"), "--get BYTES or --put BYTES"},
		{"run", append(links, "--get", "much"), `size "much"`},
		{"run", append(size, "--reps", "0"), "over 0"},
		{"run", append(size, "--scheme", "warp"), `unknown scheme "warp"`},
		{"run", append(size, "--at", "soon"), `--at "soon"`},
		{"run", append(size, "--at", "1s:hs9.rate=1Mbit/s"), `no link "hs9"`},
		{"bound", append(links, "--bytes", "much"), `size "much"`},
		{"calibrate", []string{"--rates", "fast"}, `rate "fast"`},
		{"demo", []string{"--size", "much"}, `size "much"`},
		{"dual", []string{"--links", "5"}, "two rates"},
		{"dual", []string{"--reps", "0"}, "over 0"},
		{"exp", []string{"run", "p10", "--queue", "nats://127.0.0.1:1", "--jobs", "2"}, "--queue and --jobs exclude"},
		{"exp", []string{"run", "p10", "--ca", "ca.pem"}, "--queue is missing"},
		{"exp", []string{"worker"}, "--queue is missing"},
		{"exp", []string{"worker", "--queue", "nats://127.0.0.1:1", "--idle", "-1s"}, "--idle must be at least 0"},
		{"flow", []string{"--length", "10"},
			`invalid argument "10" for "--length" flag: write a time with its unit, like 60s`},
	} {
		code, out, errs := runProgram(t, append([]string{c.command}, c.args...)...)
		if code != cli.ExitUsage || !strings.Contains(errs, c.says) {
			t.Errorf("%s %q: code %d, want %d and %q: %s%s", c.command, c.args, code, cli.ExitUsage, c.says, out, errs)
		}
	}
}

// TestReference: docs/reference/mpbond-lab.md is what the commands say.
func TestReference(t *testing.T) {
	clitest.CheckCommandReference(t, "../../docs/reference/mpbond-lab.md", mpbondLabProgram())
}
