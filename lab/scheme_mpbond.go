// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"mpbond/api"
	apiclient "mpbond/api/client"
	"mpbond/base/unit"
)

// Ports of mpbond in the lab; they are its defaults.
const (
	bondPort  = 7600 // server: subflows
	socksPort = 1080 // primary: SOCKS5 proxy on loopback
	pipePort  = 7602 // primary: helpers connect here
)

// bondTimeout is how long all subflows may take to come up.
const bondTimeout = 15 * time.Second

// mpbondScheme is mpbond itself: server, primary and helpers as processes in their nodes, and curl
// through the primary's SOCKS5 proxy. A transfer starts when all subflows are up and none has
// carried data.
type mpbondScheme struct {
	schemeDefaults
	scheduler  string // of server and primary; empty: mpbond's default
	noReinject bool   // no early reinjection
	noHelpers  bool   // no helpers
	maxHelpers int    // 0: all helpers take part
	subflows   int    // direct ones of each interface; 0: mpbond's default
	// interfaces are the primary's links to the server that carry direct subflows. Empty: the one
	// that the system's routes choose, which is the first.
	interfaces []string
	feedback   string // of helpers; empty: mpbond's default
	// udp makes subflows of these interfaces use UDP, and helpers continue to the server by UDP.
	// congestion is the controller there and over TCP. With PBE-CC, primary and helpers listen to
	// the cells of links in mobile networks.
	udp        bool
	congestion string // empty: mpbond's default
	noHints    bool   // the primary gets no reports of modems
}

// pbeName is the name of PBE-CC among congestion controllers.
const pbeName = "pbe"

// parseMPBondScheme parses the options after "mpbond:", separated by colons.
func parseMPBondScheme(variant string) (*mpbondScheme, error) {
	m := &mpbondScheme{}
	if variant == "" {
		return m, nil
	}
	for o := range strings.SplitSeq(variant, ":") {
		n, isSubflows := strings.CutPrefix(o, "subflows=")
		f, isFeedback := strings.CutPrefix(o, "feedback=")
		i, isInterfaces := strings.CutPrefix(o, "if=")
		cc, isCongestion := strings.CutPrefix(o, "cc=")
		helpers, isHelpers, err := parseHelpersOption(o)
		switch {
		case o == "noreinject":
			m.noReinject = true
		case o == "nohint":
			m.noHints = true
		case o == "direct":
			m.noHelpers = true
		case isHelpers:
			m.maxHelpers = helpers
		case isSubflows:
			m.subflows, err = strconv.Atoi(n)
		case o == "udp":
			m.udp = true
		case isCongestion:
			m.congestion = cc
		case isFeedback:
			m.feedback = f
		case isInterfaces:
			m.interfaces = strings.Split(i, "+")
		case strings.HasPrefix(m.scheduler, "ratio") && !strings.Contains(m.scheduler, ":") && parsesAsNumber(o):
			m.scheduler += ":" + o // ratio:0.6
		case m.scheduler == "" && o != "":
			m.scheduler = o // mpbond rejects an unknown one
		default:
			err = fmt.Errorf("not an option")
		}
		if err != nil || isSubflows && m.subflows < 1 || slices.Contains(m.interfaces, "") {
			return nil, fmt.Errorf("scheme mpbond:%s: %q: write "+
				"mpbond[:SCHEDULER][:noreinject][:direct][:nohint][:helpers=N][:subflows=N]"+
				"[:if=LINK[+LINK…][:udp]][:cc=NAME][:feedback=MODE]",
				variant, o)
		}
	}
	if m.udp && len(m.interfaces) == 0 {
		return nil, fmt.Errorf("scheme mpbond:%s: udp needs the interfaces of its subflows: add if=LINK[+LINK…]",
			variant)
	}
	return m, nil
}

// parsesAsNumber reports whether text is a number.
func parsesAsNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

// activeHelpers returns the helpers that take part.
func (m *mpbondScheme) activeHelpers(b *Bench) []string {
	if m.noHelpers {
		return nil
	}
	return b.Lab.Topology.firstHelpers(m.maxHelpers)
}

// Start makes keys and trust files and starts the processes.
func (m *mpbondScheme) Start(ctx context.Context, b *Bench) error {
	if err := b.StartWeb(ctx); err != nil {
		return err
	}
	mpbond, err := findProgram("mpbond")
	if err != nil {
		return err
	}
	if err := b.setupTrust(ctx, mpbond); err != nil {
		return err
	}
	// Each transfer begins without what earlier ones taught: repetitions do not depend on each other.
	history := filepath.Join(mpbondHome(b, "primary"), "history.json")
	if err := os.Remove(history); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, p := range m.processList(b, mpbond) {
		if b.LogDir != "" {
			p.argv = append(p.argv, "--trace", filepath.Join(b.LogDir, p.node+"-trace.jsonl"))
		}
		if err := b.Spawn(ctx, p.node, p.port, mpbondHomeEnv(b, p.node), p.argv...); err != nil {
			return err
		}
	}
	return b.waitSubflows(ctx, "primary", max(1, m.subflows)*max(1, len(m.interfaces))+len(m.activeHelpers(b)))
}

