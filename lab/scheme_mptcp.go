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
)

// mptcpScheme is tethering with the kernel's MPTCP, as in Kibbutz: helpers are NAT
// routers, and MPTCP runs end to end between primary and web, with one subflow through each helper.
type mptcpScheme struct {
	noHelpers      bool             // no helpers
	secondSubflow  bool             // a second direct subflow
	ownLinks       bool             // one subflow by each further direct link
	firstLink      string           // by which connections begin; "": the one that routes choose
	maxHelpers     int              // 0: all helpers take part
	congestion     string           // congestion control of all nodes; "": the topology's
	countersBefore map[string]int64 // the primary's MPTCP counters at the start

	coupled          *coupledUse       // if congestion is a coupled one
	congestionBefore map[string]string // by node
}

// mptcpSyntax is the syntax of mptcpScheme.
const mptcpSyntax = "mptcp[:own[:first=LINK]|:direct[:subflows=2]|:helpers=N][:cc=NAME]"

// parseMPTCPScheme parses what follows "mptcp:".
func parseMPTCPScheme(variant string) (*mptcpScheme, error) {
	k := &mptcpScheme{}
	if variant == "" {
		return k, nil
	}
	for o := range strings.SplitSeq(variant, ":") {
		name, value, _ := strings.Cut(o, "=")
		free := !k.noHelpers && k.maxHelpers == 0 // no other way to join was named
		switch {
		case k.congestion != "": // it is the last option
			return nil, fmt.Errorf("scheme mptcp:%s: %q follows cc= (%s)", variant, o, mptcpSyntax)
		case o == "own" && free:
			k.noHelpers, k.ownLinks = true, true
		case o == "direct" && free:
			k.noHelpers = true
		case name == "first" && k.ownLinks && k.firstLink == "" && value != "":
			k.firstLink = value
		case o == "subflows=2" && k.noHelpers && !k.ownLinks && !k.secondSubflow:
			k.secondSubflow = true
		case name == "helpers" && free:
			n, _, err := parseHelpersOption(o)
			if err != nil {
				return nil, err
			}
			k.maxHelpers = n
		case name == "cc" && value != "":
			k.congestion = value
		default:
			return nil, fmt.Errorf("scheme mptcp:%s: %q is not expected (%s)", variant, o, mptcpSyntax)
		}
	}
	return k, nil
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
	if err := k.setCongestion(ctx, b); err != nil {
		return err
	}
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
	outages := b.Lab.Topology.hasOutages()
	fallbacks, err := checkFallbacks(diff, n, fallbackShare(r.App != nil, must), outages)
	if err != nil {
		return err
	}
	if outages && fallbacks > 0 && r.App == nil { // its one connection began in an outage
		r.Notes["mptcp_fallbacks"] = fallbacks
		return nil
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

// fallbackShare returns one in how many connections may fall back to TCP; 0: none. The kernel gives up MPTCP if
// the first packets of a connection are lost. Of a script's many connections some lose them in a full queue, and
// over links that lose packets at random up to half.
func fallbackShare(isScript, losesNothing bool) int64 {
	switch {
	case !isScript:
		return 0
	case losesNothing:
		return 10
	}
	return 2
}

// synFallback is the kernel's counter of connections that began without MPTCP because their first SYNs
// were lost.
const synFallback = "MPCapableSYNTXDrop"

// checkFallbacks returns how many connections fell back to TCP, by the kernel's counters; n began as MPTCP. It
// fails if these are more than one in share. Where links have outages, those that began in one may too.
func checkFallbacks(diff func(name string) int64, n, share int64, outages bool) (fallbacks int64, err error) {
	n += diff("MPCapableFallbackSYNACK") + diff(synFallback)
	kind, allowed := "", int64(0)
	if share > 0 {
		allowed = n / share
	}
	if outages {
		allowed += diff(synFallback)
	}
	for _, name := range []string{"MPCapableFallbackSYNACK", synFallback, "MPCapableDataFallback",
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

// hasOutages reports whether a link between primary and server has outages.
func (t *Topology) hasOutages() bool {
	for _, name := range t.linksBetween("primary", "server") {
		for _, dir := range []Direction{Uplink, Downlink} {
			if p, err := t.Link[name].Program(dir); err == nil && p.HasOutage() {
				return true
			}
		}
	}
	return false
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
	return errors.Join(append(all, err, k.restoreCongestion(ctx, b))...)
}
