// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/app"
)

// Scheme is one way for the primary to reach the web node. A bench starts it for each transfer, so
// that every transfer is a cold one, and stops it afterwards.
type Scheme interface {
	// Start brings up what the scheme needs: rules in nodes and programs (Bench.Spawn). When it
	// returns, a transfer may begin.
	Start(ctx context.Context, b *Bench) error
	// Client returns the command that makes the transfer, to run in the primary. It is usually
	// b.FetchCommand with additions.
	Client(b *Bench, t Transfer) []string
	// Verify is called after the transfer and before Stop. It fails unless the scheme was really in
	// use, and adds further values to the result.
	Verify(ctx context.Context, b *Bench, r *Result) error
	// Stop undoes Start except for programs, which the bench stops.
	Stop(ctx context.Context, b *Bench) error
	// Capabilities returns which transfers the client supports besides single whole files.
	Capabilities() capabilities
}

// capabilities are the abilities of a scheme's client.
type capabilities struct {
	video     bool // plays videos
	items     bool // fetches or sends several items
	apps      bool // plays scripts of apps
	ownReport bool // prints its own report instead of curl's
}

// schemeDefaults implements the optional methods of a Scheme.
type schemeDefaults struct{}

func (schemeDefaults) Verify(context.Context, *Bench, *Result) error { return nil }
func (schemeDefaults) Stop(context.Context, *Bench) error            { return nil }
func (schemeDefaults) Capabilities() capabilities                    { return capabilities{} }

// Transfer is one download or upload of a bench.
type Transfer struct {
	Scheme    string
	Rep       int
	Size      unit.Bytes   // of each stream
	Streams   int          // at least 1
	Items     []unit.Bytes // see RunSpec; then Size is their sum
	Upload    bool
	Unchecked bool // see RunSpec
	Length    time.Duration
	Video     *Video      // played for Length instead
	App       *app.Script // played instead
}

// CanonicalScheme returns the current name of a scheme: mptcp was named kibbutz in earlier
// versions.
func CanonicalScheme(name string) string {
	if base, rest, _ := strings.Cut(name, ":"); base == "kibbutz" {
		return strings.TrimSuffix("mptcp:"+rest, ":")
	}
	return name
}

// newSchemeByName returns the scheme of a name.
func newSchemeByName(name string) (Scheme, error) {
	if name == "relay" || name == "relay:copy" {
		return &relayScheme{copyBytes: name == "relay:copy"}, nil
	}
	switch base, variant, _ := strings.Cut(name, ":"); base {
	case "mpbond":
		return parseMPBondScheme(variant)
	case "onload":
		return parseOnloadScheme(variant)
	case "page":
		if variant == "" {
			return &pageScheme{}, nil
		}
	case "single":
		if link, is := strings.CutPrefix(variant, "if="); is {
			return &singleScheme{link: link}, nil
		}
		return &singleScheme{helper: variant}, nil
	case "combine":
		return parseCombineScheme(variant)
	case "mptcp":
		if strings.HasPrefix(variant, "ratio=") {
			return parseRatioScheme(variant)
		}
		if name != "mptcp:" {
			return parseMPTCPScheme(variant)
		}
	}
	return nil, fmt.Errorf("unknown scheme %q (single[:HELPER|:if=LINK], relay[:copy], "+
		mptcpSyntax+", mptcp:ratio=P[/P…], combine[:CHUNK], mpbond[:OPTION…], "+
		"onload[:SCHEDULER][:helpers=N], page)", name)
}

// singleScheme is curl and nginx over one path alone: the direct one, or that through a helper,
// which is then a NAT router.
type singleScheme struct {
	schemeDefaults
	helper string // "": a direct path
	link   string // of the direct path; "": the one that routes choose
}

// tetherPriority is the priority of the rule that sends everything to the helper.
const tetherPriority = "99"

