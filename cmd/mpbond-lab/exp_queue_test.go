// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"strings"
	"testing"

	"mpbond/base/natstest"
	"mpbond/internal/cli"
	"mpbond/lab/queue"
)

// The commands for a queue list a run that was given up, by its row, and remove it.
func TestExpQueue(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	t.Parallel() // it judges no figures
	program := buildPrograms(t)
	q, err := queue.Open(t.Context(), queue.Options{URLs: c.URLs()})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for _, key := range []string{"RUNA.1", "RUNA.2", "RUNB.1"} {
		if err := q.Submit(t.Context(), "v0", key, []byte(`{"row":"p10","cell":"`+key+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		args string
		code int
		says []string
	}{
		{"list", cli.ExitOK, []string{"RUNA", "RUNB", "p10", "v0"}},
		{"list --json", cli.ExitOK, []string{`"run":"RUNA","row":"p10","open":2,"finished":0`}},
		{"drop", cli.ExitUsage, []string{"name the runs"}},
		{"drop RUNA --all", cli.ExitUsage, []string{"name the runs"}},
		{"drop RUN", cli.ExitFailure, []string{`no run "RUN"`, "hint: "}},
		{"drop RUNA", cli.ExitOK, []string{"RUNA is removed"}},
		{"drop RUNA", cli.ExitFailure, []string{`no run "RUNA"`}},
		{"list --json", cli.ExitOK, []string{`[{"run":"RUNB"`}},
		{"drop --all", cli.ExitOK, []string{"RUNB is removed"}},
		{"list", cli.ExitOK, []string{"the queue is empty"}},
	} {
		p := startLab(t, program, append([]string{"exp", "queue"}, append(strings.Fields(x.args), "--queue",
			c.URLs())...)...)
		code := p.end(0)
		out := p.stdout.String() + p.stderr.String()
		if code != x.code {
			t.Errorf("%s: %d, want %d: %s", x.args, code, x.code, out)
		}
		for _, text := range x.says {
			if !strings.Contains(out, text) {
				t.Errorf("%s: no %q in %s", x.args, text, out)
			}
		}
	}
}
