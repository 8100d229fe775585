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
	// Allowance is how much may be carried: so much in a day, as "50MB"; "caps", what
	// Plan usually leaves over; "permit HOST:PORT", while the operator's service there
	// permits it; or "unlimited". Without it nothing is carried, and nobody listens.
	Allowance allowance.Choice `toml:"allowance"`
	// Listen is where primaries call, "host:port"; empty is ":7604".
	Listen string `toml:"listen"`
	// Interface is the one by which servers are connected to; empty is the helper's
	// hs_interface, or as the routes say.
	Interface string `toml:"interface"`
	// Plan is what the mobile plan of Interface has in a month, like "10GB", for "caps".
	Plan policy.Volume `toml:"plan"`
	// ResetDay is when a month of Plan begins, 1 to 31; 0 is 1.
	ResetDay int `toml:"reset_day"`
	// Bills are what was used of Plan in the months before mpbond began to count, oldest
	// first, like ["6.2GB", "5.9GB"]; five are of use.
	Bills []policy.Volume `toml:"bills"`
	// PermitKey is the key of the service that permits, which is pinned.
	PermitKey string `toml:"permit_key"`
	// PermitCell is the cell that this device is in, as the service calls it; empty is
	// the only one that it has.
	PermitCell string `toml:"permit_cell"`
	// Allow lists addresses that are connected to although they are private, like
	// "192.168.7.0/24".
	Allow []netip.Prefix `toml:"allow"`
	// Page is the helper's own page, by which photos of a browser go up: [onload.page].
	Page pageConfig `toml:"page"`
}

// addOnloadFlag is that by which an allowance is given.
func addOnloadFlag(cmd *cobra.Command, text *string) {
	cmd.Flags().StringVar(text, "onload", "", `take connections of primaries that onload, by this ALLOWANCE: "50MB" a day, "caps", "permit HOST:PORT" or "unlimited"; without one, as [onload] in the file says`)
	cmd.Flags().Lookup("onload").NoOptDefVal = " "
}

// rejectStrayAllowance refuses arguments. One may be meant for --onload, which takes it only
// behind "=", as it may stand alone.
func rejectStrayAllowance(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.Flags().Changed("onload") && new(allowance.Choice).UnmarshalText([]byte(args[0])) == nil {
		return cli.UsageError("%s is not taken for the allowance: write --onload=%[1]s", text.Printable(args[0]))
	}
	return cobra.NoArgs(cmd, args)
}

// applyFlag applies the flag, if it was given.
func (c *onloadConfig) applyFlag(given bool, text string) error {
	if given && text != " " {
		return fault.New(fault.Usage, c.Allowance.UnmarshalText([]byte(text)), "see `mpbond helper --help`")
	}
	if given && c.Allowance == (allowance.Choice{}) {
		return fault.New(fault.Usage, errors.New("nothing says how much may be carried for onloading"), `say it, as in --onload=200MB, or set allowance in [onload] of helper.toml`)
	}
	return nil
}

// validate tells what cannot be.
func (c onloadConfig) validate() error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Config, fmt.Errorf("[onload]: "+format, args...), "see docs/howto/onload.md")
	}
	switch {
	case c.Allowance.Caps && (c.Interface == "" || c.Plan == 0):
		return bad("allowance by caps needs interface, whose plan it is, and plan, what that has in a month")
	case !c.Allowance.Caps && (c.Plan != 0 || c.ResetDay != 0 || len(c.Bills) > 0):
		return bad(`plan, reset_day and bills are of the allowance "caps"`)
	case c.ResetDay < 0 || c.ResetDay > 31:
		return bad("reset_day is %d; days are 1 to 31", c.ResetDay)
	case (c.Allowance.Permit != "") != (c.PermitKey != "") || c.PermitCell != "" && c.PermitKey == "":
		return bad(`the allowance "permit HOST:PORT" and permit_key belong together`)
	}
	return c.Page.validate(c)
}

// allOnloadName stands, among caps, for what is carried for onloading.
const allOnloadName = "all onloading"

// allowanceInterval is how often it is reckoned what may be carried.
const allowanceInterval = time.Second

// onloadService is what a helper carries for primaries that onload. Nil carries nothing.
type onloadService struct {
	cfg      onloadConfig
	r        *role
	h        *helper.Helper
	relay    *relay.Relay
	listener *tcp.Listener
	plan     *dataplan.Keeper // nil: not by caps
	permit   *permit.Keeper   // nil: not by permit
	page     *onloadPage      // nil: none
	current  atomic.Pointer[dailyAllowance]
}

// dailyAllowance is what may be carried, and was, today.
type dailyAllowance struct {
	allowance.DayLimit
	carried unit.Bytes
}