func (s *singleScheme) Start(ctx context.Context, b *Bench) error {
	if s.link != "" {
		if err := b.routeWebByLink(ctx, s.link); err != nil {
			return fmt.Errorf("single:if=%s: %w", s.link, err)
		}
		return b.StartWeb(ctx)
	}
	if s.helper == "" {
		return b.StartWeb(ctx)
	}
	if !slices.Contains(b.Lab.Topology.Helpers(), s.helper) {
		return fmt.Errorf("single:%s: no such helper (there are %v)", s.helper, b.Lab.Topology.Helpers())
	}
	web, err := b.Lab.Topology.Addr("web", "")
	if err != nil {
		return err
	}
	if err := b.addTetherRoute(ctx, s.helper, tetherPriority); err != nil {
		return err
	}
	if _, err := b.Run(ctx, "primary", "ip", "rule", "add", "to", web.String(), "lookup", tetherPriority, "priority",
		tetherPriority); err != nil {
		return err
	}
	return b.StartWeb(ctx)
}

func (*singleScheme) Client(b *Bench, t Transfer) []string { return b.FetchCommand(t) }

func (*singleScheme) Capabilities() capabilities {
	return capabilities{video: true, items: true, apps: true}
}

func (s *singleScheme) Stop(ctx context.Context, b *Bench) error {
	if s.link != "" {
		return b.removeWebRoute(ctx)
	}
	if s.helper == "" {
		return nil
	}
	return b.removeTetherRoute(ctx, s.helper, tetherPriority)
}

// addTetherRoute makes a helper a NAT router and adds a routing table of the primary through it.
// The scheme's rules decide which packets use the table.
func (b *Bench) addTetherRoute(ctx context.Context, helper, table string) error {
	t := b.Lab.Topology
	hs, pipe := t.linkBetween(helper, "server"), t.linkBetween("primary", helper)
	via, err := t.Addr(helper, pipe)
	if err != nil {
		return err
	}
	rules := fmt.Sprintf("table ip tether { chain out { type nat hook postrouting priority srcnat; oifname %q "+
		"masquerade; }; }", hs)
	return b.runCommands(ctx, [][]string{
		{helper, "nft", rules},
		{helper, "sysctl", "-qw", "net.ipv4.ip_forward=1"},
		{"primary", "ip", "route", "replace", "default", "via", via.String(), "dev", pipe, "table", table},
	})
}

// removeTetherRoute undoes addTetherRoute and removes the rule for the table, which has the same
// priority.
func (b *Bench) removeTetherRoute(ctx context.Context, helper, table string) error {
	return b.runCommands(ctx, [][]string{
		{helper, "nft", "delete", "table", "ip", "tether"},
		{helper, "sysctl", "-qw", "net.ipv4.ip_forward=0"},
		{"primary", "ip", "rule", "del", "priority", table},
		{"primary", "ip", "route", "flush", "table", table},
	})
}

// tetherHelpers makes all helpers NAT routers. Packets from the primary's address on the pipe to a
// helper go through that helper.
func (b *Bench) tetherHelpers(ctx context.Context) error {
	t := b.Lab.Topology
	for i, h := range t.Helpers() {
		mine, err := t.Addr("primary", t.linkBetween("primary", h))
		if err != nil {
			return err
		}
		table := tetherTable(i)
		if err := b.addTetherRoute(ctx, h, table); err != nil {
			return err
		}
		if _, err := b.Run(ctx, "primary", "ip", "rule", "add", "from", mine.String(), "lookup", table, "priority",
			table); err != nil {
			return err
		}
	}
	return nil
}

// untetherHelpers undoes tetherHelpers.
func (b *Bench) untetherHelpers(ctx context.Context) error {
	var all []error
	for i, h := range b.Lab.Topology.Helpers() {
		all = append(all, b.removeTetherRoute(ctx, h, tetherTable(i)))
	}
	return errors.Join(all...)
}

// tetherTable returns the routing table through helper i, which is also the priority of its rule.
func tetherTable(i int) string { return strconv.Itoa(100 + i) }

// runCommands runs commands, each preceded by its node's name, until one fails.
func (b *Bench) runCommands(ctx context.Context, commands [][]string) error {
	for _, c := range commands {
		if _, err := b.Run(ctx, c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}
