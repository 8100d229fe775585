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

// loadPolicy reads the policy file for p, the one that was named or else
// policy.toml, which need not exist.
func (r *role) loadPolicy(p *primary.Primary, named string) error {
	path, err := policyPath(r.config)
	if err != nil {
		return err
	}
	r.policy = p.Policy().File()
	return r.policy.Use(cmp.Or(named, path), named != "")
}

// policyKeeper is a primary's policy for the API.
func policyKeeper(p *primary.Primary) *api.PolicyManager {
	l := p.Policy()
	return &api.PolicyManager{Get: l.View, Put: l.SetText, Check: l.Check}
}

// loadDeviceTables reads the policy file of a role that has no rules for apps, beside its
// configuration. It need not exist. Rec is told of changes.
func (r *role) loadDeviceTables(rec *trace.Recorder) (*api.PolicyManager, error) {
	path, err := policyPath(r.config)
	if err != nil {
		return nil, err
	}
	f, err := primary.OpenTables(path, slog.Default(), rec)
	r.policy = f
	return &api.PolicyManager{Get: f.Tables, Put: f.SetTables, Check: f.CheckTables}, err
}

// watchPolicy reads the policy file again when it has changed, until ctx ends.
func (r *role) watchPolicy(ctx context.Context) error {
	path := r.policy.Path()
	changes, stop := watchFile(path)
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
		Long: `Show which rules for apps and destinations are in force at the primary that runs
here, check a file with rules before it is used, and tell what would happen to a
connection. The rules are in policy.toml, which a running primary or helper reads
again when it changes; of it a helper keeps to what is said of devices and caps.`,
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
		Use: "show", Short: "show the rules in force, what they match, and what that means now", Args: cobra.NoArgs,
		Long: `Show the rules in force at the primary that runs here, what they match, and what
that means now, and what is said of devices and their caps; where there is only a
helper, its.`,
		Example: "  mpbond policy show\n  mpbond policy show --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := queryPolicy(cmd.Context(), cmp.Or(socket, api.SocketPath("primary")))
			if fault.Is(err, fault.NotRunning) && socket == "" {
				if helps, notThere := queryPolicy(cmd.Context(), api.SocketPath("helper")); !fault.Is(notThere, fault.NotRunning) {
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

// printPolicy prints what is in force.
func printPolicy(w io.Writer, p api.Policy) error {
	since := "there is no such file"
	if p.Loaded != nil {
		since = fmt.Sprintf("%d rules in force since %s", len(p.Rules), p.Loaded.Local().Format("2006-01-02 15:04:05"))
	}
	fmt.Fprintf(w, "%s: %s; default: %s\n", text.Printable(p.File), since, p.Default)
	if e := p.Refused; e != nil {
		fmt.Fprintln(w, "the file as it is now is not in force:", text.Printable(e.Text))
		if e.Hint != "" {
			fmt.Fprintln(w, "hint:", text.Printable(e.Hint))
		}
	}
	if len(p.Devices) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "DEVICE\tSAYS")
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", text.Printable(r.Name), text.Printable(describeConditions(r.When)), text.Printable(describeClass(r.PolicyClass)), r.Matched, text.Printable(r.Reason))
	}
	return t.Flush()
}

// describeConditions is what a rule asks for, in the order of the documents.
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

// describeClass is what a rule says.
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

// describeLimits is what a table of a device says.
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
	say(d.BatteryFloorPercent > 0, "rests below a battery of %d %%", d.BatteryFloorPercent)
	say(d.MaxTemperatureC > 0, "rests from %v °C on", d.MaxTemperatureC)
	say(d.DailyCapBytes > 0, "at most %v a day", policy.Volume(d.DailyCapBytes))
	say(d.MonthlyCapBytes > 0, "at most %v a month", policy.Volume(d.MonthlyCapBytes))
	say(d.ResetDay > 0, "which begins on day %d", d.ResetDay)
	say(d.StopAtPercent > 0, "warned of at %v %%, stopped at %v %%", d.WarnAtPercent, d.StopAtPercent)
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func policyWhyCommand() *cobra.Command {
	var socket, file string
	var asJSON bool
	var flow api.PolicyFlow
	var uid uint32
	cmd := &cobra.Command{
		Use: "why HOST:PORT", Short: "tell what would happen to a connection, and by which rule", Args: cobra.ExactArgs(1),
		Long: `Tell what would happen to a connection to HOST:PORT, by which rule, and which
subflows would carry it now. The primary that runs here is asked. Of the program
what is not told is unknown, and matches no rule that asks for it.`,
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
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", text.Printable(describeClass(*a.Verdict)), text.Printable(a.Verdict.Reason))
			return err
		},
	}
	addPolicyFlags(cmd, &socket, &asJSON)
	f := cmd.Flags()
	f.StringVar(&file, "file", "", "by the rules in this `FILE` instead of those in force; - is the standard input")
	f.StringVar(&flow.App, "app", "", "`PATH` of the program's executable")
	f.StringVar(&flow.Cgroup, "cgroup", "", "`PATH` of its control group")
	f.StringVar(&flow.Label, "label", "", "`LABEL` that mpbond run was given")
	f.Uint32Var(&uid, "uid", 0, "`NUMBER` of the user that it runs as")
	f.StringVar(&flow.Name, "name", "", "`NAME` of the destination, where HOST is an address")
	return cmd
}
