// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/unit"
	mydevice "mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/internal/cli"
)

func usageCommand() *cobra.Command {
	var socket string
	var asJSON, asCSV, days bool
	cmd := &cobra.Command{
		Use: "usage", Short: "show what this device's links carried today and this month", Args: cobra.NoArgs,
		Long: `Show what mpbond sent and received over this device's links, today and this month:
bytes of IP packets with headers and retransmissions, as mobile operators count them.
MB and GB are 10^6 and 10^9 bytes. Restarts keep the counts.

ENERGY is the energy that the link's radio used, estimated from the bytes and
published measurements of such radios, without screen and processor. It is shown for
WiFi and mobile links.

FOR says what the bytes were for:
  direct   apps of this device over its own link; also mpbond get --onload, put and
           play, under the role "onload"
  hs-path  at a helper: carried over its Internet link for the primary in DEVICE
  onload   at a helper: carried for the primary in DEVICE that onloads
  pipe     between primary and helper on the local network
  subflow  at a server: the connections of the device in DEVICE`,
		Example: `  mpbond usage
  mpbond usage --days
  mpbond usage --csv > usage.csv`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := queryAllRoles(statusSockets(socket), func(c *client.Client) (api.Usage,
				error) {
				return c.Usage(cmd.Context())
			})
			if err != nil && (socket != "" || !fault.Is(err, fault.NotRunning)) {
				return err
			}
			if socket == "" {
				switch own, ok, wrong := readOnloadUsage(); {
				case wrong != nil:
					return wrong
				case ok:
					all, err = append(all, own), nil
				}
			}
			if err != nil {
				return err
			}
			var page bytes.Buffer
			for i, u := range all {
				switch {
				case asJSON:
					err = cli.PrintJSON(&page, u)
				case asCSV:
					var table bytes.Buffer
					err = u.CSV(&table)
					if i > 0 { // only the first table keeps its headings
						_, _ = table.ReadString('\n')
					}
					_, _ = table.WriteTo(&page)
				default:
					printUsageReport(&page, u, days, time.Now())
				}
				if err != nil {
					return err
				}
			}
			_, err = page.WriteTo(cmd.OutOrStdout())
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "ask only the mpbond at this `PATH`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line for each mpbond")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print a CSV table of all days and months")
	cmd.Flags().BoolVar(&days, "days", false, "show each day of the last month")
	cmd.MarkFlagsMutuallyExclusive("json", "csv", "days")
	return cmd
}

// printUsageReport prints u for people.
func printUsageReport(w io.Writer, u api.Usage, days bool, now time.Time) {
	fmt.Fprintf(w, "%s %s\n", u.Role, text.Printable(u.Name))
	if u.NotSaved != "" {
		fmt.Fprintln(w, "not saved, a restart would lose it:", text.Printable(u.NotSaved))
	}
	today, monthAgo := now.Format(time.DateOnly), now.AddDate(0, -1, 0).Format(time.DateOnly)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush() //nolint:errcheck // to a buffer
	list, head := u.Months, "LINK\tFOR\tDEVICE\tTODAY DOWN\tUP\tTHIS MONTH DOWN\tUP\tSINCE"
	if days {
		list, head = u.Days, "DAY\tLINK\tFOR\tDEVICE\tDOWN\tUP"
	}
	// Energy has a column only if there is an estimate.
	estimated := slices.ContainsFunc(list, func(r api.UsageEntry) bool { return r.RadioJoules > 0 })
	energy := func(of ...api.UsageEntry) (cells string) {
		if estimated {
			for _, r := range of {
				cells += "\t" + formatRadioEnergy(r.RadioJoules)
			}
		}
		return cells
	}
	if days {
		if estimated {
			head += "\tENERGY"
		}
		fmt.Fprintln(t, head)
		for _, r := range u.Days {
			if r.From >= monthAgo {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%v\t%v%s\n", r.From, text.Printable(r.Link), r.Purpose,
					text.Printable(r.Device), policy.Volume(r.DownBytes), policy.Volume(r.UpBytes), energy(r))
			}
		}
		printEstimateNote(t, estimated)
		return
	}
	for _, c := range u.Caps {
		fmt.Fprintf(w, "%s: %s\n", text.Printable(c.Name), text.Printable(c.Text))
	}
	if len(u.Months) == 0 {
		fmt.Fprintln(t, "nothing carried yet")
		return
	}
	if estimated {
		head += "\tENERGY TODAY\tTHIS MONTH"
	}
	fmt.Fprintln(t, head)
	for _, m := range u.Months {
		if m.Until <= today {
			continue
		}
		var d api.UsageEntry
		for _, r := range u.Days {
			if r.From == today && r.Link == m.Link && r.Purpose == m.Purpose && r.DeviceID == m.DeviceID {
				d = r
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%v\t%v\t%v\t%v\t%s%s\n", text.Printable(m.Link), m.Purpose,
			text.Printable(m.Device),
			policy.Volume(d.DownBytes), policy.Volume(d.UpBytes), policy.Volume(m.DownBytes), policy.Volume(m.UpBytes),
			m.From, energy(d, m))
	}
	printEstimateNote(t, estimated)
}