// initOnload has the role listen for primaries that onload, if its owner wants that. It is
// to be called before enforceCaps and serve.
func (r *role) initOnload(cfg onloadConfig, helperConfig helper.Config, key *identity.Key, h *helper.Helper) (err error) {
	idle := cfg.Allowance == (allowance.Choice{}) && !reflect.ValueOf(cfg).IsZero()
	cfg.Interface = cmp.Or(cfg.Interface, helperConfig.HSInterface)
	if err := cfg.validate(); err != nil || cfg.Allowance == (allowance.Choice{}) {
		if err == nil && idle {
			slog.Warn("nothing is carried for onloading: [onload] has no allowance", "hint", "set allowance, or give --onload=200MB")
		}
		return err
	}
	for _, name := range []string{cfg.Interface, cfg.Page.Home} {
		if _, err := net.InterfaceByName(name); name != "" && err != nil {
			slog.Warn("an interface of [onload] is not there now", "interface", name, "hint", "`ip link` lists those that are")
		}
	}
	o := &onloadService{cfg: cfg, r: r, h: h}
	line := tcp.Options{Congestion: helperConfig.HSCongestion, Interface: cfg.Interface, Mark: helperConfig.Mark, KeepAlive: tcp.RadioKeepAlive}
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
			asker := permit.Client{Key: key, Address: cfg.Allowance.Permit, Service: service, Cell: cfg.PermitCell, Options: tcp.Options{Mark: helperConfig.Mark}}
			o.permit, err = permit.NewKeeper(asker.WatchPermit, path, slog.Default())
		}
		if err != nil {
			return err
		}
	}
	at := cmp.Or(cfg.Listen, ":"+strconv.Itoa(relay.Port))
	if o.listener, err = tcp.Listen(context.Background(), at, tcp.Options{Mark: helperConfig.Mark, Ledger: h.CountShared(r.usage.LedgerFor(policy.ForPipe))}); err != nil {
		return cli.ExplainListenError(err, "`listen` in [onload]")
	}
	line.Ledger = h.CountShared(r.usage.LedgerFor(policy.ForOnload))
	o.relay = relay.New(relay.Config{Key: key, Trust: r.trust, Uplink: line, AllowedPrefixes: cfg.Allow, Unmetered: cfg.Allowance.Unlimited, CheckAllowed: o.checkPrimary, Log: slog.Default()})
	o.updateAllowance(time.Now())
	if err := o.initPage(helperConfig.Mark); err != nil {
		return err
	}
	r.onload = o
	return nil
}

// computeToday is what may be carried today, of which onloaded was carried by Interface on each
// day.
func (o *onloadService) computeToday(now time.Time, onloaded map[string]unit.Bytes) allowance.DayLimit {
	switch {
	case o.cfg.Allowance.Unlimited:
		return allowance.DayLimit{Unlimited: true, Reason: "its owner sets no bound"}
	case o.permit != nil:
		return o.permit.DayLimit()
	case o.plan != nil:
		h := allowance.History{}
		for day, all := range o.plan.Days() {
			h[day] = allowance.Day{AllBytes: all, OnloadBytes: onloaded[day]}
		}
		return allowance.Plan{Cap: o.cfg.Plan, ResetDay: o.cfg.ResetDay, Bills: o.cfg.Bills}.DayLimit(now, h)
	}
	return allowance.DayLimit{Bytes: unit.Bytes(o.cfg.Allowance.Daily), Reason: "its owner allows so much in a day"}
}

// updateAllowance reckons what may be carried now.
func (o *onloadService) updateAllowance(now time.Time) {
	list, _ := o.r.usage.List() // why it is not kept is told elsewhere
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
	if before := o.current.Swap(n); before == nil || before.Unlimited != n.Unlimited || (before.Bytes > 0) != (n.Bytes > 0) {
		slog.Info("allowance for onloading", "open", n.Err() == nil, "why", n.Reason)
	}
}

// addOnloadCap adds what may be carried to the caps that are kept to, a map of the caller's.
func (o *onloadService) addOnloadCap(caps map[string]policy.Caps) map[string]policy.Caps {
	if o == nil {
		return caps
	}
	if n := o.current.Load(); n.Bytes > 0 {
		caps[allOnloadName] = policy.Caps{Daily: policy.Volume(n.Bytes)}
	}
	return caps
}

// checkAllowance is why nothing may be carried for anybody, nil if it may be.
func (o *onloadService) checkAllowance() error {
	n := o.current.Load()
	if err := n.Err(); err != nil {
		return fault.New(fault.Limit, fmt.Errorf("the helper has no allowance: %w", err), "")
	}
	if n.Bytes > 0 { // it must be counted to be kept to
		if err := o.r.caps.CheckEnforced(allOnloadName); err != nil {
			return fault.New(fault.Unsupported, fmt.Errorf("what is carried is not counted: %w", err), "")
		}
	}
	for _, target := range []mydevice.CapTarget{{Purpose: policy.ForOnload}, {Link: o.cfg.Interface}} {
		if target == (mydevice.CapTarget{}) {
			continue // by which link it goes is seen for each connection
		}
		if a := o.r.remainingAllowance(target); a.Level == policy.CapReached {
			return fault.New(fault.Limit, fmt.Errorf("the helper has carried what it may: %v", a), "")
		}
	}
	return nil
}

