package lab

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mpbond/unit"
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
}

// Transfer is one download (or upload) of a bench.
type Transfer struct {
	Scheme    string
	Rep       int
	Size      unit.Bytes // of each stream
	Streams   int        // at least 1
	Upload    bool
	Unchecked bool // see Plan
}

// newScheme finds a scheme by its name.
func newScheme(name string) (Scheme, error) {
	switch name {
	case "single":
		return &single{}, nil
	case "relay", "relay:copy":
		return &relayed{name == "relay:copy"}, nil
	case "kibbutz":
		return &kibbutz{}, nil
	}
	if base, variant, _ := strings.Cut(name, ":"); base == "mpbond" {
		return parseBonded(variant)
	}
	return nil, fmt.Errorf("unknown scheme %q (single, relay[:copy], kibbutz, mpbond[:OPTION…])", name)
}

// single is the real curl and the real nginx over the direct path alone.
type single struct{}

func (*single) Start(ctx context.Context, b *Bench) error { return b.StartWeb(ctx) }

func (*single) Client(b *Bench, t Transfer) []string { return b.Fetch(t) }

func (*single) Verify(context.Context, *Bench, *Result) error { return nil }

func (*single) Stop(context.Context, *Bench) error { return nil }

// kibbutz is tethering: helpers are NAT routers, and the kernel's MPTCP runs
// end to end between primary and web, with one subflow by each of them.
type kibbutz struct {
	before map[string]int64 // the primary's MPTCP counters
}

// Start sets up the helpers, then the primary's endpoints.
func (k *kibbutz) Start(ctx context.Context, b *Bench) error {
	t := b.Lab.Topology
	for i, h := range t.Helpers() {
		hs, pipe := t.between(h, "server"), t.between("primary", h)
		mine, err := t.Addr("primary", pipe)
		if err != nil {
			return err
		}
		via, err := t.Addr(h, pipe)
		if err != nil {
			return err
		}
		table := strconv.Itoa(100 + i)
		rules := fmt.Sprintf("table ip kibbutz { chain out { type nat hook postrouting priority srcnat; oifname %q masquerade; }; }", hs)
		for _, c := range [][]string{
			{h, "nft", rules},
			{h, "sysctl", "-qw", "net.ipv4.ip_forward=1"},
			{"primary", "ip", "route", "replace", "default", "via", via.String(), "dev", pipe, "table", table},
			{"primary", "ip", "rule", "add", "from", mine.String(), "lookup", table, "priority", table},
			{"primary", "ip", "mptcp", "endpoint", "add", mine.String(), "dev", pipe, "subflow"},
		} {
			if _, err := b.Run(ctx, c[0], c[1:]...); err != nil {
				return err
			}
		}
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

func (*kibbutz) Client(b *Bench, t Transfer) []string {
	return append([]string{"mptcpize", "run"}, b.Fetch(t)...)
}

// Verify asserts that the one connection was MPTCP and that one more subflow
// joined by each helper: a fall-back to TCP would look like a slow kibbutz.
func (k *kibbutz) Verify(ctx context.Context, b *Bench, r *Result) error {
	after, err := k.counters(ctx, b)
	if err != nil {
		return err
	}
	diff := func(name string) int64 { return after[name] - k.before[name] }
	joined, helpers := diff("MPJoinSynAckRx"), int64(len(b.Lab.Topology.Helpers()))
	r.Notes = map[string]any{"mptcp_joined": joined}
	for _, name := range []string{"MPCapableFallbackSYNACK", "MPCapableSYNTXDrop", "MPCapableDataFallback", "InfiniteMapRx", "MPFallbackTokenInit"} {
		if diff(name) > 0 {
			return fmt.Errorf("kibbutz: MPTCP fell back to TCP (%s)", name)
		}
	}
	if n := diff("MPCapableSYNACKRX"); n != 1 {
		return fmt.Errorf("kibbutz: MPTCP was not used (%d handshakes; net.mptcp.enabled? mptcpize?)", n)
	}
	if joined != helpers {
		return fmt.Errorf("kibbutz: %d subflows joined, not one by each of %d helpers", joined, helpers)
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

func (k *kibbutz) Stop(ctx context.Context, b *Bench) error {
	t := b.Lab.Topology
	for i, h := range t.Helpers() {
		table := strconv.Itoa(100 + i)
		for _, c := range [][]string{
			{h, "nft", "delete", "table", "ip", "kibbutz"},
			{h, "sysctl", "-qw", "net.ipv4.ip_forward=0"},
			{"primary", "ip", "rule", "del", "priority", table},
			{"primary", "ip", "route", "flush", "table", table},
		} {
			if _, err := b.Run(ctx, c[0], c[1:]...); err != nil {
				return err
			}
		}
	}
	_, err := b.Run(ctx, "primary", "ip", "mptcp", "endpoint", "flush")
	return err
}
