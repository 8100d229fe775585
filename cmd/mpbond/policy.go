// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/internal/cli"
	"mpbond/node/primary"
)

// loadPrimaryPolicy reads the policy file of p: the named one, which must exist, else policy.toml.
func (r *role) loadPrimaryPolicy(p *primary.Primary, named string) error {
	path, err := policyPath(r.config)
	if err != nil {
		return err
	}
	r.policy = p.Policy().File()
	return r.policy.Use(cmp.Or(named, path), named != "")
}

// policyKeeper returns the functions by which the API reads and changes a primary's policy.
func policyKeeper(p *primary.Primary) *api.PolicyManager {
	l := p.Policy()
	return &api.PolicyManager{Get: l.View, Put: l.SetText, Check: l.Check}
}

// loadDeviceTables reads the policy file of a helper, which applies no rules for apps. It is beside
// the configuration and may be missing. rec records changes.
func (r *role) loadDeviceTables(rec *trace.Recorder) (*api.PolicyManager, error) {
	path, err := policyPath(r.config)
	if err != nil {
		return nil, err
	}
	f, err := primary.OpenTables(path, slog.Default(), rec)
	r.policy = f
	return &api.PolicyManager{Get: f.Tables, Put: f.SetTables, Check: f.CheckTables}, err
}

// watchPolicy rereads the policy file when it changes, until ctx ends.
func (r *role) watchPolicy(ctx context.Context) error {
	path := r.policy.Path()
	changes, stop := watchFileChanges(path)
	defer stop()
	watchedFile{
		path:       path,
		hasContent: func() bool { return r.policy.Status() != nil },
		reload:     func() { r.policy.Reload(false) },
	}.handleChanges(ctx, nil, changes)
	return nil
}

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "show, check and explain the rules for apps and destinations",
		Long: `Show the rules for apps and destinations of the primary that runs here, check a file
with rules before it is used, and explain what would happen to a connection. The rules
are in policy.toml. A running primary or helper rereads the file when it changes. A
helper applies only its device limits and caps.`,
		Example: `  mpbond policy show
  mpbond policy check policy.toml.new
  mpbond policy why example.org:443 --app /usr/bin/curl`,
	}
	cmd.AddCommand(policyShowCommand(), policyCheckCommand(), policyWhyCommand())
	return cmd
}

func policyShowCommand() *cobra.Command {
	var socket string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show", Short: "show the rules in force, what they match, and their effect now", Args: cobra.NoArgs,
		Long: `Show the rules in force at the primary that runs here, what they match, their effect
now, and the limits and caps of devices. If only a helper runs here, show those of the
helper.`,
		Example: "  mpbond policy show\n  mpbond policy show --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := queryPolicy(cmd.Context(), cmp.Or(socket, api.SocketPath("primary")))
			if fault.Is(err, fault.NotRunning) && socket == "" {
				if helps, notThere := queryPolicy(cmd.Context(), api.SocketPath("helper")); !fault.Is(notThere,
					fault.NotRunning) {
					p, err = helps, notThere
				}
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				return cli.PrintJSON(cmd.OutOrStdout(), p)
			}
			return printPolicy(cmd.OutOrStdout(), p)
		},
	}
	addPolicyFlags(cmd, &socket, &asJSON)
	return cmd
}

func addPolicyFlags(cmd *cobra.Command, socket *string, asJSON *bool) {
	cmd.Flags().StringVar(socket, "socket", "", "ask the mpbond at this `PATH`")
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

func queryPolicy(ctx context.Context, socket string) (api.Policy, error) {
	c := client.New(socket)
	defer c.Close()
	return c.Policy(ctx)
}

// printPolicy prints the rules in force.
func printPolicy(w io.Writer, p api.Policy) error {
	since := "no such file"
	if p.Loaded != nil {
		since = fmt.Sprintf("%d rules in force since %s", len(p.Rules), p.Loaded.Local().Format("2006-01-02 15:04:05"))
	}
	fmt.Fprintf(w, "%s: %s; default: %s\n", text.Printable(p.File), since, p.Default)
	if e := p.Refused; e != nil {
		fmt.Fprintln(w, "the present file is invalid and not in force:", text.Printable(e.Text))
		if e.Hint != "" {
			fmt.Fprintln(w, "hint:", text.Printable(e.Hint))
		}
	}
	if len(p.Devices) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "DEVICE\tLIMITS")
		for _, d := range p.Devices {
			fmt.Fprintf(t, "%s\t%s\n", text.Printable(d.Name), describeLimits(d))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(p.Rules) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RULE\tMATCHES\tMODE\tMATCHED\tNOW")
	for _, r := range p.Rules {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", text.Printable(r.Name), text.Printable(describeConditions(r.When)),
			text.Printable(describeClass(r.PolicyClass)), r.Matched, text.Printable(r.Reason))
	}
	return t.Flush()
}