// checkPrimary is why nothing is carried for a primary.
func (o *onloadService) checkPrimary(ctx context.Context, p identity.Peer, server string) error {
	if err := o.checkAllowance(); err != nil {
		return err
	}
	if o.cfg.Interface != "" {
		server = "" // routes do not say by which link it goes
	}
	return o.h.CheckAllowed(ctx, p, server)
}

// checkOpen is why no connection is taken, nil if they are.
func (o *onloadService) checkOpen() error {
	if why := o.h.Facts().RefusalReason; why != "" {
		return fmt.Errorf("suspended: %s", why)
	}
	return o.checkAllowance()
}

func (o *onloadService) trustChanged() {
	if o != nil {
		o.relay.TrustChanged()
	}
}

// serveOnload takes connections until ctx ends, and has this device found while it may.
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
			failed <- o.page.servePage(ctx)
			cancel()
		})
	}
	slog.Info("listens for onloading", "at", o.listener.Addr(), "allowance", o.cfg.Allowance)
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

// runAllowanceLoop reckons what may be carried, and announces this device while that is
// something, until ctx ends.
func (o *onloadService) runAllowanceLoop(ctx context.Context) {
	t := time.NewTicker(allowanceInterval)
	defer t.Stop()
	for ctx.Err() == nil {
		if o.checkOpen() == nil {
			o.announceWhileOpen(ctx, t)
		}
		o.awaitChange(ctx, t)
	}
}

// announceWhileOpen has this device found until ctx ends or nothing may be carried any more.
func (o *onloadService) announceWhileOpen(ctx context.Context, t *time.Ticker) {
	ctx, hide := context.WithCancel(ctx)
	var announcing sync.WaitGroup
	defer announcing.Wait()
	defer hide()
	if at, ok := o.listener.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		announcing.Go(func() { discovery.Announce(ctx, discovery.Onload, "", at.Port, slog.Default()) })
	}
	for ctx.Err() == nil && o.checkOpen() == nil {
		o.awaitChange(ctx, t)
	}
}

// awaitChange reckons once more when it is time.
func (o *onloadService) awaitChange(ctx context.Context, t *time.Ticker) {
	var permitChanged <-chan struct{}
	if o.permit != nil {
		permitChanged = o.permit.Changed()
	}
	select {
	case <-ctx.Done():
	case now := <-t.C:
		o.updateAllowance(now)
	case <-permitChanged: // what is carried ends, and nothing begins
		o.updateAllowance(time.Now())
		o.relay.TrustChanged()
	}
}

// onloadStatus is what the API tells of it.
func (o *onloadService) onloadStatus() *api.OnloadStatus {
	if o == nil {
		return nil
	}
	n := o.current.Load()
	st := &api.OnloadStatus{Listen: o.listener.Addr().String(), Allowance: o.cfg.Allowance.String(), Open: true, Why: n.Reason, Bounded: !n.Unlimited,
		DayBytes: n.Bytes, CarriedBytes: n.carried, Tunnels: []api.Tunnel{}, Page: o.page.pageStatus()}
	if err := o.checkOpen(); err != nil {
		st.Open, st.Why = false, err.Error()
	}
	if n.Bytes > 0 {
		a := o.r.remainingAllowance(mydevice.CapTarget{Purpose: policy.ForOnload})
		st.LeftBytes, st.CarriedBytes = a.Room, a.Used
	}
	for _, t := range o.relay.Status().Tunnels {
		st.Tunnels = append(st.Tunnels, api.Tunnel{Device: t.Primary, Server: t.Server, Since: t.Since, UpBytes: unit.Bytes(t.Up), DownBytes: unit.Bytes(t.Down)})
	}
	return st
}

// describeOnload tell people of it, in two lines.
func describeOnload(o api.OnloadStatus) (state, today string) {
	state = "takes connections for onloading"
	if !o.Open {
		state = "takes no connections for onloading now"
	}
	left := ""
	if o.Bounded && o.DayBytes > 0 {
		left = fmt.Sprintf(" of %v, %v are left", policy.Volume(o.DayBytes), policy.Volume(o.LeftBytes))
	}
	return fmt.Sprintf("%s at %s: %s", state, o.Listen, text.Printable(o.Why)),
		fmt.Sprintf("onloaded today: %v%s; %s now", policy.Volume(o.CarriedBytes), left, formatCount(len(o.Tunnels), "connection"))
}

// printOnload tells people of it, and for whom.
func printOnload(w io.Writer, o api.OnloadStatus) {
	state, today := describeOnload(o)
	fmt.Fprintf(w, "%s\n%s\n", state, today)
	by := o.ByDevice()
	for _, name := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(w, "  for %s: %s, %v by now\n", text.Printable(name), formatCount(by[name].Count, "connection"), policy.Volume(by[name].Bytes))
	}
	if o.Page != nil {
		printPage(w, *o.Page)
	}
}

// findOnloadHelpers looks for helpers on the local networks.
func findOnloadHelpers(ctx context.Context) ([]discovery.Found, error) {
	return discovery.Find(ctx, discovery.Onload, time.Second)
}
