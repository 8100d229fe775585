// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"errors"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"mpbond/internal/cli"
)

func TestDocumentedCommands(t *testing.T) {
	text := "Use `mpbond get --onload` or `other get`.\n\n" +
		"    laptop$ mpbond pair A 'B C' && sudo HOME=/x mpbond primary   # comment\n" +
		"    mpbond-lab get\n\n```\nbin/mpbond get \\\n    URL >file\n```\n"
	want := []documentedCommand{{[]string{"get", "--onload"}, false}, {[]string{"pair", "A", "B C"}, true},
		{[]string{"primary"}, true},
		{[]string{"get", "URL"}, true}}
	got := documentedCommands(text, "mpbond")
	if !slices.EqualFunc(got, want, func(a, b documentedCommand) bool {
		return slices.Equal(a.args, b.args) &&
			a.whole == b.whole
	}) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCheckCommand(t *testing.T) {
	p := cli.Program{Name: "p", Commands: func() []*cobra.Command {
		c := &cobra.Command{Use: "get URL", Args: cobra.ExactArgs(1),
			RunE: func(*cobra.Command, []string) error { return errors.ErrUnsupported }}
		c.Flags().Bool("onload", false, "")
		return []*cobra.Command{c}
	}}
	for _, c := range []struct {
		documentedCommand
		ok bool
	}{
		{documentedCommand{[]string{"get", "--onload", "URL"}, true}, true},
		{documentedCommand{[]string{"get", "--onload"}, false}, true},
		{documentedCommand{[]string{"get", "…"}, false}, true},
		{documentedCommand{[]string{"get"}, true}, false},
		{documentedCommand{[]string{"get", "--onlaod", "URL"}, true}, false},
		{documentedCommand{[]string{"get", "--onlaod"}, false}, false},
		{documentedCommand{[]string{"put"}, false}, false},
	} {
		if err := checkCommandLine(p, c.documentedCommand); (err == nil) != c.ok {
			t.Errorf("%q, whole %v: %v", c.args, c.whole, err)
		}
	}
}