func (*mpbondScheme) Client(b *Bench, t Transfer) []string {
	return append(b.FetchCommand(t), "--socks5-hostname", fmt.Sprintf("127.0.0.1:%d", socksPort))
}

// Verify adds what both ends report of their subflows, and the memory of the processes.
func (m *mpbondScheme) Verify(ctx context.Context, b *Bench, r *Result) error {
	receiver, sender := "primary", "server"
	if r.Direction == "put" {
		receiver, sender = sender, receiver
	}
	got, err := mpbondStatus(ctx, b, receiver, receiver)
	if err != nil {
		return err
	}
	sent, err := mpbondStatus(ctx, b, sender, sender)
	if err != nil {
		return err
	}
	atServer := sent // the server's view; there, a helped subflow's hop to the primary is its pipe
	if receiver == "server" {
		atServer = got
	}
	for _, bond := range atServer.Bonds {
		for _, p := range bond.Subflows {
			if m.udp && p.Transport != "udp" && p.State == api.Up {
				return fmt.Errorf("mpbond: subflow %d is over %s: %s", p.ID, p.Transport, p.Fallback)
			}
		}
	}
	r.Reinjected = map[string]unit.Bytes{}
	for _, bond := range slices.Concat(got.Bonds, sent.Bonds) {
		for cause, n := range bond.WastedBytes {
			what, ok := strings.CutPrefix(cause, "reinjected_")
			if cause == "sent_redundantly" {
				what, ok = "redundant", true
			}
			if ok {
				r.Reinjected[what] += n
			}
		}
	}
	for _, bond := range got.Bonds {
		r.Duplicate += bond.WastedBytes["duplicate_received"]
		r.EndSpread = max(r.EndSpread, subflowEndSpread(bond).Seconds())
	}
	if r.App != nil {
		if r.Forecasts, err = primaryForecasts(ctx, b); err != nil {
			return err
		}
	}
	r.PeakRSS = b.peakRSSByNode()
	r.Notes = map[string]any{"received": got.Bonds, "sent": sent.Bonds}
	return nil
}

// subflowEndSpread returns the time between the last new bytes of the first and of the last subflow
// to end, of those that carried data.
func subflowEndSpread(bond api.Bond) time.Duration {
	var first, last time.Time
	for _, p := range bond.Subflows {
		if p.LastData.IsZero() {
			continue
		}
		if first.IsZero() || p.LastData.Before(first) {
			first = p.LastData
		}
		if p.LastData.After(last) {
			last = p.LastData
		}
	}
	return last.Sub(first)
}

func (*mpbondScheme) Capabilities() capabilities {
	return capabilities{video: true, items: true, apps: true}
}

// mpbondStatus asks the server or primary in a node for its status. The socket is a file, the same
// in all nodes.
func mpbondStatus(ctx context.Context, b *Bench, node, role string) (api.Status, error) {
	c := apiclient.New(filepath.Join(mpbondHome(b, node), "run", role+".sock"))
	defer c.Close()
	return c.Status(ctx, false)
}

// primaryForecasts returns what the primary expected of the answers that it got.
func primaryForecasts(ctx context.Context, b *Bench) ([]api.CheckedForecast, error) {
	c := apiclient.New(filepath.Join(mpbondHome(b, "primary"), "run", "primary.sock"))
	defer c.Close()
	h, err := c.PastForecasts(ctx)
	return h.Forecasts, err
}

// waitSubflows waits until the primary in a node has that many subflows up.
func (b *Bench) waitSubflows(ctx context.Context, node string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, bondTimeout)
	defer cancel()
	var s api.Status
	var failed error // of the last request: the primary may not answer yet
	up := 0
	err := pollUntil(ctx, 20*time.Millisecond, func() (bool, error) {
		s, failed = mpbondStatus(ctx, b, node, "primary")
		up = 0
		for _, bond := range s.Bonds {
			for _, p := range bond.Subflows {
				if p.State == api.Up {
					up++
				}
			}
		}
		return failed == nil && up >= want, nil
	})
	if err != nil {
		return fmt.Errorf("mpbond: %s: %d of %d subflows are up after %v: %v %+v%s", node, up, want, bondTimeout,
			failed, s.Bonds, b.recentOutput())
	}
	return nil
}

