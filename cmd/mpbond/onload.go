// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/pace"
	"mpbond/base/text"
	"mpbond/base/unit"
	mydevice "mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/internal/cli"
	"mpbond/link/discovery"
	"mpbond/link/tcp"
	"mpbond/node/helper"
	"mpbond/onload/allowance"
	"mpbond/onload/dataplan"
	"mpbond/onload/permit"
	"mpbond/onload/relay"
)

// onloadConfig is [onload] of helper.toml.
type onloadConfig struct {
	// Allowance is how much may be carried: a volume per day, like "50MB"; "caps", what Plan
	// usually leaves unused; "permit HOST:PORT", while the operator's permit service there
	// grants it; or "unlimited". Empty switches onloading off.
	Allowance allowance.Choice `toml:"allowance"`
	// Listen is where primaries connect, "host:port"; empty is ":7604".
	Listen string `toml:"listen"`
	// Interface is the network interface for connections to servers; empty is hs_interface
	// of the helper, or the default route.
	Interface string `toml:"interface"`
	// Plan is the monthly volume of the data plan of Interface, like "10GB", for "caps".
	Plan policy.Volume `toml:"plan"`
	// ResetDay is the day on which a month of Plan begins, 1 to 31; 0 is 1.
	ResetDay int `toml:"reset_day"`
	// Bills are the volumes used of Plan in the months before mpbond began to count, oldest
	// first, like ["6.2GB", "5.9GB"]; at most five are used.
	Bills []policy.Volume `toml:"bills"`
	// PermitKey is the pinned key of the permit service.
	PermitKey string `toml:"permit_key"`
	// PermitCell is the cell of this device, as the permit service names it; empty is the
	// service's only cell.
	PermitCell string `toml:"permit_cell"`
	// Allow lists private address prefixes that may be connected to, like "192.168.7.0/24".
	Allow []netip.Prefix `toml:"allow"`
	// Page configures the helper's page for uploading photos from a browser: [onload.page].
	Page pageConfig `toml:"page"`
}

// addOnloadFlag adds --onload, which sets the allowance.
func addOnloadFlag(cmd *cobra.Command, text *string) {
	cmd.Flags().StringVar(text, "onload", "", "let paired primaries onload over this device's link within this "+
		"`ALLOWANCE`: 200MB (a day), caps, \"permit HOST:PORT\" or unlimited; default: that of [onload] in helper.toml")
	cmd.Flags().Lookup("onload").NoOptDefVal = " "
}

// rejectStrayAllowance rejects arguments. An argument may be meant as the value of --onload, which
// needs "=" because it is optional.
func rejectStrayAllowance(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.Flags().Changed("onload") && new(allowance.Choice).UnmarshalText([]byte(args[0])) == nil {
		return cli.UsageError("%s is not the value of --onload: write --onload=%[1]s", text.Printable(args[0]))
	}
	return cobra.NoArgs(cmd, args)
}

// applyOnloadFlag applies --onload if it was given.
func (c *onloadConfig) applyOnloadFlag(given bool, text string) error {
	if given && text != " " {
		return fault.New(fault.Usage, c.Allowance.UnmarshalText([]byte(text)), "see `mpbond helper --help`")
	}
	if given && c.Allowance == (allowance.Choice{}) {
		return fault.New(fault.Usage, errors.New("--onload has no allowance"),
			"write it like --onload=200MB, or set allowance in [onload] of helper.toml")
	}
	return nil
}

// validateOnload returns an error if the configuration is inconsistent.
func (c onloadConfig) validateOnload() error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Config, fmt.Errorf("[onload]: "+format, args...), "see docs/howto/onload-helper.md")
	}
	switch {
	case c.Allowance.Caps && (c.Interface == "" || c.Plan == 0):
		return bad(`the allowance "caps" needs interface, and plan, the monthly volume of its data plan`)
	case !c.Allowance.Caps && (c.Plan != 0 || c.ResetDay != 0 || len(c.Bills) > 0):
		return bad(`plan, reset_day and bills need the allowance "caps"`)
	case c.ResetDay < 0 || c.ResetDay > 31:
		return bad("reset_day is %d instead of 1 to 31", c.ResetDay)
	case (c.Allowance.Permit != "") != (c.PermitKey != "") || c.PermitCell != "" && c.PermitKey == "":
		return bad(`the allowance "permit HOST:PORT" and permit_key need each other`)
	}
	return c.Page.validatePage(c)
}

