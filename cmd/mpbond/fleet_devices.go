// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/control/fleet"
	"mpbond/internal/cli"
	"mpbond/link/pairing"
)

// fleetInvitation is the output of `fleet invite --json`.
type fleetInvitation struct {
	Code    string    `json:"code"`
	QR      string    `json:"qr"`
	Expires time.Time `json:"expires"`
}

func fleetInviteCommand(o *fleetOptions) *cobra.Command {
	var t fleet.InviteTerms
	var quota string
	n := 1
	cmd := &cobra.Command{
		Use: "invite", Short: "print a code by which one device can join the fleet", Args: cobra.NoArgs,
		Long: `Print a code by which one device can join the fleet: mpbond pair CODE on that device, which
any server of the fleet answers. Give the code to its user by a channel that others
cannot read. It names the fleet's key and up to three servers, those of the region first.`,
		Example: `  mpbond fleet invite --region eu
  mpbond fleet invite --group staff --quota 50GB --for 168h
  mpbond fleet invite --count 100 --json | jq -r .code`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n > 1 && t.Name != "" {
				return cli.UsageError("--name is for one device, and --count for several")
			}
			if n < 1 || n > fleet.MaxInvites || t.Life < time.Minute {
				return cli.UsageError("--count must be 1 to %d, and --for a minute or more", fleet.MaxInvites)
			}
			if quota != "" {
				if err := t.Quota.UnmarshalText([]byte(quota)); err != nil {
					return fault.New(fault.Usage, err, "write a quota like 50GB")
				}
			}
			return o.runOperator(cmd.Context(), func(_ fleet.Store, op *fleet.Operator) error {
				err := op.InviteMany(cmd.Context(), t, n, func(code pairing.Code, expires time.Time) (err error) {
					if o.asJSON {
						return cli.PrintJSON(cmd.OutOrStdout(), fleetInvitation{code.String(), code.QR(), expires})
					}
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "mpbond pair %s\n", code)
					return err
				})
				if err != nil {
					return err
				}
				if !o.asJSON {
					cmd.PrintErrf("valid for one device each, until %s\n",
						time.Now().Add(t.Life).Format("2 January 15:04"))
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&t.Region, "region", "", "name servers of this `REGION` first")
	cmd.Flags().StringVar(&t.Name, "name", "", "give the device this `NAME`; empty: its own")
	cmd.Flags().StringSliceVar(&t.Groups, "group", nil, "put the device into this `GROUP`; repeatable")
	cmd.Flags().StringVar(&quota, "quota", "",
		"let the device carry this many `BYTES` a month, like 50GB; empty: no limit")
	cmd.Flags().DurationVar(&t.Life, "for", 24*time.Hour, "make the code valid for this `TIME`")
	cmd.Flags().IntVar(&n, "count", 1, "print this `NUMBER` of codes")
	return cmd
}

// fleetDevice is a device of a fleet. The JSON is a contract.
type fleetDevice struct {
	Name       string             `json:"name"`
	ID         identity.ID        `json:"id"`
	Key        identity.PublicKey `json:"key"`
	State      string             `json:"state"` // "active", "paused" or "revoked"
	Groups     []string           `json:"groups,omitempty"`
	QuotaBytes unit.Bytes         `json:"quota_bytes,omitempty"`
	Enrolled   time.Time          `json:"enrolled"`
	Server     string             `json:"server"` // that paired it
}

// toFleetDevice converts a device for output.
func toFleetDevice(d fleet.Device) fleetDevice {
	state := "active"
	switch {
	case d.Revoked:
		state = "revoked"
	case d.Paused:
		state = "paused"
	}
	return fleetDevice{d.Name, d.Key.ID(), d.Key, state, d.Groups, d.Quota, d.Enrolled, d.Server}
}

func fleetDevicesCommand(o *fleetOptions) *cobra.Command {
	var group string
	cmd := &cobra.Command{
		Use: "devices", Short: "list the devices of the fleet", Args: cobra.NoArgs,
		Long:    "List the devices of the fleet. With --json it prints one object for each.",
		Example: "  mpbond fleet devices\n  mpbond fleet devices --group staff --json | jq -r .name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.runReader(cmd.Context(), func(s fleet.Store) error {
				list, damaged, err := fleet.ReadDevices(cmd.Context(), s)
				if err != nil {
					return err
				}
				if group != "" {
					list = slices.DeleteFunc(list, func(d fleet.Device) bool {
						return !slices.Contains(d.Groups,
							group)
					})
				}
				if damaged > 0 {
					cmd.PrintErrf("%d records are damaged or not the fleet's; no server accepts them\n", damaged)
				}
				if o.asJSON {
					for _, d := range list {
						if err := cli.PrintJSON(cmd.OutOrStdout(), toFleetDevice(d)); err != nil {
							return err
						}
					}
					return nil
				}
				if len(list) == 0 {
					cmd.PrintErrln("no device yet: see `mpbond fleet invite --help`")
					return nil
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "DEVICE\tID\tSTATE\tGROUPS\tQUOTA\tENROLLED\tBY")
				for _, d := range list {
					f := toFleetDevice(d)
					quota := "-"
					if f.QuotaBytes > 0 {
						quota = f.QuotaBytes.String()
					}
					fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s\t%s\n", f.Name, f.ID, f.State,
						cmp.Or(strings.Join(f.Groups, " "), "-"),
						quota, f.Enrolled.Local().Format("2006-01-02 15:04"), text.Printable(f.Server))
				}
				return w.Flush()
			})
		},
	}
	cmd.Flags().StringVar(&group, "group", "", "list only devices of this `GROUP`")
	return cmd
}

