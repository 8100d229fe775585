// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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
	switch name {
	case "relay", "relay:copy":
		return &relayScheme{copyBytes: name == "relay:copy"}, nil
	case "mptcp":
		return &mptcpScheme{}, nil
	case "mptcp:own":
		return &mptcpScheme{noHelpers: true, ownLinks: true}, nil
	case "mptcp:direct":
		return &mptcpScheme{noHelpers: true}, nil
	case "mptcp:direct:subflows=2":
		return &mptcpScheme{noHelpers: true, secondSubflow: true}, nil
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
		if link, is := strings.CutPrefix(variant, "own:first="); is {
			return &mptcpScheme{noHelpers: true, ownLinks: true, firstLink: link}, nil
		}
		if strings.HasPrefix(variant, "ratio=") {
			return parseRatioScheme(variant)
		}
		if n, is, err := parseHelpersOption(variant); is {
			return &mptcpScheme{maxHelpers: n}, err
		}
	}
	return nil, fmt.Errorf("unknown scheme %q (single[:HELPER|:if=LINK], relay[:copy], "+
		"mptcp[:own[:first=LINK]|:direct[:subflows=2]|:helpers=N|:ratio=P[/P…]], combine[:CHUNK], mpbond[:OPTION…], "+
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

// mptcpScheme is tethering with the kernel's MPTCP, as in Kibbutz: helpers are NAT
// routers, and MPTCP runs end to end between primary and web, with one subflow through each helper.
type mptcpScheme struct {
	noHelpers      bool             // no helpers
	secondSubflow  bool             // a second direct subflow
	ownLinks       bool             // one subflow by each further direct link
	firstLink      string           // by which connections begin; "": the one that routes choose
	maxHelpers     int              // 0: all helpers take part
	countersBefore map[string]int64 // the primary's MPTCP counters at the start
}

// expectedJoins returns how many subflows join the first one.
func (k *mptcpScheme) expectedJoins(t *Topology) int64 {
	switch {
	case k.ownLinks:
		return int64(len(t.linksBetween("primary", "server")) - 1)
	case k.secondSubflow:
		return 1
	case k.noHelpers:
		return 0
	}
	return int64(len(t.firstHelpers(k.maxHelpers)))
}

// Start sets up the helpers and the primary's endpoints.
func (k *mptcpScheme) Start(ctx context.Context, b *Bench) error {
	if err := k.addEndpoints(ctx, b); err != nil {
		return err
	}
	for _, n := range []string{"primary", "web"} {
		if _, err := b.Run(ctx, n, "ip", "mptcp", "limits", "set", "subflow", "8", "add_addr_accepted",
			"0"); err != nil {
			return err
		}
	}
	if err := b.StartWeb(ctx, "mptcpize", "run"); err != nil {
		return err
	}
	var err error
	k.countersBefore, err = k.readMPTCPCounters(ctx, b)
	return err
}

// addEndpoints adds the endpoints from which subflows join.
func (k *mptcpScheme) addEndpoints(ctx context.Context, b *Bench) error {
	t := b.Lab.Topology
	if k.secondSubflow {
		own, link, err := secondAddress(t)
		if err != nil {
			return err
		}
		return b.runCommands(ctx, [][]string{
			{"primary", "ip", "address", "add", own + "/24", "dev", link},
			{"primary", "ip", "mptcp", "endpoint", "add", own, "dev", link, "subflow"},
		})
	}
	if k.ownLinks {
		return b.addExtraEndpoints(ctx, k.firstLink)
	}
	if k.noHelpers {
		return nil
	}
	if err := b.tetherHelpers(ctx); err != nil {
		return err
	}
	for _, h := range t.firstHelpers(k.maxHelpers) {
		pipe := t.linkBetween("primary", h)
		mine, err := t.Addr("primary", pipe)
		if err != nil {
			return err
		}
		if _, err := b.Run(ctx, "primary", "ip", "mptcp", "endpoint", "add", mine.String(), "dev", pipe,
			"subflow"); err != nil {
			return err
		}
	}
	return nil
}

// secondAddress returns a further address for the primary's direct link, in the same network.
func secondAddress(t *Topology) (addr, link string, err error) {
	link = t.linkBetween("primary", "server")
	own, err := t.Addr("primary", link)
	if err != nil {
		return "", "", err
	}
	b := own.As4()
	b[3] ^= 0x80
	return netip.AddrFrom4(b).String(), link, nil
}

func (*mptcpScheme) Client(b *Bench, t Transfer) []string {
	if t.Video != nil || t.App != nil && t.App.Browser == "" {
		return append(b.FetchCommand(t), "--mptcp") // mptcpize has no effect on a static program
	}
	return append([]string{"mptcpize", "run"}, b.FetchCommand(t)...)
}

// Subflows may take maxJoinTime to join, and joinRoundTrips of the slowest path. Shorter transfers
// may end without them. Where links change, the kernel may have to repeat a join: after 1, 3 and 7
// s. Where they lose packets, it may give up.
const (
	maxJoinTime      = time.Second
	changingJoinTime = 10 * time.Second
	joinRoundTrips   = 4
)

// joinTimeLimit returns how long subflows may take to join. ok is false if they need not join at
// all.
func joinTimeLimit(t *Topology) (limit time.Duration, ok bool) {
	slowest, most := time.Duration(0), maxJoinTime
	for _, name := range t.Links() {
		l := t.Link[name]
		if !l.Shaped() {
			continue
		}
		rtt := time.Duration(0)
		for _, dir := range []Direction{Uplink, Downlink} {
			p, err := l.Program(dir)
			if err != nil || p.Base.Loss > 0 {
				return 0, false
			}
			if len(p.Tracks) > 0 {
				most = changingJoinTime
			}
			rtt += p.Base.Delay
		}
		slowest = max(slowest, rtt)
	}
	return most + joinRoundTrips*2*slowest, true // of at most two links
}

// Verify fails unless the connection was MPTCP and its other subflows joined. A fall-back to TCP
// would look like slow MPTCP.
func (k *mptcpScheme) Verify(ctx context.Context, b *Bench, r *Result) error {
	after, err := k.readMPTCPCounters(ctx, b)
	if err != nil {
		return err
	}
	diff := func(name string) int64 { return after[name] - k.countersBefore[name] }
	joined, want := diff("MPJoinSynAckRx"), k.expectedJoins(b.Lab.Topology)
	r.Notes = map[string]any{"mptcp_joined": joined}
	n := diff("MPCapableSYNACKRX")
	limit, must := joinTimeLimit(b.Lab.Topology)
	fallbacks, err := checkFallbacks(diff, n, r.App != nil && !must)
	if err != nil {
		return err
	}
	if n < 1 || n > 1 && r.App == nil {
		return fmt.Errorf("mptcp: MPTCP was not used (%d handshakes; net.mptcp.enabled? mptcpize?)", n)
	}
	if r.App != nil { // connections may be short, and how many there are depends on times
		r.Notes["mptcp_connections"], r.Notes["mptcp_fallbacks"] = n, fallbacks
		if joined == 0 && must && r.Seconds > limit.Seconds() {
			return fmt.Errorf("mptcp: no subflow joined in %.1f s", r.Seconds)
		}
		return nil
	}
	if joined > want || joined < want && must && r.Seconds > limit.Seconds() {
		return fmt.Errorf("mptcp: %d subflows joined, not %d", joined, want)
	}
	return nil
}

// maxFallbackShare: of many connections over links that lose packets, one in that many may fall back
// to TCP. The kernel gives up MPTCP if the first packets of a connection are lost.
const maxFallbackShare = 10

// checkFallbacks returns how many of n connections fell back to TCP, by the kernel's counters. It fails
// if these are too many: none may if the links lose nothing.
func checkFallbacks(diff func(name string) int64, n int64, lossy bool) (fallbacks int64, err error) {
	kind, allowed := "", int64(0)
	if lossy {
		allowed = n / maxFallbackShare
	}
	for _, name := range []string{"MPCapableFallbackSYNACK", "MPCapableSYNTXDrop", "MPCapableDataFallback",
		"InfiniteMapRx", "MPFallbackTokenInit"} {
		if d := diff(name); d > 0 {
			fallbacks, kind = fallbacks+d, name
		}
	}
	if fallbacks > allowed {
		err = fmt.Errorf("mptcp: MPTCP fell back to TCP in %d of %d connections (%s)", fallbacks, n, kind)
	}
	return fallbacks, err
}

// readMPTCPCounters reads the primary's MPTCP counters.
func (*mptcpScheme) readMPTCPCounters(ctx context.Context, b *Bench) (map[string]int64, error) {
	out, err := b.Run(ctx, "primary", "cat", "/proc/net/netstat")
	if err != nil {
		return nil, err
	}
	c := map[string]int64{}
	var names []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "MPTcpExt:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i := 1; i < min(len(f), len(names)); i++ {
			c[names[i]], _ = strconv.ParseInt(f[i], 10, 64)
		}
	}
	if !slices.Contains(names, "MPJoinSynAckRx") {
		return nil, fmt.Errorf("mptcp: this kernel has no MPTCP counters (is MPTCP built in?)")
	}
	return c, nil
}

func (*mptcpScheme) Capabilities() capabilities {
	return capabilities{video: true, items: true, apps: true}
}

func (k *mptcpScheme) Stop(ctx context.Context, b *Bench) error {
	t := b.Lab.Topology
	var all []error
	if k.secondSubflow {
		own, link, err := secondAddress(t)
		all = append(all, err, b.runCommands(ctx, [][]string{{"primary", "ip", "address", "del", own + "/24", "dev",
			link}}))
	}
	if k.ownLinks {
		all = append(all, b.removeExtraRoutes(ctx, k.firstLink))
	}
	if !k.noHelpers {
		all = append(all, b.untetherHelpers(ctx))
	}
	_, err := b.Run(ctx, "primary", "ip", "mptcp", "endpoint", "flush")
	return errors.Join(append(all, err)...)
}