// allOnloadName is the name, among caps, of all onloading together.
const allOnloadName = "all onloading"

// allowanceInterval is the time between two updates of the allowance.
const allowanceInterval = time.Second

// onloadService carries connections of primaries that onload. A nil service carries nothing.
type onloadService struct {
	cfg      onloadConfig
	r        *role
	h        *helper.Helper
	relay    *relay.Relay
	listener *tcp.Listener
	plan     *dataplan.Keeper // nil unless the allowance is "caps"
	permit   *permit.Keeper   // nil unless the allowance is a permit
	page     *onloadPage      // nil: no page
	current  atomic.Pointer[dailyAllowance]
}

// dailyAllowance is what may be carried today, and what was carried.
type dailyAllowance struct {
	allowance.DayLimit
	carried unit.Bytes
}

// initOnload opens the listener for primaries that onload, if it is configured. It must be called
// before enforceCaps and serveRoleAndAPI.
func (r *role) initOnload(cfg onloadConfig, helperConfig helper.Config, key *identity.Key,
	h *helper.Helper) (err error) {
	idle := cfg.Allowance == (allowance.Choice{}) && !reflect.ValueOf(cfg).IsZero()
	cfg.Interface = cmp.Or(cfg.Interface, helperConfig.HSInterface)
	if err := cfg.validateOnload(); err != nil || cfg.Allowance == (allowance.Choice{}) {
		if err == nil && idle {
			slog.Warn("onloading off: [onload] has no allowance", "hint", "set allowance, or use --onload=200MB")
		}
		return err
	}
	for _, name := range []string{cfg.Interface, cfg.Page.Home} {
		if _, err := net.InterfaceByName(name); name != "" && err != nil {
			slog.Warn("interface of [onload] not found", "interface", name, "hint", "`ip link` lists the interfaces")
		}
	}
	o := &onloadService{cfg: cfg, r: r, h: h}
	line := tcp.Options{Congestion: helperConfig.HSCongestion, Interface: cfg.Interface, Mark: helperConfig.Mark,
		KeepAlive: tcp.RadioKeepAlive}
	if cfg.Allowance.Caps {
		path, err := dataPlanPath(r.name)
		if err == nil {
			o.plan, err = dataplan.Open(path, cfg.Interface, slog.Default())
		}
		if err != nil {
			return err
		}
	}
	if cfg.Allowance.Permit != "" {
		service, err := identity.ParsePublicKey(cfg.PermitKey)
		if err != nil {
			return err
		}
		path, err := permitPath(r.name)
		if err == nil {
			client := permit.Client{Key: key, Address: cfg.Allowance.Permit, Service: service, Cell: cfg.PermitCell,
				Options: tcp.Options{Mark: helperConfig.Mark}}
			o.permit, err = permit.NewKeeper(client.WatchPermit, path, slog.Default())
		}
		if err != nil {
			return err
		}
	}
	at := cmp.Or(cfg.Listen, ":"+strconv.Itoa(relay.Port))
	if o.listener, err = tcp.Listen(context.Background(), at,
		tcp.Options{Mark: helperConfig.Mark, Ledger: h.CountShared(r.usage.LedgerFor(policy.ForPipe))}); err != nil {
		return cli.ExplainListenError(err, "`listen` in [onload]")
	}
	line.Ledger = h.CountShared(r.usage.LedgerFor(policy.ForOnload))
	o.relay = relay.New(relay.Config{Key: key, Trust: r.trust, Uplink: line, AllowedPrefixes: cfg.Allow,
		Unmetered: cfg.Allowance.Unlimited, CheckAllowed: o.checkOnloadPrimary, Log: slog.Default()})
	o.updateAllowance(time.Now())
	if err := o.initOnloadPage(helperConfig.Mark); err != nil {
		return err
	}
	r.onload = o
	return nil
}