// formatRadioEnergy formats an energy, "-" if it is 0 or unknown.
func formatRadioEnergy(j unit.Joules) string {
	if j == 0 {
		return "-"
	}
	return j.String()
}

// printEstimateNote explains the energies below a table that has them.
func printEstimateNote(t *tabwriter.Writer, estimated bool) {
	if estimated {
		_ = t.Flush()
		fmt.Fprintln(t, "energy of radios, estimated from bytes and published measurements; - for links without a "+
			"known radio")
	}
}

// openRoleUsage returns the usage counter of a role, which is saved in the role's file.
func openRoleUsage(role string) *mydevice.Usage {
	u := mydevice.NewUsage(slog.Default())
	path, err := roleUsagePath(role)
	if err == nil {
		err = u.OpenFile(path)
	}
	if err != nil {
		slog.Error("usage not saved", "err", err, "hint", fault.HintOf(err))
	}
	return u
}

// usageReport returns the counted usage for the API.
func (r *role) usageReport(name string) api.Usage {
	list, problem := r.usage.List()
	u := api.Usage{Role: r.name, Name: name, Caps: r.listRoleCaps()}
	if problem != nil {
		u.NotSaved = problem.Error()
	}
	addUsageRows(&u, list, deviceNamesByID(r.trust), r.caps.AccountingPeriod)
	return u
}

// addUsageRows adds rows to u, with names of peers by ID. month returns the month of a link that
// contains a day.
func addUsageRows(u *api.Usage, list []policy.UsageRecord, names map[string]string,
	month func(link string, day time.Time) (from, until time.Time)) {
	u.Days, u.Months = []api.UsageEntry{}, []api.UsageEntry{}
	months := map[api.UsageEntry]*api.UsageEntry{} // the key has no counts
	for _, row := range list {
		day, err := time.ParseInLocation(time.DateOnly, row.Day, time.Local)
		if err != nil {
			continue // the file has been checked
		}
		of := api.UsageEntry{Link: row.Link, Purpose: string(row.Purpose), Device: names[row.Peer], DeviceID: row.Peer}
		d := of
		d.From, d.Until = formatPeriod(policy.Today(day))
		d.DownBytes, d.UpBytes, d.RadioJoules = row.Down, row.Up, roundMilli(row.Joules)
		u.Days = append(u.Days, d)
		of.From, of.Until = formatPeriod(month(row.Link, day))
		m := months[of]
		if m == nil {
			m = &api.UsageEntry{}
			*m, months[of] = of, m
		}
		m.DownBytes += row.Down
		m.UpBytes += row.Up
		m.RadioJoules += row.Joules
	}
	for _, m := range months {
		m.RadioJoules = roundMilli(m.RadioJoules)
		u.Months = append(u.Months, *m)
	}
	slices.SortFunc(u.Months, func(a, b api.UsageEntry) int {
		return cmp.Or(strings.Compare(a.From, b.From), strings.Compare(a.Link, b.Link),
			strings.Compare(a.Purpose, b.Purpose), strings.Compare(a.DeviceID, b.DeviceID))
	})
}

// roundMilli rounds an estimate to thousandths of a joule.
func roundMilli(j unit.Joules) unit.Joules { return unit.Joules(math.Round(float64(j)*1e3) / 1e3) }

// formatPeriod formats the two dates of a period.
func formatPeriod(from, until time.Time) (string, string) {
	return from.Format(time.DateOnly), until.Format(time.DateOnly)
}
