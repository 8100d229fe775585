package main

import (
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"mpbond/internal/cli"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestMan: the man page has every command and flag, and no line of text that troff
// takes for a request.
func TestMan(t *testing.T) {
	home(t)
	code, page, errs := mpbond(t, "man")
	if code != cli.ExitOK || errs != "" || !strings.HasPrefix(page, `.TH MPBOND 1 "" "mpbond `) {
		t.Fatalf("code %d: %.100s%s", code, page, errs)
	}
	request := regexp.MustCompile(`^\.(TH|SH|SS|PP|TP|B|I|nf|fi)( |$)`)
	for line := range strings.SplitSeq(page, "\n") {
		if (strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'")) && !request.MatchString(line) {
			t.Errorf("a request: %q", line)
		}
	}
	root, _ := thisProgram().Root(io.Discard)
	eachCommand(root, func(c *cobra.Command) {
		_, text, ok := strings.Cut(page, "\n.SS "+roff(strings.TrimPrefix(c.UseLine(), "mpbond "))+"\n")
		text, _, _ = strings.Cut(text, "\n.SS ")
		if !ok {
			t.Errorf("no %s", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !f.Hidden && !strings.Contains(text, "\n.TP\n.B "+roff("--"+f.Name)) {
				t.Errorf("%s: no --%s", c.CommandPath(), f.Name)
			}
		})
	})
	if got := roff(".it's a \\-\n'b"); got != `\&.it's a \e\- 'b` {
		t.Error(got)
	}
	if _, err := exec.LookPath("groff"); err == nil {
		cmd := exec.Command("groff", "-man", "-ww", "-Tutf8", "-Kutf8", "-z")
		cmd.Stdin = strings.NewReader(page)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff: %v\n%s", err, out)
		}
	}
}