// findFleetDevice returns the device with a name, ID or key.
func findFleetDevice(ctx context.Context, s fleet.Store, who string) (d fleet.Device, err error) {
	list, _, err := fleet.ReadDevices(ctx, s)
	if err != nil {
		return d, err
	}
	list = slices.DeleteFunc(list, func(d fleet.Device) bool {
		return d.Name != who && !strings.EqualFold(d.Key.ID().String(), who) && d.Key.String() != who
	})
	switch len(list) {
	case 0:
		return d, fault.New(fault.NotFound, fmt.Errorf("the fleet has no device called %.80q", who),
			"see `mpbond fleet devices`")
	case 1:
		return list[0], nil
	}
	return d, fault.New(fault.Usage, fmt.Errorf("%d devices are called %q", len(list), who),
		"name it by its ID: see `mpbond fleet devices`")
}

func fleetSetCommand(o *fleetOptions) *cobra.Command {
	var groups []string
	var quota string
	var paused bool
	cmd := &cobra.Command{
		Use: "set DEVICE", ValidArgsFunction: o.completeDevices, Args: cobra.ExactArgs(1),
		Short: "change the groups or quota of a device, or pause it",
		Long: `Change the groups or the quota of a device, or pause it: name, ID or key. A paused device,
and one that has used up its quota, is refused by all servers until that ends.`,
		Example: `  mpbond fleet set anna-laptop --quota 100GB
  mpbond fleet set anna-laptop --paused
  mpbond fleet set anna-laptop --paused=false`,
		RunE: func(cmd *cobra.Command, args []string) error {
			changed := cmd.Flags().Changed
			if !changed("group") && !changed("quota") && !changed("paused") {
				return cli.UsageError("nothing to change: give --group, --quota or --paused")
			}
			bytes := unit.Bytes(0)
			if quota != "" && quota != "0" {
				if err := bytes.UnmarshalText([]byte(quota)); err != nil {
					return fault.New(fault.Usage, err, "write a quota like 50GB; 0 is none")
				}
			}
			return o.runOperator(cmd.Context(), func(s fleet.Store, op *fleet.Operator) error {
				d, err := findFleetDevice(cmd.Context(), s, args[0])
				if err != nil {
					return err
				}
				if d, _, err = op.Rule(cmd.Context(), d.Key, func(r *fleet.Ruling) {
					overrideIfChanged(changed, "group", &r.Groups, groups)
					overrideIfChanged(changed, "quota", &r.Quota, bytes)
					overrideIfChanged(changed, "paused", &r.Paused, paused)
				}); err != nil {
					return err
				}
				if o.asJSON {
					return cli.PrintJSON(cmd.OutOrStdout(), toFleetDevice(d))
				}
				cmd.PrintErrf("%s is %s\n", d.Name, toFleetDevice(d).State)
				return nil
			})
		},
	}
	cmd.Flags().StringSliceVar(&groups, "group", nil,
		"put the device into this `GROUP`, in place of all others; repeatable")
	cmd.Flags().StringVar(&quota, "quota", "", "let the device carry this many `BYTES` a month; 0: no limit")
	cmd.Flags().BoolVar(&paused, "paused", false, "pause the device, or with =false resume it")
	return cmd
}