// computeToday returns what may be carried today. onloaded holds what Interface carried for
// onloading on each day.
func (o *onloadService) computeToday(now time.Time, onloaded map[string]unit.Bytes) allowance.DayLimit {
	switch {
	case o.cfg.Allowance.Unlimited:
		return allowance.DayLimit{Unlimited: true, Reason: "no limit is configured"}
	case o.permit != nil:
		return o.permit.DayLimit()
	case o.plan != nil:
		h := allowance.History{}
		for day, all := range o.plan.Days() {
			h[day] = allowance.Day{AllBytes: all, OnloadBytes: onloaded[day]}
		}
		return allowance.Plan{Cap: o.cfg.Plan, ResetDay: o.cfg.ResetDay, Bills: o.cfg.Bills}.DayLimit(now, h)
	}
	return allowance.DayLimit{Bytes: unit.Bytes(o.cfg.Allowance.Daily), Reason: "the configured daily limit"}
}

// updateAllowance computes what may be carried now.
func (o *onloadService) updateAllowance(now time.Time) {
	list, _ := o.r.usage.List() // the usage report has the error
	onloaded, carried := map[string]unit.Bytes{}, unit.Bytes(0)
	today := now.Format(time.DateOnly)
	for _, row := range list {
		if row.Purpose != policy.ForOnload {
			continue
		}
		if row.Link == o.cfg.Interface {
			onloaded[row.Day] += row.Down + row.Up
		}
		carried += row.BytesSince(today)
	}
	n := &dailyAllowance{o.computeToday(now, onloaded), carried}
	if before := o.current.Swap(n); before == nil || before.Unlimited != n.Unlimited ||
		(before.Bytes > 0) != (n.Bytes > 0) {
		slog.Info("onloading allowance changed", "open", n.Err() == nil, "reason", n.Reason)
	}
}

// addOnloadCap adds today's allowance to caps, a map of the caller's, and returns it.
func (o *onloadService) addOnloadCap(caps map[string]policy.Caps) map[string]policy.Caps {
	if o == nil {
		return caps
	}
	if n := o.current.Load(); n.Bytes > 0 {
		caps[allOnloadName] = policy.Caps{Daily: policy.Volume(n.Bytes)}
	}
	return caps
}

// checkAllowance returns why nothing may be carried now, nil if something may.
func (o *onloadService) checkAllowance() error {
	n := o.current.Load()
	if err := n.Err(); err != nil {
		return fault.New(fault.Limit, fmt.Errorf("the helper has no allowance: %w", err), "")
	}
	if n.Bytes > 0 { // a limit can be enforced only if usage is counted
		if err := o.r.caps.CheckEnforced(allOnloadName); err != nil {
			return fault.New(fault.Unsupported, fmt.Errorf("onloading is not counted: %w", err), "")
		}
	}
	for _, target := range []mydevice.CapTarget{{Purpose: policy.ForOnload}, {Link: o.cfg.Interface}} {
		if target == (mydevice.CapTarget{}) {
			continue // checkOnloadPrimary checks the link of each connection
		}
		if a := o.r.remainingAllowance(target); a.Level == policy.CapReached {
			return fault.New(fault.Limit, fmt.Errorf("the helper has used up its allowance: %v", a), "")
		}
	}
	return nil
}

// checkOnloadPrimary returns why a connection of a primary to a server is refused, nil if it is
// accepted.
func (o *onloadService) checkOnloadPrimary(ctx context.Context, p identity.Peer, server string) error {
	if err := o.checkAllowance(); err != nil {
		return err
	}
	if o.cfg.Interface != "" {
		server = "" // the link does not depend on the route to the server
	}
	return o.h.CheckAllowed(ctx, p, server)
}

// checkOnloadOpen returns why no connection is accepted now, nil if connections are.
func (o *onloadService) checkOnloadOpen() error {
	if why := o.h.Facts().RefusalReason; why != "" {
		return fmt.Errorf("it is suspended: %s", why)
	}
	return o.checkAllowance()
}

func (o *onloadService) trustChanged() {
	if o != nil {
		o.relay.TrustChanged()
	}
}

