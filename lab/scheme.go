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
)

// Scheme is one way for the primary to reach the web node. A bench starts it
// afresh for each transfer (so every transfer is a cold one), and stops it
// afterwards.
type Scheme interface {
	// Start brings up what the scheme needs: rules in nodes, programs
	// (Bench.Spawn). When it returns, a transfer may begin.
	Start(ctx context.Context, b *Bench) error
	// Client returns the command that makes the transfer, to be run in the
	// primary: usually b.Fetch with something before or after.
	Client(b *Bench, t Transfer) []string
	// Verify, after the transfer and before Stop, fails unless the scheme was
	// really at work, and adds to the result what else is worth telling.
	Verify(ctx context.Context, b *Bench, r *Result) error
	// Stop takes back what Start did, except for programs: Bench ends those.
	Stop(ctx context.Context, b *Bench) error
	// Can says for which transfers it has a client, besides whole files one by one.
	Can() abilities
}

// abilities of a scheme's client.
type abilities struct {
	video bool // plays
	items bool // fetches or sends several
	tells bool // is no curl that reports, but tells as mpbond does
}

// bare is of a scheme all that it need not have.
type bare struct{}

func (bare) Verify(context.Context, *Bench, *Result) error { return nil }
func (bare) Stop(context.Context, *Bench) error            { return nil }
func (bare) Can() abilities                                { return abilities{} }

// Transfer is one download (or upload) of a bench.
type Transfer struct {
	Scheme    string
	Rep       int
	Size      unit.Bytes   // of each stream
	Streams   int          // at least 1
	Items     []unit.Bytes // see Plan; then Size is that of all
	Upload    bool
	Unchecked bool // see Plan
	Length    time.Duration
	Video     *Video // is played for Length instead
}

// newScheme finds a scheme by its name.
func newScheme(name string) (Scheme, error) {
	switch name {
	case "relay", "relay:copy":
		return &relayed{copies: name == "relay:copy"}, nil
	case "kibbutz":
		return &kibbutz{}, nil
	case "kibbutz:own":
		return &kibbutz{direct: true, own: true}, nil
	case "kibbutz:direct":
		return &kibbutz{direct: true}, nil
	case "kibbutz:direct:subflows=2":
		return &kibbutz{direct: true, second: true}, nil
	}
	switch base, variant, _ := strings.Cut(name, ":"); base {
	case "mpbond":
		return parseBonded(variant)
	case "onload":
		return parseOnloaded(variant)
	case "page":
		if variant == "" {
			return &paged{}, nil
		}
	case "single":
		return &tethered{helper: variant}, nil
	case "combine":
		return parseCombine(variant)
	case "kibbutz":
		if strings.HasPrefix(variant, "ratio=") {
			return parseSplit(variant)
		}
		if n, is, err := helpersOption(variant); is {
			return &kibbutz{most: n}, err
		}
	}
	return nil, fmt.Errorf("unknown scheme %q (single[:HELPER], relay[:copy], kibbutz[:own|:direct[:subflows=2]|:helpers=N|:ratio=P[/P…]], combine[:CHUNK], mpbond[:OPTION…], onload[:SCHEDULER][:helpers=N], page)", name)
}

// tethered is the real curl and the real nginx over one path alone: the direct
// one, or that by a helper, which is then a NAT router.
type tethered struct {
	bare
	helper string // "": the direct path
}

// tetherPriority is that of the rule that sends all to the helper.
const tetherPriority = "99"

func (s *tethered) Start(ctx context.Context, b *Bench) error {
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
	if err := b.routeBy(ctx, s.helper, tetherPriority); err != nil {
		return err
	}
	if _, err := b.Run(ctx, "primary", "ip", "rule", "add", "to", web.String(), "lookup", tetherPriority, "priority", tetherPriority); err != nil {
		return err
	}
	return b.StartWeb(ctx)
}

func (*tethered) Client(b *Bench, t Transfer) []string { return b.Fetch(t) }

func (*tethered) Can() abilities { return abilities{video: true, items: true} }

