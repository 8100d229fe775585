package clitest

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mpbond/internal/cli"
)

var update = flag.Bool("update", false, "write the files of reference")

// CheckReference checks that the file of reference holds got, and writes it with -update.
func CheckReference(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what types and commands say now: run `make reference`", file)
	}
}

// CheckCommandReference checks the file that describes the commands of p and nothing else.
func CheckCommandReference(t *testing.T, file string, p cli.Program) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Reference: %s\n\nMade by `make reference` from the commands: change these.\n\n%s\n\n", p.Name, p.Long)
	DescribeCommands(&b, p)
	CheckReference(t, file, b.Bytes())
}

// DescribeCommands writes the visible commands of p with their flags, in the order of the
// help text.
func DescribeCommands(b *bytes.Buffer, p cli.Program) {
	cobra.EnableCommandSorting = false
	root, _ := p.Root(io.Discard)
	fmt.Fprintf(b, "## Commands\n\nOf every command: %s.\n\n", flagNames(root.PersistentFlags()))
	cli.EachCommand(root, func(c *cobra.Command) { describeCommand(b, c) })
	b.Truncate(len(bytes.TrimRight(b.Bytes(), "\n")))
	b.WriteByte('\n')
}

func describeCommand(b *bytes.Buffer, c *cobra.Command) {
	fmt.Fprintf(b, "### %s\n\n%s.\n\n", c.CommandPath(), strings.ToUpper(c.Short[:1])+c.Short[1:])
	if c.Runnable() && !c.HasSubCommands() {
		fmt.Fprintf(b, "    %s\n\n", c.UseLine())
	}
	if c.Long != "" {
		fmt.Fprintf(b, "%s\n\n", strings.TrimSpace(c.Long))
	}
	if c.Example != "" {
		for line := range strings.Lines(strings.Trim(c.Example, "\n")) {
			fmt.Fprintf(b, "  %s", line)
		}
		b.WriteString("\n\n")
	}
	flags := map[string]*pflag.Flag{}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			flags[f.Name] = f
		}
	})
	if len(flags) == 0 {
		return
	}
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		f := flags[name]
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		def := f.DefValue
		if def == "[]" || def == "false" && f.NoOptDefVal != "" || def == "0" && !strings.Contains(usage, "0:") {
			def = ""
		}
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(b, "| `--%s` | %s | %s |\n", TableCell(name), def, TableCell(usage))
	}
	b.WriteString("\n")
}

func flagNames(flags *pflag.FlagSet) string {
	var list []string
	flags.VisitAll(func(f *pflag.Flag) {
		list = append(list, fmt.Sprintf("`--%s`, %s (`%s`)", f.Name, f.Usage, f.DefValue))
	})
	return strings.Join(list, "; ")
}

// TableCell keeps text from ending a table's cell.
func TableCell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
