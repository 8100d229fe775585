// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
)

// quietExit is an error with an exit code of its own.
type quietExit struct{ silent bool }

func (quietExit) Error() string  { return "command failed" }
func (quietExit) ExitCode() int  { return 42 }
func (e quietExit) Silent() bool { return e.silent }

// failingProgram returns a program with one command, "work", that ends with err.
func failingProgram(err error) Program {
	return Program{Name: "prog", Short: "test", Commands: func() []*cobra.Command {
		work := &cobra.Command{Use: "work FILE", Args: cobra.ExactArgs(1),
			RunE: func(*cobra.Command, []string) error { return err }}
		work.Flags().Bool("json", false, "")
		return []*cobra.Command{work, VersionCommand("prog")}
	}}
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		args string
		err  error
		code int
		text string
	}{
		{"work x", nil, ExitOK, ""},
		{"work x", errors.New("it broke"), ExitFailure, "prog: it broke\n"},
		{"work x", fault.New(fault.Permission, errors.New("no rights"), "be root"), ExitRefused,
			"prog: no rights\nhint: be root\n"},
		{"work x", UsageError("bad %s", "size"), ExitUsage, "see `prog work --help`"},
		{"work x --json", fault.New(fault.Timeout, errors.New("late"), "wait"), ExitNoConnection,
			`{"error":"late","kind":"timeout","hint":"wait"}`},
		{"work x", quietExit{false}, 42, "prog: command failed\n"},
		{"work x", quietExit{true}, 42, ""},
		{"work x", &ExitStatus{Code: 7}, 7, ""},
		{"work", nil, ExitUsage, "FILE is missing: write `prog work FILE"},
		{"work x y", nil, ExitUsage, `"y" is one argument too many`},
		{"play", nil, ExitUsage, "unknown command"},
		{"work x --log-level loud", nil, ExitUsage, "debug, info"},
		{"work x --log-format xml", nil, ExitUsage, "text or json"},
		{"version", nil, ExitOK, "prog dev"},
		{"--version", nil, ExitOK, "prog dev"},
	} {
		var out, errs bytes.Buffer
		code := failingProgram(c.err).Run(t.Context(), strings.Fields(c.args), &out, &errs)
		if code != c.code || !strings.Contains(out.String()+errs.String(), c.text) || c.text == "" && errs.Len() > 0 {
			t.Errorf("%s, %v: code %d, want %d and %q:\n%s%s", c.args, c.err, code, c.code, c.text, &out, &errs)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs bytes.Buffer
	if code := failingProgram(context.Canceled).Run(ctx, []string{"work", "x"}, &errs, &errs); code != ExitInterrupted {
		t.Errorf("code %d: %s", code, &errs)
	}
}

func TestExitCodesAreInRange(t *testing.T) {
	for kind, code := range exitCodes {
		if code <= ExitFailure || code > ExitIntegrity {
			t.Errorf("%q has exit code %d", kind, code)
		}
	}
}

func TestVersionJSON(t *testing.T) {
	var out bytes.Buffer
	failingProgram(nil).Run(t.Context(), []string{"version", "--json"}, &out, &out)
	var b Build
	if err := json.Unmarshal(out.Bytes(), &b); err != nil || b.Version != Version || b.Go == "" || b.System == "" {
		t.Errorf("%s: %v", &out, err)
	}
}

// TestSteps checks that a step replaces the one before, in one line, and that nothing is
// written unless the output is a terminal.
func TestSteps(t *testing.T) {
	var b bytes.Buffer
	s := NewSteps(&b)
	s.Show("x")
	s.Clear()
	if b.Len() > 0 {
		t.Errorf("%q without a terminal", &b)
	}
	s.enabled = true
	s.Show("one\n\x1b[2J")
	s.Show(strings.Repeat("é", 100))
	s.Clear()
	if want := "\r\x1b[Kone??[2J\r\x1b[K" + strings.Repeat("é", maxStep) + "\r\x1b[K"; b.String() != want {
		t.Errorf("%q, want %q", &b, want)
	}
}

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöü", 2, "ä…"}, {"abc", 0, ""}} {
		if got := Truncate(c.s, c.n); got != c.want {
			t.Errorf("%q to %d: %q, want %q", c.s, c.n, got, c.want)
		}
	}
}

// TestNothingForTheTerminal: an error in which text of others is shown without what
// controls a terminal, and as JSON with escapes.
func TestNothingForTheTerminal(t *testing.T) {
	err := fault.New(fault.Other, errors.New("a\x1b[2Jb\nc\u009bd ü\u202e\u2028"), "see \u202e")
	for _, c := range []struct {
		asJSON bool
		want   string
	}{
		{false, "p: a?[2Jb\nc?d ü??\nhint: see ?\n"},
		{true, `{"error":"a\u001b[2Jb\nc\u009bd ü\u202e\u2028","kind":"other","hint":"see \u202e"}` + "\n"},
	} {
		var b strings.Builder
		if (Program{Name: "p"}).printErrorAndHint(&b, err, c.asJSON); b.String() != c.want {
			t.Errorf("%q, want %q", b.String(), c.want)
		}
	}
}

func TestRoff(t *testing.T) {
	if got := escapeRoff(".it's a \\-\n'b"); got != `\&.it's a \e\- 'b` {
		t.Error(got)
	}
}

// TestMovedCommand: an old command fails, and its hint is a line that a shell takes.
func TestMovedCommand(t *testing.T) {
	commands := func() []*cobra.Command { return []*cobra.Command{MovedCommand("lab", "p-lab", nil)} }
	p := Program{Name: "p", Commands: commands}
	var out, errs bytes.Buffer
	code := p.Run(t.Context(), []string{"lab", "run", "--get", "it's 2 MB", ""}, &out, &errs)
	const want = "p: `p lab` is `p-lab` now\nhint: write `p-lab run --get 'it'\\''s 2 MB' ''`\n"
	if code != ExitUsage || errs.String() != want || out.Len() > 0 {
		t.Errorf("code %d: %s%s", code, &out, &errs)
	}
}