func (s *tethered) Stop(ctx context.Context, b *Bench) error {
	if s.helper == "" {
		return nil
	}
	return b.unroute(ctx, s.helper, tetherPriority)
}

// routeBy makes a helper a NAT router, and a routing table of the primary by
// it. The helper's link to the primary and the address there are what its
// scheme's rules choose by.
func (b *Bench) routeBy(ctx context.Context, helper, table string) error {
	t := b.Lab.Topology
	hs, pipe := t.between(helper, "server"), t.between("primary", helper)
	via, err := t.Addr(helper, pipe)
	if err != nil {
		return err
	}
	rules := fmt.Sprintf("table ip kibbutz { chain out { type nat hook postrouting priority srcnat; oifname %q masquerade; }; }", hs)
	return b.runAll(ctx, [][]string{
		{helper, "nft", rules},
		{helper, "sysctl", "-qw", "net.ipv4.ip_forward=1"},
		{"primary", "ip", "route", "replace", "default", "via", via.String(), "dev", pipe, "table", table},
	})
}

// unroute takes back what routeBy did, and the rule for the table, which has
// the same priority.
func (b *Bench) unroute(ctx context.Context, helper, table string) error {
	return b.runAll(ctx, [][]string{
		{helper, "nft", "delete", "table", "ip", "kibbutz"},
		{helper, "sysctl", "-qw", "net.ipv4.ip_forward=0"},
		{"primary", "ip", "rule", "del", "priority", table},
		{"primary", "ip", "route", "flush", "table", table},
	})
}

// tetherAll makes all helpers NAT routers: what the primary sends from its address
// on the pipe to a helper goes by that one.
func (b *Bench) tetherAll(ctx context.Context) error {
	t := b.Lab.Topology
	for i, h := range t.Helpers() {
		mine, err := t.Addr("primary", t.between("primary", h))
		if err != nil {
			return err
		}
		table := tetherTable(i)
		if err := b.routeBy(ctx, h, table); err != nil {
			return err
		}
		if _, err := b.Run(ctx, "primary", "ip", "rule", "add", "from", mine.String(), "lookup", table, "priority", table); err != nil {
			return err
		}
	}
	return nil
}

// untetherAll takes back what tetherAll did.
func (b *Bench) untetherAll(ctx context.Context) error {
	var all []error
	for i, h := range b.Lab.Topology.Helpers() {
		all = append(all, b.unroute(ctx, h, tetherTable(i)))
	}
	return errors.Join(all...)
}

// tetherTable is the routing table by a helper, and the priority of its rule.
func tetherTable(i int) string { return strconv.Itoa(100 + i) }

