// SPDX-License-Identifier: Apache-2.0

// Package clitest holds the tests of the command line that all programs of this module share.
package clitest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mpbond/base/waittest"
	"mpbond/internal/cli"
)

// Run runs p in this process and returns its exit code and what it printed. Goroutines of programs
// that run beside it may log to stderr too, because the default logger is shared.
func Run(t testing.TB, p cli.Program, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out bytes.Buffer
	var errs LockedBuffer
	code = p.Run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// LockedBuffer is a buffer that goroutines may use at the same time.
type LockedBuffer struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (b *LockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *LockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Home gives the test its own directory for keys and sockets and returns it.
func Home(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("MPBOND_HOME", dir)
	return dir
}

// Excuses maps commands that lack something, like "mpbond top", to the reason.
type Excuses map[string]string

// CheckCommands checks that every visible command of p has a description and an example, prints
// JSON, and completes arguments that name known things. It also checks that the excuses name
// existing commands that need them.
func CheckCommands(t *testing.T, p cli.Program, withoutJSON, withoutNames Excuses) {
	t.Helper()
	root, _ := p.Root(io.Discard)
	seen := map[string]bool{}
	cli.EachCommand(root, func(c *cobra.Command) {
		path := c.CommandPath()
		seen[path] = true
		if c.Short == "" {
			t.Errorf("%s has no description", path)
		}
		if c.Example == "" && !c.HasSubCommands() {
			t.Errorf("%s has no example", path)
		}
		for line := range strings.SplitSeq(strings.TrimPrefix(c.Example, "\n"), "\n") {
			if line != "" && !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: the example %q is not indented", path, line)
			}
		}
		checkFlagHelp(t, c)
		if _, excused := withoutJSON[path]; (c.Flags().Lookup("json") == nil) != excused {
			t.Errorf("%s needs --json or an excuse, and not both", path)
		}
		_, args, _ := strings.Cut(c.Use, " ")
		if _, excused := withoutNames[path]; (args != "" && c.ValidArgsFunction == nil) != excused {
			t.Errorf("%s %s needs completion of arguments or an excuse, and not both", path, args)
		}
	})
	for _, list := range []Excuses{withoutJSON, withoutNames} {
		for path := range list {
			if !seen[path] {
				t.Errorf("there is no %s", path)
			}
		}
	}
}

// maxUngroupedFlags is how many flags a command may show without groups.
const maxUngroupedFlags = 10

// checkFlagHelp checks the help text of a command's flags: its width, and that many flags are in
// groups.
func checkFlagHelp(t *testing.T, c *cobra.Command) {
	t.Helper()
	usage := c.UsageString()
	if strings.Contains(usage, `[="`) {
		t.Errorf("%s: the help shows the value that stands for none:\n%s", c.CommandPath(), usage)
	}
	groups := cli.FlagGroups(c)
	if len(groups) == 0 {
		return
	}
	_, flags, found := strings.Cut(usage, "\n"+groups[0].Heading+":\n")
	if !found {
		t.Errorf("%s does not show %q:\n%s", c.CommandPath(), groups[0].Heading, usage)
	}
	for line := range strings.SplitSeq(flags, "\n") {
		if n := utf8.RuneCountInString(line); n > 100 {
			t.Errorf("%s: a line of its flags has %d columns: %s", c.CommandPath(), n, line)
		}
	}
	for _, g := range groups {
		if len(groups) == 1 && len(g.Flags) > maxUngroupedFlags {
			t.Errorf("%s has %d flags: show them in groups", c.CommandPath(), len(g.Flags))
		}
		for _, f := range g.Flags {
			if n := strings.Count(flags, "--"+f.Name+" ") + strings.Count(flags, "--"+f.Name+"["); n == 0 {
				t.Errorf("%s does not show --%s", c.CommandPath(), f.Name)
			}
		}
	}
}

// CheckMan checks that the man page of p has every command and flag, and no text that troff takes
// for a request.
func CheckMan(t *testing.T, p cli.Program) {
	t.Helper()
	code, page, errs := Run(t, p, "man")
	if code != cli.ExitOK || errs != "" || !strings.HasPrefix(page, ".TH ") {
		t.Fatalf("code %d: %.100s%s", code, page, errs)
	}
	request := regexp.MustCompile(`^\.(TH|SH|SS|PP|TP|B|I|nf|fi)( |$)`)
	for line := range strings.SplitSeq(page, "\n") {
		if (strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'")) && !request.MatchString(line) {
			t.Errorf("a request: %q", line)
		}
	}
	root, _ := p.Root(io.Discard)
	hyphens := strings.NewReplacer("-", `\-`)
	cli.EachCommand(root, func(c *cobra.Command) {
		_, text, ok := strings.Cut(page, "\n.SS "+hyphens.Replace(strings.TrimPrefix(c.UseLine(),
			root.Name()+" "))+"\n")
		text, _, _ = strings.Cut(text, "\n.SS ")
		if !ok {
			t.Errorf("no %s", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !f.Hidden && !strings.Contains(text, "\n.TP\n.B "+hyphens.Replace("--"+f.Name)) {
				t.Errorf("%s: no --%s", c.CommandPath(), f.Name)
			}
		})
	})
	if _, err := exec.LookPath("groff"); err == nil {
		cmd := exec.Command("groff", "-man", "-ww", "-Tutf8", "-Kutf8", "-z")
		cmd.Stdin = strings.NewReader(page)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff: %v\n%s", err, out)
		}
	}
}

// AwaitText waits until a screen shows all of want.
func AwaitText(t testing.TB, screen tcell.SimulationScreen, want ...string) {
	t.Helper()
	waittest.UntilSuccess(t, func() error {
		width, height := screen.Size()
		var b strings.Builder
		for y := range height {
			for x := 0; x < width; x++ {
				cell, _, _ := screen.Get(x, y)
				b.WriteString(cell)
			}
			b.WriteByte('\n')
		}
		for _, w := range want {
			if !strings.Contains(b.String(), w) {
				return fmt.Errorf("no %q on the screen:\n%s", w, b.String())
			}
		}
		return nil
	})
}

// ReplaceFile replaces the file at path by a rename.
func ReplaceFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}