// fleetRevoked is the output of `fleet revoke --json`.
type fleetRevoked struct {
	fleetDevice
	Behind []string `json:"behind"` // servers that have not confirmed it
}

func fleetRevokeCommand(o *fleetOptions) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "revoke DEVICE", ValidArgsFunction: o.completeDevices, Args: cobra.ExactArgs(1),
		Short: "end the membership of a device at all servers",
		Long: `End the membership of a device: name, ID or key. All servers that reach the engine end its
connections within a second. The command waits until each server on the list has confirmed
that. It fails if one has not: a silent server that still runs may serve the device until
it reaches the engine, or until its --cache-life ends.

A new invitation lets the device join again.`,
		Example: "  mpbond fleet revoke anna-laptop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.runOperator(cmd.Context(), func(s fleet.Store, op *fleet.Operator) error {
				d, err := findFleetDevice(cmd.Context(), s, args[0])
				if err != nil {
					return err
				}
				d, behind, err := op.Revoke(cmd.Context(), d.Key, wait)
				if err != nil {
					return err
				}
				if o.asJSON {
					if err := cli.PrintJSON(cmd.OutOrStdout(), fleetRevoked{toFleetDevice(d), append([]string{},
						behind...)}); err != nil {
						return err
					}
				}
				if len(behind) > 0 {
					return fault.New(fault.Timeout, fmt.Errorf("%s is revoked, but %s has not confirmed it", d.Name,
						strings.Join(behind, ", ")),
						"if it runs it may serve the device until its cache is too old: see mpbond fleet status; "+
							"take a server that is gone off the list: mpbond fleet remove")
				}
				if !o.asJSON {
					cmd.PrintErrf("%s is revoked at all servers\n", d.Name)
				}
				return nil
			})
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 15*time.Second,
		"wait for this `TIME` until all servers have confirmed")
	return cmd
}

// fleetUsageRow has the bytes that a device has carried. The JSON is a contract.
type fleetUsageRow struct {
	Device      string     `json:"device"` // name; "" if the fleet has it no more
	ID          string     `json:"id"`
	Month       string     `json:"month"` // the last one with bytes, like "2026-11"
	MonthDown   unit.Bytes `json:"month_down_bytes"`
	MonthUp     unit.Bytes `json:"month_up_bytes"`
	Down        unit.Bytes `json:"down_bytes"`
	Up          unit.Bytes `json:"up_bytes"`
	QuotaBytes  unit.Bytes `json:"quota_bytes,omitempty"`
	ServerNames []string   `json:"servers"`
}

// sumFleetUsage sums the rows of each device.
func sumFleetUsage(rows []fleet.UsageRow, devices []fleet.Device) (list []fleetUsageRow) {
	byID := map[string]fleet.Device{}
	for _, d := range devices {
		byID[d.Key.ID().String()] = d
	}
	for _, r := range rows {
		if len(list) == 0 || list[len(list)-1].ID != r.Device {
			d := byID[r.Device]
			list = append(list, fleetUsageRow{Device: d.Name, ID: r.Device, QuotaBytes: d.Quota})
		}
		u := &list[len(list)-1]
		switch {
		case r.Month > u.Month:
			u.Month, u.MonthDown, u.MonthUp = r.Month, r.InMonth.Down, r.InMonth.Up
		case r.Month == u.Month:
			u.MonthDown, u.MonthUp = u.MonthDown+r.InMonth.Down, u.MonthUp+r.InMonth.Up
		}
		u.Down, u.Up, u.ServerNames = u.Down+r.All.Down, u.Up+r.All.Up, append(u.ServerNames, r.Server)
	}
	return list
}

