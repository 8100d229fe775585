package main

import (
	"bytes"
	"fmt"
	"strings"

	"mpbond/internal/cli"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand prints the man page, for packaging.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man", Short: "print the man page", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root := cmd.Root()
			var b bytes.Buffer
			fmt.Fprintf(&b, ".TH MPBOND 1 \"\" \"mpbond %s\"\n.SH NAME\nmpbond \\- %s\n.SH SYNOPSIS\n.B mpbond\n.I COMMAND\n", roff(cli.Version), roff(root.Short))
			b.WriteString(".SH DESCRIPTION\n")
			manText(&b, root.Long)
			b.WriteString(".SH OPTIONS OF EVERY COMMAND\n")
			root.PersistentFlags().VisitAll(func(f *pflag.Flag) { manFlag(&b, f) })
			b.WriteString(".SH COMMANDS\n")
			eachCommand(root, func(c *cobra.Command) {
				fmt.Fprintf(&b, ".SS %s\n", roff(strings.TrimPrefix(c.UseLine(), "mpbond ")))
				manText(&b, strings.ToUpper(c.Short[:1])+c.Short[1:]+".\n\n"+c.Long)
				c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { manFlag(&b, f) })
				b.WriteString(".PP\n")
				manText(&b, c.Example)
			})
			b.WriteString(".SH EXAMPLES\n")
			manText(&b, root.Example)
			_, err := cmd.OutOrStdout().Write(b.Bytes())
			return err
		},
	}
}

// eachCommand calls f with each command that people see below c, in the order of
// the help text.
func eachCommand(c *cobra.Command, f func(*cobra.Command)) {
	for _, c := range c.Commands() {
		switch c.Name() {
		case "help", "completion", "lab", "exp": // the last two are for developers: docs/lab.md, docs/exp.md
			continue
		}
		if c.Hidden {
			continue
		}
		f(c)
		eachCommand(c, f)
	}
}

// manText writes help text: paragraphs, and indented lines as they are.
func manText(b *bytes.Buffer, text string) {
	fixed := false
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		if indented := strings.HasPrefix(line, " "); indented != fixed {
			fixed = indented
			b.WriteString(cli.IfElse(fixed, ".PP\n.nf\n", ".fi\n"))
		}
		b.WriteString(cli.IfElse(line == "", ".PP", roff(line)) + "\n")
	}
	if fixed {
		b.WriteString(".fi\n")
	}
}

// manFlag writes what a flag is for.
func manFlag(b *bytes.Buffer, f *pflag.Flag) {
	if f.Hidden || f.Name == "help" {
		return
	}
	value, usage := pflag.UnquoteUsage(f)
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace("--"+f.Name+" "+value)), roff(usage))
	if _, on := map[string]bool{"": true, "[]": true, "false": true}[f.DefValue]; !on {
		fmt.Fprintf(b, "(%s)\n", roff(f.DefValue))
	}
}

// roff is text as troff has it: no line of it is a request.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