// describeConditions formats the conditions of a rule, in the order of the documentation.
func describeConditions(when map[string][]string) string {
	var parts []string
	for _, k := range []string{"app", "cgroup", "label", "uid", "domain", "address", "port"} {
		if v := when[k]; len(v) > 0 {
			parts = append(parts, k+"="+strings.Join(v, ","))
		}
	}
	if len(parts) == 0 {
		return "everything"
	}
	return strings.Join(parts, " ")
}

// describeClass formats how a rule has connections carried.
func describeClass(t api.PolicyClass) string {
	parts := []string{t.Mode}
	if len(t.Device) > 0 {
		parts = append(parts, "device="+strings.Join(t.Device, ","))
	}
	if len(t.Pipe) > 0 {
		parts = append(parts, "pipe="+strings.Join(t.Pipe, ","))
	}
	if t.Priority != "" && t.Priority != "normal" {
		parts = append(parts, t.Priority)
	}
	if t.Weight > 1 {
		parts = append(parts, "weight="+strconv.Itoa(t.Weight))
	}
	return strings.Join(parts, " ")
}

// describeLimits formats the limits of a device.
func describeLimits(d api.PolicyDevice) string {
	var parts []string
	say := func(set bool, format string, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	say(d.Tier != "", "tier %s", d.Tier)
	if d.Metered != nil {
		say(*d.Metered, "metered")
		say(!*d.Metered, "not metered")
	}
	say(d.BatteryFloorPercent > 0, "suspended below %d %% battery", d.BatteryFloorPercent)
	say(d.MaxTemperatureC > 0, "suspended from %v °C", d.MaxTemperatureC)
	say(d.DailyCapBytes > 0, "at most %v a day", policy.Volume(d.DailyCapBytes))
	say(d.MonthlyCapBytes > 0, "at most %v a month", policy.Volume(d.MonthlyCapBytes))
	say(d.ResetDay > 0, "months begin on day %d", d.ResetDay)
	say(d.StopAtPercent > 0, "warning at %v %%, stop at %v %%", d.WarnAtPercent, d.StopAtPercent)
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func policyWhyCommand() *cobra.Command {
	var socket, file string
	var asJSON bool
	var flow api.PolicyFlow
	var uid uint32
	cmd := &cobra.Command{
		Use: "why HOST:PORT", Short: "explain what would happen to a connection, and by which rule",
		Args: cobra.ExactArgs(1),
		Long: `Explain what would happen to a connection to HOST:PORT, by which rule, and which
subflows would carry it now. It opens no connection. The primary that runs here answers.

Describe the program and the destination with flags. A rule with a key that no flag
gives does not match: without --app no rule with app matches.`,
		Example: `  mpbond policy why example.org:443
  mpbond policy why 192.0.2.7:22 --app /usr/bin/ssh --uid 1000
  mpbond policy why example.org:443 --file policy.toml.new`,
		RunE: func(cmd *cobra.Command, args []string) error {
			host, port, err := net.SplitHostPort(args[0])
			if err != nil {
				return cli.UsageError("%v: write it like example.org:443", err)
			}
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil || n == 0 || host == "" {
				return cli.UsageError("%q: write it like example.org:443", args[0])
			}
			flow.Host, flow.Port = host, uint16(n)
			if cmd.Flags().Changed("uid") {
				flow.UID = &uid
			}
			check := api.PolicyCheck{Flow: &flow}
			if file != "" {
				text, err := readPolicy(cmd.InOrStdin(), file)
				if err != nil {
					return err
				}
				check.Text = new(string)
				*check.Text = string(text)
			}
			c := client.New(cmp.Or(socket, api.SocketPath("primary")))
			defer c.Close()
			a, err := c.CheckPolicy(cmd.Context(), check)
			switch {
			case err != nil:
				return err
			case asJSON:
				return cli.PrintJSON(cmd.OutOrStdout(), a)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", text.Printable(describeClass(*a.Verdict)),
				text.Printable(a.Verdict.Reason))
			return err
		},
	}
	addPolicyFlags(cmd, &socket, &asJSON)
	f := cmd.Flags()
	f.StringVar(&file, "file", "", "use the rules in this `FILE` instead of those in force; - is standard input")
	f.StringVar(&flow.App, "app", "", "assume this `PATH` of the program's executable")
	f.StringVar(&flow.Cgroup, "cgroup", "", "assume this `PATH` of its control group")
	f.StringVar(&flow.Label, "label", "", "assume this `LABEL` of mpbond run")
	f.Uint32Var(&uid, "uid", 0, "assume that it runs as the user with this `NUMBER`")
	f.StringVar(&flow.Name, "name", "", "assume this `NAME` of the destination, if HOST is an address")
	return cmd
}