func fleetUsageCommand(o *fleetOptions) *cobra.Command {
	return &cobra.Command{
		Use: "usage", Short: "show what the devices of the fleet have carried", Args: cobra.NoArgs,
		Long: `Show what each device has carried over all servers, in the last month with traffic and in
all: bytes of IP packets between device and server, with headers and retransmissions.
Counts are at most a few seconds old. A server that has carried nothing for a device
for 70 days is left out, so that the sum of all falls. When it does so again, it counts
from what its own file has. With --json it prints one object for each device.`,
		Example: "  mpbond fleet usage\n  mpbond fleet usage --json | jq -r '[.device, .month_down_bytes] | @csv'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.runReader(cmd.Context(), func(s fleet.Store) error {
				rows, err := fleet.ReadUsage(cmd.Context(), s)
				if err != nil {
					return err
				}
				devices, _, err := fleet.ReadDevices(cmd.Context(), s)
				if err != nil {
					return err
				}
				list := sumFleetUsage(rows, devices)
				if o.asJSON {
					for _, u := range list {
						if err := cli.PrintJSON(cmd.OutOrStdout(), u); err != nil {
							return err
						}
					}
					return nil
				}
				var page bytes.Buffer
				w := tabwriter.NewWriter(&page, 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "DEVICE\tID\tMONTH\tDOWN\tUP\tQUOTA\tALL DOWN\tALL UP\tSERVERS")
				for _, u := range list {
					quota := "-"
					if u.QuotaBytes > 0 {
						quota = cli.FormatPercent(u.MonthDown+u.MonthUp, u.QuotaBytes)
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%v\t%s\t%v\t%v\t%s\n", cmp.Or(u.Device, "-"), u.ID, u.Month,
						u.MonthDown, u.MonthUp,
						quota, u.Down, u.Up, text.Printable(strings.Join(u.ServerNames, " ")))
				}
				_ = w.Flush()
				_, err = cmd.OutOrStdout().Write(page.Bytes())
				return err
			})
		},
	}
}

func fleetEventsCommand(o *fleetOptions) *cobra.Command {
	var follow bool
	var since time.Duration
	cmd := &cobra.Command{
		Use: "events", Short: "show devices that were paired, revoked or have used up their quota", Args: cobra.NoArgs,
		Long: `Show what happened in the fleet: devices that were paired, revoked, or have used up their
quota. The engine keeps events for 30 days. With --json it prints one object for each.`,
		Example: "  mpbond fleet events --since 24h\n  mpbond fleet events --follow --json | jq -r .name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var from time.Time
			if since > 0 {
				from = time.Now().Add(-since)
			}
			return o.runReader(cmd.Context(), func(s fleet.Store) error {
				var printing error
				err := s.Events(cmd.Context(), from, follow, func(e fleet.Event) {
					if o.asJSON {
						printing = cli.PrintJSON(cmd.OutOrStdout(), e)
						return
					}
					_, printing = fmt.Fprintf(cmd.OutOrStdout(), "%s  %-8s %s %s\n",
						e.At.Local().Format("2006-01-02 15:04:05"),
						text.Printable(e.Kind), text.Printable(strings.TrimSpace(e.Name+" "+e.Device)),
						text.Printable(strings.TrimSpace(cmp.Or(e.Server, "operator")+" "+e.Text)))
				})
				return cmp.Or(err, printing)
			})
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with new events until interrupted")
	cmd.Flags().DurationVar(&since, "since", 0, "show only events of this last `TIME`; 0: all")
	return cmd
}
