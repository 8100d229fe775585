// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagGroup is a group of a command's flags under a heading, in the order of the help text.
type FlagGroup struct {
	Heading string
	Flags   []*pflag.Flag
}

// flagGroupsKey is the annotation of a command with its groups: a line for each, with the heading
// and the names of the flags, separated by tabs.
const flagGroupsKey = "flag-groups"

// GroupFlags adds a group to the help text of c: the flags with these names, which must exist. Flags
// in no group come last.
func GroupFlags(c *cobra.Command, heading string, names ...string) {
	for _, name := range names {
		if c.Flags().Lookup(name) == nil {
			panic(c.Name() + " has no flag --" + name)
		}
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[flagGroupsKey] += heading + "\t" + strings.Join(names, "\t") + "\n"
}

// FlagGroups returns the visible flags of c itself in groups. A command without groups has one,
// "Flags", in alphabetical order.
func FlagGroups(c *cobra.Command) []FlagGroup {
	var groups []FlagGroup
	grouped := map[string]bool{}
	for line := range strings.Lines(c.Annotations[flagGroupsKey]) {
		names := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		g := FlagGroup{Heading: names[0]}
		for _, name := range names[1:] {
			g.Flags, grouped[name] = append(g.Flags, c.Flags().Lookup(name)), true
		}
		groups = append(groups, g)
	}
	rest := FlagGroup{Heading: IfElse(len(groups) > 0, "Other flags", "Flags")}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !grouped[f.Name] {
			rest.Flags = append(rest.Flags, f)
		}
	})
	if len(rest.Flags) > 0 {
		groups = append(groups, rest)
	}
	return groups
}

// flagStart matches the first line of a flag in the help text.
var flagStart = regexp.MustCompile(`^  (-.,|   ) --`)

// optionalValue matches a flag whose value may be left out: NAME[=" "], with a space as the value
// that stands for none.
var optionalValue = regexp.MustCompile(` (\S+)\[=" "\]`)

// describeFlags returns the groups with their headings. The texts of all flags begin in the same
// column.
func describeFlags(groups []FlagGroup) string {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.SortFlags = false
	var headings []string // of each flag, "" unless it is the first of its group
	for _, g := range groups {
		for i, f := range g.Flags {
			all.AddFlag(f)
			headings = append(headings, IfElse(i == 0, "\n"+g.Heading+":\n", ""))
		}
	}
	var b strings.Builder
	for line := range strings.Lines(all.FlagUsagesWrapped(helpWidth)) {
		if flagStart.MatchString(line) {
			b.WriteString(headings[0])
			headings = headings[1:]
		}
		b.WriteString(optionalValue.ReplaceAllString(line, "[=$1]    ")) // of the same width
	}
	return b.String()
}
