// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Group is a heading of the overview of commands, with the names of its commands in order.
type Group struct {
	Title    string
	Commands []string
}

// TopicCommand returns a hidden command that only has a text, for `PROGRAM help NAME`.
func TopicCommand(name, short, text string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: text, Hidden: true}
}

// printOverview writes the help text of a program with groups: one screen, each command on
// one line. It replaces cobra's text, which lists one long column and all flags.
func (p Program) printOverview(w io.Writer, root *cobra.Command) {
	about, _, _ := strings.Cut(p.Long, "\n\n")
	fmt.Fprintf(w, "%s\n\nUsage: %s COMMAND [ARGUMENTS] [FLAGS]\n\n", about, p.Name)
	width := 0
	for _, g := range p.Groups {
		for _, name := range g.Commands {
			width = max(width, len(name))
		}
	}
	for _, g := range p.Groups {
		fmt.Fprintln(w, g.Title)
		for _, name := range g.Commands {
			if c, _, err := root.Find([]string{name}); err == nil && c != root {
				fmt.Fprintf(w, "  %-*s  %s\n", width, c.Name(), c.Short)
			}
		}
	}
	var topics []string
	for _, c := range root.Commands() {
		if c.Hidden && !c.Runnable() {
			topics = append(topics, c.Name())
		}
	}
	fmt.Fprintf(w, "\nFlags and examples: %s COMMAND --help. Topics: %[1]s help %[2]s\n", p.Name,
		strings.Join(topics, "|"))
}