// mpbondProcess is one process of a bond in the lab.
type mpbondProcess struct {
	node string
	port int // TCP port that it opens when ready; 0: do not wait
	argv []string
}

// mpbondHome returns the home directory of the device in a node.
func mpbondHome(b *Bench, node string) string { return filepath.Join(b.Dir, "mpbond", node) }

// mpbondHomeEnv returns the environment of the device in a node.
func mpbondHomeEnv(b *Bench, node string) []string {
	return []string{"MPBOND_HOME=" + mpbondHome(b, node)}
}

// processList returns the commands in the order in which to start them.
func (m *mpbondScheme) processList(b *Bench, mpbond string) (p []mpbondProcess) {
	server := []string{mpbond, "server", "--allow", "10.0.0.0/8", "--allow", "fd00::/8"}
	primary := []string{mpbond, "primary", "--name", "primary", "--transparent", "0"}
	for _, argv := range []*[]string{&server, &primary} {
		if m.scheduler != "" {
			*argv = append(*argv, "--scheduler", m.scheduler)
		}
		if m.congestion != "" {
			*argv = append(*argv, "--congestion", m.congestion)
		}
		if m.noReinject {
			*argv = append(*argv, "--reinject", "-1")
		}
	}
	if m.subflows > 0 {
		primary = append(primary, "--subflows", strconv.Itoa(m.subflows))
	}
	if len(m.interfaces) == 0 { // one direct link, chosen by the system's routes
		primary = append(primary, "--interface", "")
	}
	for _, i := range m.interfaces {
		primary = append(primary, "--interface", i)
		if m.udp {
			primary = append(primary, "--udp", i)
		}
		primary = append(primary, m.cellListenerArgs(b, i)...)
	}
	if m.udp {
		server = append(server, "--udp")
	}
	p = append(p, mpbondProcess{"server", bondPort, server}, mpbondProcess{"primary", socksPort, primary})
	for _, h := range m.activeHelpers(b) {
		helper := []string{mpbond, "helper"}
		if m.feedback != "" {
			helper = append(helper, "--feedback", m.feedback)
		}
		if m.udp {
			link := b.Lab.Topology.linkBetween(h, "server")
			helper = append(append(helper, "--udp", link), m.cellListenerArgs(b, link)...)
		}
		p = append(p, mpbondProcess{h, 0, helper})
	}
	return p
}

// cellListenerArgs returns the options that make a process listen to the cells of a link for
// PBE-CC, if the link is a device of a mobile network.
func (m *mpbondScheme) cellListenerArgs(b *Bench, link string) []string {
	l := b.Lab.Topology.Link[link]
	if !m.udp || m.congestion != pbeName || l == nil || l.LTE == nil {
		return nil
	}
	source := fmt.Sprintf("%s=unix:%s", link, messagesPath(b.Lab.dir, l.LTE.Network))
	// Otherwise the source reports it; after a handover it is found.
	if b.Lab.Topology.onlyDevice(l.LTE.Network) != link && l.LTE.Handover == "" {
		source += fmt.Sprintf(",rnti=%d", l.LTE.RNTI)
	}
	return []string{"--cell", source}
}

// setupTrust makes each device's key and trust file, once for a bench. All devices use one address
// of the server, which each reaches by its own path. Helpers connect to the primary over their
// pipes.
func (b *Bench) setupTrust(ctx context.Context, mpbond string) error {
	if _, err := os.Stat(filepath.Join(b.Dir, "mpbond")); err == nil {
		return nil
	}
	t := b.Lab.Topology
	homes, err := b.makeDeviceHomes(ctx, mpbond, mpbondHome(b, ""), append([]string{"primary", "server"}, t.Helpers()...))
	if err != nil {
		return err
	}
	addr, err := t.Addr("server", t.linkBetween("server", "web"))
	if err != nil {
		return err
	}
	if err := homes.addTrustedPeer(ctx, "server", "primary", "primary"); err != nil {
		return err
	}
	server := fmt.Sprintf("%s:%d", addr, bondPort)
	if err := homes.addTrustedPeer(ctx, "primary", "server", "server", "--addr", server); err != nil {
		return err
	}
	for _, h := range t.Helpers() {
		var pipes []string
		for _, link := range t.linksBetween("primary", h) {
			addr, err := t.Addr("primary", link)
			if err != nil {
				return err
			}
			pipes = append(pipes, "--addr", fmt.Sprintf("%s:%d", addr, pipePort))
		}
		if err := homes.addTrustedPeer(ctx, "primary", h, "helper"); err != nil {
			return err
		}
		if err := homes.addTrustedPeer(ctx, h, "server", "server", "--addr", server); err != nil {
			return err
		}
		if err := homes.addTrustedPeer(ctx, h, "primary", "primary", pipes...); err != nil {
			return err
		}
	}
	return nil
}
