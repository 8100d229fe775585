// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ManCommand returns the hidden command that prints the man page, for packaging.
func ManCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man", Short: "print the man page", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root := cmd.Root()
			var b bytes.Buffer
			fmt.Fprintf(&b, ".TH %s 1 \"\" \"%[2]s %[3]s\"\n.SH NAME\n%[2]s \\- %[4]s\n.SH SYNOPSIS\n.B %[2]s\n"+
				".I COMMAND\n",
				escapeRoff(strings.ToUpper(root.Name())), escapeRoff(root.Name()), escapeRoff(Version),
				escapeRoff(root.Short))
			b.WriteString(".SH DESCRIPTION\n")
			writeManText(&b, root.Long)
			b.WriteString(".SH OPTIONS OF EVERY COMMAND\n")
			root.PersistentFlags().VisitAll(func(f *pflag.Flag) { writeManFlag(&b, f) })
			b.WriteString(".SH COMMANDS\n")
			EachCommand(root, func(c *cobra.Command) {
				fmt.Fprintf(&b, ".SS %s\n", escapeRoff(strings.TrimPrefix(c.UseLine(), root.Name()+" ")))
				writeManText(&b, strings.ToUpper(c.Short[:1])+c.Short[1:]+".\n\n"+c.Long)
				for _, g := range FlagGroups(c) {
					if g.Heading != "Flags" {
						fmt.Fprintf(&b, ".PP\n.I %s\n", escapeRoff(g.Heading))
					}
					for _, f := range g.Flags {
						writeManFlag(&b, f)
					}
				}
				b.WriteString(".PP\n")
				writeManText(&b, c.Example)
			})
			b.WriteString(".SH EXAMPLES\n")
			writeManText(&b, root.Example)
			_, err := cmd.OutOrStdout().Write(b.Bytes())
			return err
		},
	}
}

// EachCommand calls f for each visible command below c, in the order of the help text.
func EachCommand(c *cobra.Command, f func(*cobra.Command)) {
	for _, c := range c.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		f(c)
		EachCommand(c, f)
	}
}

// writeManText writes help text as paragraphs. Indented lines keep their form.
func writeManText(b *bytes.Buffer, text string) {
	fixed := false
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		if indented := strings.HasPrefix(line, " "); indented != fixed {
			fixed = indented
			b.WriteString(IfElse(fixed, ".PP\n.nf\n", ".fi\n"))
		}
		b.WriteString(IfElse(line == "", ".PP", escapeRoff(line)) + "\n")
	}
	if fixed {
		b.WriteString(".fi\n")
	}
}

// writeManFlag writes the entry of a flag.
func writeManFlag(b *bytes.Buffer, f *pflag.Flag) {
	if f.Hidden || f.Name == "help" {
		return
	}
	value, usage := pflag.UnquoteUsage(f)
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", escapeRoff(strings.TrimSpace("--"+f.Name+" "+value)), escapeRoff(usage))
	if _, on := map[string]bool{"": true, "[]": true, "false": true}[f.DefValue]; !on {
		fmt.Fprintf(b, "(%s)\n", escapeRoff(f.DefValue))
	}
}

// escapeRoff escapes text for troff, so that no line of it is a request.
func escapeRoff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