// runAll runs commands, each after the name of its node, until one fails.
func (b *Bench) runAll(ctx context.Context, commands [][]string) error {
	for _, c := range commands {
		if _, err := b.Run(ctx, c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// kibbutz is tethering: helpers are NAT routers, and the kernel's MPTCP runs
// end to end between primary and web, with one subflow by each of them.
type kibbutz struct {
	direct bool             // no helpers
	second bool             // a second direct subflow
	own    bool             // one by each other direct link of the primary
	most   int              // of the helpers, so many take part; 0: all
	before map[string]int64 // the primary's MPTCP counters
}

// subflows are those that join, besides the first.
func (k *kibbutz) subflows(t *Topology) int64 {
	switch {
	case k.own:
		return int64(len(t.allBetween("primary", "server")) - 1)
	case k.second:
		return 1
	case k.direct:
		return 0
	}
	return int64(len(t.first(k.most)))
}

// Start sets up the helpers, then the primary's endpoints.
func (k *kibbutz) Start(ctx context.Context, b *Bench) error {
	if err := k.endpoints(ctx, b); err != nil {
		return err
	}
	for _, n := range []string{"primary", "web"} {
		if _, err := b.Run(ctx, n, "ip", "mptcp", "limits", "set", "subflow", "8", "add_addr_accepted", "0"); err != nil {
			return err
		}
	}
	if err := b.StartWeb(ctx, "mptcpize", "run"); err != nil {
		return err
	}
	var err error
	k.before, err = k.counters(ctx, b)
	return err
}

// endpoints makes those from which subflows join.
func (k *kibbutz) endpoints(ctx context.Context, b *Bench) error {
	t := b.Lab.Topology
	if k.second {
		own, link, err := secondAddress(t)
		if err != nil {
			return err
		}
		return b.runAll(ctx, [][]string{
			{"primary", "ip", "address", "add", own + "/24", "dev", link},
			{"primary", "ip", "mptcp", "endpoint", "add", own, "dev", link, "subflow"},
		})
	}
	if k.own {
		return b.ownEndpoints(ctx)
	}
	if k.direct {
		return nil
	}
	if err := b.tetherAll(ctx); err != nil {
		return err
	}
	for _, h := range t.first(k.most) {
		pipe := t.between("primary", h)
		mine, err := t.Addr("primary", pipe)
		if err != nil {
			return err
		}
		if _, err := b.Run(ctx, "primary", "ip", "mptcp", "endpoint", "add", mine.String(), "dev", pipe, "subflow"); err != nil {
			return err
		}
	}
	return nil
}

// secondAddress is one more address of the primary on its direct link, in the
// same network as its own one.
func secondAddress(t *Topology) (addr, link string, err error) {
	link = t.between("primary", "server")
	own, err := t.Addr("primary", link)
	if err != nil {
		return "", "", err
	}
	b := own.As4()
	b[3] ^= 0x80
	return netip.AddrFrom4(b).String(), link, nil
}

func (*kibbutz) Client(b *Bench, t Transfer) []string {
	if t.Video != nil {
		return append(b.Fetch(t), "--mptcp") // mptcpize does nothing to a static program
	}
	return append([]string{"mptcpize", "run"}, b.Fetch(t)...)
}

// joinTime is how long subflows may take to join: shorter transfers may do
// without.
const joinTime = time.Second

// Verify asserts that the one connection was MPTCP and that its other subflows
// joined: a fall-back to TCP would look like a slow kibbutz.
func (k *kibbutz) Verify(ctx context.Context, b *Bench, r *Result) error {
	after, err := k.counters(ctx, b)
	if err != nil {
		return err
	}
	diff := func(name string) int64 { return after[name] - k.before[name] }
	joined, want := diff("MPJoinSynAckRx"), k.subflows(b.Lab.Topology)
	r.Notes = map[string]any{"mptcp_joined": joined}
	for _, name := range []string{"MPCapableFallbackSYNACK", "MPCapableSYNTXDrop", "MPCapableDataFallback", "InfiniteMapRx", "MPFallbackTokenInit"} {
		if diff(name) > 0 {
			return fmt.Errorf("kibbutz: MPTCP fell back to TCP (%s)", name)
		}
	}
	if n := diff("MPCapableSYNACKRX"); n != 1 {
		return fmt.Errorf("kibbutz: MPTCP was not used (%d handshakes; net.mptcp.enabled? mptcpize?)", n)
	}
	if joined > want || joined < want && r.Seconds > joinTime.Seconds() {
		return fmt.Errorf("kibbutz: %d subflows joined, not %d", joined, want)
	}
	return nil
}

// counters reads the primary's MPTCP counters.
func (*kibbutz) counters(ctx context.Context, b *Bench) (map[string]int64, error) {
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
		return nil, fmt.Errorf("kibbutz: this kernel has no MPTCP counters (is MPTCP built in?)")
	}
	return c, nil
}

func (*kibbutz) Can() abilities { return abilities{video: true, items: true} }

func (k *kibbutz) Stop(ctx context.Context, b *Bench) error {
	t := b.Lab.Topology
	var all []error
	if k.second {
		own, link, err := secondAddress(t)
		all = append(all, err, b.runAll(ctx, [][]string{{"primary", "ip", "address", "del", own + "/24", "dev", link}}))
	}
	if k.own {
		all = append(all, b.closeOwn(ctx))
	}
	if !k.direct {
		all = append(all, b.untetherAll(ctx))
	}
	_, err := b.Run(ctx, "primary", "ip", "mptcp", "endpoint", "flush")
	return errors.Join(append(all, err)...)
}