// serveOnload accepts connections until ctx ends, and announces this device while it has an
// allowance.
func (o *onloadService) serveOnload(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.plan != nil {
		all.Go(func() { o.plan.Run(ctx) })
	}
	if o.permit != nil {
		all.Go(func() { o.permit.Run(ctx) })
	}
	all.Go(func() { o.runAllowanceLoop(ctx) })
	failed := make(chan error, 1)
	if o.page != nil {
		o.page.printWithCode(os.Stderr)
		all.Go(func() {
			failed <- o.page.serveOnloadPage(ctx)
			cancel()
		})
	}
	slog.Info("onloading started", "listen", o.listener.Addr(), "allowance", o.cfg.Allowance)
	if err := o.relay.Serve(ctx, o.listener); ctx.Err() == nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// runAllowanceLoop updates the allowance, and announces this device while it is not used up, until
// ctx ends.
func (o *onloadService) runAllowanceLoop(ctx context.Context) {
	t := o.r.clock.NewTicker(allowanceInterval)
	defer t.Stop()
	for ctx.Err() == nil {
		if o.checkOnloadOpen() == nil {
			o.announceWhileOpen(ctx, t)
		}
		o.awaitChange(ctx, t)
	}
}

// announceWhileOpen announces this device until ctx ends or the allowance is used up.
func (o *onloadService) announceWhileOpen(ctx context.Context, t *pace.Ticker) {
	ctx, hide := context.WithCancel(ctx)
	var announcing sync.WaitGroup
	defer announcing.Wait()
	defer hide()
	if at, ok := o.listener.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		announcing.Go(func() {
			discovery.Announce(ctx, discovery.Announcement{Service: discovery.Onload, Port: at.Port}, o.r.clock,
				slog.Default())
		})
	}
	for ctx.Err() == nil && o.checkOnloadOpen() == nil {
		o.awaitChange(ctx, t)
	}
}

// awaitChange waits for the next tick, or a change of the permit, and updates the allowance.
func (o *onloadService) awaitChange(ctx context.Context, t *pace.Ticker) {
	var permitChanged <-chan struct{}
	if o.permit != nil {
		permitChanged = o.permit.Changed()
	}
	select {
	case <-ctx.Done():
	case <-t.C:
		o.updateAllowance(time.Now())
	case <-permitChanged: // TrustChanged closes connections that are no longer permitted
		o.updateAllowance(time.Now())
		o.relay.TrustChanged()
	}
}

// onloadStatus describes onloading for the API.
func (o *onloadService) onloadStatus() *api.OnloadStatus {
	if o == nil {
		return nil
	}
	n := o.current.Load()
	st := &api.OnloadStatus{
		Listen: o.listener.Addr().String(), Allowance: o.cfg.Allowance.String(), Open: true, Why: n.Reason,
		Bounded:  !n.Unlimited,
		DayBytes: n.Bytes, CarriedBytes: n.carried, Tunnels: []api.Tunnel{}, Page: o.page.pageStatus(),
	}
	if err := o.checkOnloadOpen(); err != nil {
		st.Open, st.Why = false, err.Error()
	}
	if n.Bytes > 0 {
		a := o.r.remainingAllowance(mydevice.CapTarget{Purpose: policy.ForOnload})
		st.LeftBytes, st.CarriedBytes = a.Room, a.Used
	}
	for _, t := range o.relay.Status().Tunnels {
		st.Tunnels = append(st.Tunnels, api.Tunnel{Device: t.Primary, Server: t.Server, Since: t.Since,
			UpBytes: unit.Bytes(t.Up), DownBytes: unit.Bytes(t.Down)})
	}
	return st
}

// describeOnload describes onloading for people in two lines.
func describeOnload(o api.OnloadStatus) (state, today string) {
	state = "onloading open"
	if !o.Open {
		state = "onloading closed"
	}
	left := ""
	if o.Bounded && o.DayBytes > 0 {
		left = fmt.Sprintf(" of %v, %v left", policy.Volume(o.DayBytes), policy.Volume(o.LeftBytes))
	}
	return fmt.Sprintf("%s at %s: %s", state, o.Listen, text.Printable(o.Why)),
		fmt.Sprintf("onloaded today: %v%s; %s now", policy.Volume(o.CarriedBytes), left,
			formatCount(len(o.Tunnels), "connection"))
}

// printOnload prints the state of onloading and the primaries that use it.
func printOnload(w io.Writer, o api.OnloadStatus) {
	state, today := describeOnload(o)
	fmt.Fprintf(w, "%s\n%s\n", state, today)
	by := o.ByDevice()
	for _, name := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(w, "  for %s: %s, %v so far\n", text.Printable(name), formatCount(by[name].Count, "connection"),
			policy.Volume(by[name].Bytes))
	}
	if o.Page != nil {
		printOnloadPage(w, *o.Page)
	}
}

// findOnloadHelpers searches the local networks for helpers that carry onloading.
func findOnloadHelpers(ctx context.Context) ([]discovery.Found, error) {
	return discovery.Find(ctx, discovery.Onload, time.Second)
}
