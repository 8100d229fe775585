// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	mydevice "mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/internal/cli"
	"mpbond/link/tcp"
	"mpbond/node/doctor"
	"mpbond/node/intercept/tun"
	"mpbond/node/primary"
)

type doctorOptions struct {
	subflows                []string // names to check; none: all
	config, socket          string
	asJSON, noRate, metered bool
	repair                  bool
}

func doctorCommand() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use: "doctor [SUBFLOW…]", Short: "find out what works and what limits the rate",
		ValidArgsFunction: completeSubflow,
		Long: `Check each link and hop between this device, its helpers and its server: whether it
answers, its rate both ways, round trip, loss and packet size, NAT, IPv6, DNS,
clock, captive portals. Name the bottleneck and what may help.

SUBFLOW is the name of a helper or, for a direct subflow, the name that mpbond
status shows. Without names it checks all subflows.

If a primary runs here, its helpers are checked too; else only this device's path
to the server. On a helper its pipes and the path to the servers are checked, on a
server its devices.

Rates are measured over each subflow, for 2 seconds down and 2 seconds up, with at most
24 MB each, also of mobile data. --no-rate skips that: start with it. Metered links,
backups and local links with a cap are skipped unless --metered is given. mpbond usage
counts these bytes, except those of the doctor's own connections beside a running
primary.

--repair first removes what killed processes of mpbond run and --tun left in the
kernel: ip rules, routes, control groups, sockets. Every role that starts with
the rights to do so removes them too.

Only this device's resolver and its server are queried. The exit code is 0 if all
works, even slowly; 3 if something cannot be reached; else as for other commands.`,
		Example: `  mpbond doctor --no-rate
  mpbond doctor
  mpbond doctor --json | jq .bottleneck`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.subflows = args
			return runDoctorChecks(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&o.config, "config", "", "read this configuration `FILE` instead of primary.toml")
	cmd.Flags().StringVar(&o.socket, "socket", "", "ask the primary at this `PATH`")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON, on one line")
	cmd.Flags().BoolVar(&o.noRate, "no-rate", false, "skip the measurement of rates, which costs data")
	cmd.Flags().BoolVar(&o.repair, "repair", false, "remove what killed processes left in the kernel (as root)")
	cmd.Flags().BoolVar(&o.metered, "metered", false, "measure rates of metered and capped links and of backups too")
	return cmd
}

// runDoctorChecks collects facts, evaluates them and prints the report.
func runDoctorChecks(ctx context.Context, o doctorOptions, stdout, stderr io.Writer) error {
	if o.repair {
		removed, err := removeLeftovers()
		for _, what := range removed {
			fmt.Fprintf(stderr, "removed: %s\n", text.Printable(what))
		}
		if err != nil {
			kind := cli.IfElse(errors.Is(err, os.ErrPermission), fault.Permission, fault.Other)
			return fault.New(kind, fmt.Errorf("repair: %w", err), "run `sudo mpbond doctor --repair`")
		}
		if len(removed) == 0 {
			fmt.Fprintln(stderr, "killed processes left nothing")
		}
	}
	p, closeClient, err := o.inspectDevice(ctx)
	var r doctor.Report
	if err != nil {
		r = doctor.Evaluate(doctor.Facts{Setup: &doctor.Problem{Kind: fault.KindOf(err), Text: err.Error(),
			Hint: fault.HintOf(err)}})
	} else {
		defer closeClient()
		if p.Rates && !o.asJSON {
			fmt.Fprintf(stderr, "measuring rates with up to %v each way over each subflow; --no-rate skips that\n",
				doctor.RateBytes)
		}
		line := cli.NewSteps(cli.IfElse(o.asJSON, io.Discard, stderr))
		p.Progress = func(what string) { line.Show(what + " …") }
		probeUsage := mydevice.NewUsage(slog.Default())
		if p.Status == nil { // else the file belongs to the running role
			p.Ledger = probeUsage.LedgerFor(policy.ForDirect)
		}
		f := doctor.Gather(ctx, p)
		line.Clear()
		if err := addProbeUsage(probeUsage); err != nil {
			slog.Error("measurement not counted as usage", "err", err, "hint", fault.HintOf(err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, name := range o.subflows {
			if !slices.ContainsFunc(f.Subflows, func(l doctor.Subflow) bool { return l.Name == name }) {
				return fault.New(fault.Usage, fmt.Errorf("there is no subflow %q", name),
					"`mpbond status` lists them as devices; without a name all are checked")
			}
		}
		r = doctor.Evaluate(f)
	}
	if o.asJSON {
		err = cli.PrintJSON(stdout, r)
	} else {
		err = printDoctorReport(stdout, r)
	}
	if err == nil && r.Kind != "" {
		err = &cli.ExitStatus{Code: cli.ExitCodeOfKind(r.Kind)}
	}
	return err
}

// addProbeUsage adds the bytes of the measurement to the usage of the primary, which is not
// running.
func addProbeUsage(probeUsage *mydevice.Usage) error {
	list, _ := probeUsage.List()
	if len(list) == 0 {
		return nil
	}
	path, err := primaryUsagePath()
	if err != nil {
		return err
	}
	err = mydevice.AddRecords(path, list)
	if fault.Is(err, fault.AlreadyRunning) {
		err = fault.New(fault.AlreadyRunning, err, "mpbond has started meanwhile and uses the file")
	}
	return err
}

// inspectDevice describes this device from its files and from the role that runs here, if any.
func (o doctorOptions) inspectDevice(ctx context.Context) (p doctor.Config, done func(), err error) {
	path, err := cli.KeyPath()
	if err != nil {
		return p, nil, err
	}
	key, err := identity.LoadKey(path) // a missing key is a finding, so it is not created
	if fault.Is(err, fault.NotFound) {
		return p, nil, addServiceHint(notPairedError(), path, cli.RootStateDir)
	}
	if err != nil {
		return p, nil, err
	}
	trust, err := cli.OpenTrust()
	if err != nil {
		return p, nil, err
	}
	p = doctor.Config{Key: key, Only: o.subflows, Version: cli.Version, Now: time.Now}
	st, done, err := o.queryRunningRole(ctx, &p)
	if err != nil {
		return p, nil, err
	}
	switch p.Role = chooseRole(st.Role, trust); p.Role {
	case identity.RoleServer:
	case identity.RoleHelper:
		p.Server.Addresses = listHelpedServers(trust)
	default:
		err = o.configurePrimary(&p, trust, st)
	}
	if err != nil {
		done()
	}
	return p, done, err
}

// notPairedError returns the error of a device that knows no other device.
func notPairedError() error {
	return fault.New(fault.NotFound, errors.New("this device is not paired with any other"),
		"start `mpbond server` on a server and `mpbond helper` on a helper: each prints a code; then run `mpbond "+
			"pair CODE` and `mpbond primary` here")
}

// addServiceHint extends the hint of a missing key at path if the directory of the services exists:
// their files can only be read by root.
func addServiceHint(err error, path, state string) error {
	if !fault.Is(err, fault.NotFound) || filepath.Dir(path) == state || !userfile.Exists(state) {
		return err
	}
	return fault.New(fault.NotFound, err,
		"if mpbond is a service here run `sudo mpbond doctor`; else "+fault.HintOf(err))
}

// chooseRole returns the role to examine: the running one, else the one that the trusted devices
// imply.
func chooseRole(running string, trust *identity.Trust) identity.Role {
	switch {
	case running == string(identity.RoleHelper), running == string(identity.RoleServer):
		return identity.Role(running)
	case running != "" || len(trust.ByRole(identity.RoleServer)) > 0:
		return identity.RolePrimary
	}
	role := identity.RolePrimary
	for _, p := range trust.ByRole(identity.RolePrimary) {
		if role = identity.RoleServer; len(p.Servers) > 0 {
			return identity.RoleHelper
		}
	}
	return role
}

// listHelpedServers returns the addresses of the servers to which a helper carries subflows.
func listHelpedServers(trust *identity.Trust) (list []string) {
	for _, p := range trust.Peers() {
		at := p.Servers
		if p.HasRole(identity.RoleServer) {
			at = p.Addresses
		}
		for _, a := range at {
			if !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	return list
}

// configurePrimary fills in the configuration of a primary. The status of a running primary takes
// precedence, since its flags may differ from the file.
func (o doctorOptions) configurePrimary(p *doctor.Config, trust *identity.Trust, st api.Status) (err error) {
	cfg := primary.Default
	if err := loadConfig(o.config, "primary", &cfg); err != nil {
		return err
	}
	if len(trust.Peers()) == 0 {
		return notPairedError()
	}
	if len(st.Bonds) > 0 && st.Bonds[0].Peer != "" {
		cfg.Server = st.Bonds[0].Peer
	}
	if p.Server, err = primary.ServerOf(cfg, trust); err != nil {
		return err
	}
	if err := tcp.CheckCongestion(cfg.Congestion, len(cfg.UDP) > 0); err != nil {
		return err
	}
	p.Helpers, p.Name, p.Interfaces = trust.ByRole(identity.RoleHelper), cmp.Or(cfg.Name, "primary"), cfg.Interfaces
	p.Metered, p.Congestion, p.Rates, p.MeteredRates = cfg.Metered, cfg.Congestion, !o.noRate, o.metered
	if cfg.Proxy != "" {
		p.Ports = append(p.Ports, doctor.Port{What: "apps", At: cfg.Proxy})
	}
	for at := range strings.SplitSeq(cfg.Pipe, ",") {
		if at = strings.TrimSpace(at); at != "" && !strings.Contains(at, "://") {
			p.Ports = append(p.Ports, doctor.Port{What: "helpers", At: at})
		}
	}
	if cfg.TUN || tun.Present() {
		p.Mark = tcp.OwnMark
	}
	if st.SOCKS != "" {
		p.SOCKS = proxyDialAddress(st.SOCKS)
	}
	setDirectSubflows(st, p)
	p.Host, _ = os.Hostname()
	named := cfg.Policy
	if st.Policy != nil {
		named = st.Policy.File
	}
	if p.Policy, err = o.loadDevicePolicy(named); p.Status != nil {
		return nil // the running primary reports errors of the file
	}
	return err
}

// loadDevicePolicy returns what the policy file says of devices: the named file, or the one beside
// the configuration. It returns nil if there is none.
func (o doctorOptions) loadDevicePolicy(named string) (func(string) policy.DeviceSpec, error) {
	path, err := policyPath(o.config)
	if err != nil {
		return nil, err
	}
	path = cmp.Or(named, path)
	text, err := config.ReadFile(path)
	if fault.Is(err, fault.NotFound) && named == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rules, err := primary.ParsePolicy(path, text)
	if err != nil {
		return nil, err
	}
	return rules.Device, nil
}

// queryRunningRole asks the role that runs here, if any. done closes the client.
func (o doctorOptions) queryRunningRole(ctx context.Context, p *doctor.Config) (st api.Status, done func(), err error) {
	sockets := []string{o.socket}
	if o.socket == "" {
		sockets = []string{api.SocketPath("primary"), api.SocketPath("dual"), api.SocketPath("helper"),
			api.SocketPath("server")}
	}
	for _, path := range sockets {
		c := client.New(path)
		if st, err = c.Status(ctx, false); err == nil {
			p.Status = func(ctx context.Context) (api.Status, error) { return c.Status(ctx, false) }
			return st, c.Close, nil
		}
		c.Close()
		if !fault.Is(err, fault.NotRunning) || o.socket != "" {
			return st, nil, err
		}
	}
	return st, func() {}, nil
}

// setDirectSubflows takes the names of the direct subflows from a running primary.
func setDirectSubflows(st api.Status, p *doctor.Config) {
	var found []string
	for _, b := range st.Bonds {
		for _, path := range b.Subflows {
			if path.Kind == api.Helped || slices.ContainsFunc(p.Helpers,
				func(h identity.Peer) bool { return h.Name == path.Device }) {
				continue
			}
			name, iface, _ := strings.Cut(path.Device, "/")
			p.Name = name
			if !slices.Contains(found, iface) {
				found = append(found, iface)
			}
		}
	}
	if len(found) > 0 {
		p.Interfaces = found
	}
	if slices.Equal(p.Interfaces, []string{""}) {
		p.Interfaces = nil
	}
}

// printDoctorReport prints r for people, with the bottleneck last, where people look first.
func printDoctorReport(w io.Writer, r doctor.Report) error {
	var page strings.Builder
	t := tabwriter.NewWriter(&page, 0, 0, 2, ' ', 0)
	for _, f := range r.Findings {
		what := f.Check
		if f.Subject != "" {
			what += " " + f.Subject
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Level, text.Printable(what), text.Printable(f.Text))
		if f.Hint != "" && f.Level != doctor.OK {
			fmt.Fprintf(t, "\t\t  %s\n", text.Printable(f.Hint))
		}
	}
	_ = t.Flush()
	if len(r.Subflows) > 0 {
		fmt.Fprintln(t, "\nSUBFLOW\tHOP\tDOWN\tUP\tRTT\tLOSS\tMTU")
		for _, l := range r.Subflows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\t\t\n", text.Printable(l.Name), cli.IfElse(l.Up, l.Kind, "down"),
				formatMeasuredRate(l.DownBps, false), formatMeasuredRate(l.UpBps, false))
			for _, h := range l.Hops {
				fmt.Fprintf(t, "\t%s\t%s\t%s\t%s\t%.1f %%\t%s\n", h.Name, formatMeasuredRate(h.DownBps, h.DownAtLeast),
					formatMeasuredRate(h.UpBps, h.UpAtLeast), cli.FormatMilliseconds(h.RTTms), 100*h.Loss, formatSize(h.MTU))
			}
		}
		_ = t.Flush()
	}
	fmt.Fprintf(&page, "\nbottleneck: %s\n", text.Printable(r.Bottleneck.Text))
	if r.Bottleneck.Advice != "" {
		fmt.Fprintf(&page, "what may help: %s\n", text.Printable(r.Bottleneck.Advice))
	}
	_, err := io.WriteString(w, page.String())
	return err
}

// formatMeasuredRate formats a measured rate: "-" for none, "≥" before a lower bound.
func formatMeasuredRate(r unit.Rate, atLeast bool) string {
	switch {
	case r == 0:
		return "-"
	case atLeast:
		return "≥ " + r.String()
	}
	return r.String()
}

// formatSize formats a packet size, "-" for none.
func formatSize(n unit.Bytes) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(int64(n))
}
