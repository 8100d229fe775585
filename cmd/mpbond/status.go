// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/internal/cli"
)

// watchInterval is the time between two requests of --watch. Rates are means over a second.
const watchInterval = time.Second

type statusOptions struct {
	socket             string
	asJSON, why, watch bool
}

func statusCommand() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use: "status", Short: "show which device carries what, at which rate, and why", Args: cobra.NoArgs,
		Long: `Show which device carries what, at which rate, and why.

It asks every mpbond that you run on this machine: server, helper and primary. With
--json each prints one object on one line.

For each device: whether it is connected, its pipes, and the subflows that it carries or
ends. For each subflow:

  DOWN, UP  rates over the last second
  SHARE     part of the bond's bytes so far
  RTT       round-trip time of the nearest hop
  DELAY     predicted delivery time of a byte sent now (PAD)
  CAPACITY  estimated sending rate
  WAITING   bytes sent that have not arrived yet`,
		Example: `  mpbond status
  mpbond status --watch
  mpbond status --why
  mpbond status --json | jq '.bonds[].subflows[] | {device, rx_rate_bps}'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showRoleStatuses(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().StringVar(&o.socket, "socket", "", "ask only the mpbond at this `PATH`")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON, one line for each mpbond")
	cmd.Flags().BoolVar(&o.why, "why", false, "show the last decisions with their reasons")
	cmd.Flags().BoolVar(&o.watch, "watch", false, "repeat every second until interrupted")
	return cmd
}

// showRoleStatuses prints the status of all roles, with --watch again and again.
func showRoleStatuses(ctx context.Context, w io.Writer, o statusOptions) error {
	sockets := statusSockets(o.socket)
	for {
		all, err := queryStatus(ctx, sockets, o.why)
		if err == nil {
			err = printAllStatuses(w, all, o)
		}
		if ctx.Err() != nil && o.watch {
			return nil // Ctrl-C is the normal end
		}
		if err != nil || !o.watch {
			return err
		}
		select {
		case <-time.After(watchInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// statusSockets returns the given socket, or those of all roles if it is empty.
func statusSockets(given string) []string {
	if given != "" {
		return []string{given}
	}
	var all []string
	for _, r := range identity.Roles() {
		all = append(all, api.SocketPath(string(r)))
	}
	return all
}

// notRunningError returns the error if no role answers.
func notRunningError() error {
	return fault.New(fault.NotRunning, fmt.Errorf("no mpbond of this user is running here (looked in %s)",
		api.RuntimeDir()),
		"start one, for example with `mpbond primary`, or name it with --socket")
}

// queryStatus returns the status of each role that runs behind one of the sockets. See
// queryAllRoles.
func queryStatus(ctx context.Context, sockets []string, why bool) ([]api.Status, error) {
	return queryAllRoles(sockets, func(c *client.Client) (api.Status, error) { return c.Status(ctx, why) })
}

// queryAllRoles returns the answer of each role that runs behind one of the sockets. It fails if
// none runs, or if one returns another error than that it does not run.
func queryAllRoles[T any](sockets []string, query func(*client.Client) (T, error)) (all []T, err error) {
	for _, path := range sockets {
		c := client.New(path)
		answer, askErr := query(c)
		c.Close()
		switch {
		case askErr == nil:
			all = append(all, answer)
		case !fault.Is(askErr, fault.NotRunning):
			return nil, askErr
		default:
			err = askErr
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	if len(sockets) > 1 {
		err = notRunningError()
	}
	return nil, err
}

// printAllStatuses prints statuses in one piece, with --watch over a cleared screen.
func printAllStatuses(w io.Writer, all []api.Status, o statusOptions) error {
	var page bytes.Buffer // written in one piece, so that --watch does not flicker
	if o.watch && !o.asJSON && cli.IsTerminal(w) {
		page.WriteString("\x1b[H\x1b[2J") // cursor home, clear screen
	}
	for i, s := range all {
		if o.asJSON {
			if err := cli.PrintJSON(&page, s); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			page.WriteByte('\n')
		}
		printStatus(&page, s)
	}
	_, err := w.Write(page.Bytes())
	return err
}

// printStatus prints s for people.
func printStatus(w io.Writer, s api.Status) {
	up := time.Duration(s.UptimeSeconds * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(w, "%s %s, ID %s, up %v, %v of memory\n", s.Role, text.Printable(s.Name), s.ID, up, s.MemoryBytes)
	var at []string
	socks, proxy := s.SOCKS, "HTTP proxy"
	if socks == s.HTTP { // the usual case, in a line that fits a screen
		socks, proxy = "", "SOCKS5 and HTTP proxy"
	}
	for _, a := range []struct{ what, address string }{
		{"devices", s.Listen}, {"SOCKS5", socks}, {proxy, s.HTTP}, {"mpbond run", s.Transparent}, {"the API", s.API},
	} {
		if a.address != "" {
			at = append(at, a.what+" at "+a.address)
		}
	}
	if len(at) > 0 {
		fmt.Fprintln(w, "listening:", strings.Join(at, ", "))
	}
	if len(s.Unsaved) > 0 {
		fmt.Fprintln(w, "revoked but not saved, a restart would trust them again:", strings.Join(s.Unsaved, ", "))
	}
	if p := s.Policy; p != nil {
		what := fmt.Sprintf("%d rules, %d blocked, %d around the bond", p.Rules, p.Blocked, p.Direct)
		if s.Role == string(identity.RoleHelper) {
			what = fmt.Sprintf("%d device tables", p.Tables)
		}
		fmt.Fprintf(w, "policy of %s: %s\n", text.Printable(p.File), what)
		if p.Error != "" {
			fmt.Fprintln(w, "the present file is invalid and not in force:", text.Printable(p.Error))
		}
	}
	if f := s.Fleet; f != nil {
		printFleetStatus(w, *f)
	}
	if h := s.Helper; h != nil {
		printHelper(w, *h, s.Onload != nil)
	}
	if o := s.Onload; o != nil {
		printOnload(w, *o)
	}
	for _, c := range s.Caps {
		if c.State != policy.CapFine.String() {
			fmt.Fprintf(w, "%s: %s\n", text.Printable(c.Name), text.Printable(c.Text))
		}
	}
	for _, c := range s.Cells {
		fmt.Fprintln(w, text.Printable(describeLinkCells(c)))
	}
	printDevices(w, s)
	if len(s.Bonds) == 0 && s.Helper == nil {
		fmt.Fprintln(w, "no bond yet")
	}
	for _, b := range s.Bonds {
		printBondStatus(w, b)
	}
}

// printDevices prints the trusted devices, what each carries, and broken pipes.
func printDevices(w io.Writer, s api.Status) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, d := range s.Devices {
		if i == 0 {
			fmt.Fprintln(t, "DEVICE\tROLE\tONLINE\tTIER\tBATTERY\tPIPES\tSUBFLOWS\tDOWN\tUP\tBYTES")
		}
		name, online := text.Printable(d.Name), "no"
		if d.Self {
			name += " (this device)"
		}
		switch {
		case d.Paused:
			online = "paused"
		case d.Online:
			online = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%v\t%v\t%v\n", name, strings.Join(d.Roles, ", "), online,
			cmp.Or(d.Tier, "-"),
			formatBattery(d.Facts), d.Pipes, d.Subflows, d.RxRate, d.TxRate, d.RxBytes+d.TxBytes)
	}
	_ = t.Flush()
	for _, d := range s.Devices {
		parts := append(listLinkFacts(d.Facts), listRadioEnergy(d.Radios)...)
		if d.KeyCopied {
			const text = "two devices use its key at once: revoke it, and pair each device with its own key"
			parts = append([]string{text}, parts...)
		}
		if d.Suspended != "" {
			parts = append([]string{"suspended: " + text.Printable(d.Suspended)}, parts...)
		}
		if len(parts) > 0 {
			fmt.Fprintf(w, "%s: %s\n", text.Printable(d.Name), strings.Join(parts, ", "))
		}
	}
	for _, r := range s.Refused {
		fmt.Fprintln(w, describeRefusal(r))
	}
	for _, p := range s.Pipes {
		if strings.HasPrefix(p.Error, "refused: ") {
			continue // printed above, once for all addresses
		}
		if p.Error != "" {
			fmt.Fprintf(w, "pipe with %s at %s: %s, %s\n", text.Printable(p.Device), text.Printable(p.Address),
				p.State, text.Printable(p.Error))
		} else if t := p.Trouble; t != nil {
			fmt.Fprintf(w, "%s does not use this device, which cannot reach its server: %s\n",
				text.Printable(p.Device), text.Printable(t.Text))
		}
	}
}

// describeRefusal describes which device refuses the other, and why.
func describeRefusal(r api.Refusal) string {
	line := fmt.Sprintf("refused by %s: %s", text.Printable(r.Device), text.Printable(r.Reason))
	if r.Here {
		line = fmt.Sprintf("%s is refused here: %s", text.Printable(cmp.Or(r.Device,
			"an unknown device at "+r.Address)),
			text.Printable(r.Reason))
	}
	if r.Hint != "" {
		line += "; " + text.Printable(r.Hint)
	}
	return line + fmt.Sprintf(" (%d times since %s)", r.Count, r.Since.Local().Format("15:04"))
}

// formatBattery formats the state of a device's battery, "-" if it is unknown.
func formatBattery(f *api.KnownFacts) string {
	switch {
	case f == nil || f.BatteryPercent == nil && f.Charging == nil:
		return "-"
	case f.BatteryPercent == nil && *f.Charging:
		return "plugged in"
	case f.BatteryPercent == nil:
		return "on battery"
	}
	text := fmt.Sprintf("%.0f %%", *f.BatteryPercent)
	if f.Charging != nil && *f.Charging {
		text += ", charging"
	}
	return text
}

// listLinkFacts describes temperature and link of a device, and whether it refuses to carry.
func listLinkFacts(f *api.KnownFacts) (parts []string) {
	if f == nil {
		return nil
	}
	if f.Refuses != "" {
		parts = append(parts, "carries nothing now: "+text.Printable(f.Refuses))
	}
	if f.TemperatureC != nil {
		parts = append(parts, fmt.Sprintf("%.3g °C", *f.TemperatureC))
	}
	link := f.Link
	if f.Metered != nil && *f.Metered {
		link = strings.TrimSpace(link + " (metered)")
	}
	if f.SignalPercent != nil {
		link = strings.TrimSpace(fmt.Sprintf("%s signal %.0f %%", link, *f.SignalPercent))
	}
	if link != "" {
		parts = append(parts, link)
	}
	return parts
}

// listRadioEnergy describes the energy that a device's radios used.
func listRadioEnergy(list []api.Radio) (parts []string) {
	for _, r := range list {
		if r.Joules > 0 {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("about %v by %s %s", r.Joules, r.Kind,
				text.Printable(r.Link))))
		}
	}
	return parts
}

// printHelper prints the state of a helper. A helper that onloads needs no primary, so errors of
// its pipes are shown with the pipes only.
func printHelper(w io.Writer, h api.HelperStatus, onloads bool) {
	switch {
	case h.Primary == "" && onloads:
		fmt.Fprintln(w, "no bond uses its link now; onloading needs none")
		h.LastError = ""
	case h.Primary == "":
		fmt.Fprintln(w, "waiting for a primary")
	default:
		printRelaying(w, h)
	}
	if h.OverUDP > 0 {
		fmt.Fprintf(w, "%d of the subflows use UDP to the server\n", h.OverUDP)
	}
	if h.Fallback != "" {
		fmt.Fprintln(w, "not over UDP:", text.Printable(h.Fallback))
	}
	for _, l := range h.LinkShares {
		if l.Limited {
			fmt.Fprintf(w, "shares %v %s of %s: %s (its owner uses %v)\n",
				l.LimitBps, l.Direction, text.Printable(l.Interface), l.Reason, l.OwnerBps)
		}
	}
	if h.LastError != "" {
		fmt.Fprintln(w, "last error:", text.Printable(h.LastError))
	}
}

// printRelaying prints what a helper relays, and the estimated rates of its hops.
func printRelaying(w io.Writer, h api.HelperStatus) {
	if h.Subflows == 0 {
		fmt.Fprintf(w, "connected with %s, which does not use it now; %v relayed\n", text.Printable(h.Primary),
			h.RelayedBytes)
		return
	}
	fmt.Fprintf(w, "relays for %s to %s over %d subflows: %v down, %v up, %v of %v buffered, %v relayed\n",
		text.Printable(h.Primary), text.Printable(h.Server), h.Subflows, h.DownRateBps, h.UpRateBps,
		h.BufferBytes, h.BufferLimit, h.RelayedBytes)
	for _, hop := range []struct {
		name string
		can  unit.Rate
	}{{"the pipe", h.PipeRateBps}, {"the HS-path", h.HSPathRateBps}} {
		if hop.can > 0 {
			fmt.Fprintf(w, "capacity of %s: about %v\n", hop.name, hop.can)
		}
	}
}

// wasteCauses describes the causes of api.Bond.WastedBytes for people.
var wasteCauses = map[string]string{
	"duplicate_received":      "received twice",
	"reinjected_subflow_lost": "sent again after a lost subflow",
	"reinjected_silent":       "sent again after silence",
	"reinjected_eta":          "sent again to finish together",
	"sent_redundantly":        "sent twice on purpose",
}

// describeTransport describes the transport of a subflow's hop here, "" if it is the default.
func describeTransport(p api.Subflow) string {
	switch {
	case p.Fallback != "":
		return fmt.Sprintf("over %s: %s", strings.ToUpper(text.Printable(p.Transport)), text.Printable(p.Fallback))
	case p.Transport == "udp" && p.Migrated == 1:
		return "over UDP, migrated to another address once"
	case p.Transport == "udp" && p.Migrated > 0:
		return fmt.Sprintf("over UDP, migrated to another address %d times", p.Migrated)
	case p.Transport == "udp":
		return "over UDP"
	}
	return ""
}

// printBondStatus prints a bond with its subflows.
func printBondStatus(w io.Writer, b api.Bond) {
	fmt.Fprintf(w, "\nbond %s with %s, scheduler %s: %d streams now, %d in all\n  %v to schedule, %v out of order",
		text.Printable(b.ID), text.Printable(b.Peer), b.Scheduler, b.Streams, b.StreamsTotal,
		b.MetaBytes, b.ReorderBytes)
	for _, cause := range slices.Sorted(maps.Keys(b.WastedBytes)) {
		if n := b.WastedBytes[cause]; n != 0 {
			fmt.Fprintf(w, ", %v %s", n, text.Printable(cmp.Or(wasteCauses[cause], "wasted by "+cause)))
		}
	}
	if b.FlowsTotal > 0 {
		fmt.Fprintf(w, "; %d datagram flows now, %d in all, %d datagrams dropped", b.Flows, b.FlowsTotal,
			b.DatagramsDropped)
	}
	fmt.Fprintln(w)
	var total unit.Bytes
	for _, p := range b.Subflows {
		total += p.RxBytes + p.TxBytes
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SUBFLOW\tDEVICE\tKIND\tSTATE\tDOWN\tUP\tSHARE\tRTT\tDELAY\tCAPACITY\tWAITING\t")
	devices := map[uint32]string{}
	for _, p := range b.Subflows {
		devices[p.ID] = p.Device
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%v\t%v\t%s\t%s\t%s\t%v\t%v\t%s\n", p.ID, text.Printable(p.Device), p.Kind,
			p.State,
			p.RxRate, p.TxRate, cli.FormatPercent(p.RxBytes+p.TxBytes, total),
			cli.FormatMilliseconds(p.SRTTms), cli.FormatMilliseconds(p.PADms), p.ThroughputBps,
			p.BacklogBytes, text.Printable(p.LastError))
	}
	_ = t.Flush()
	for _, p := range b.Subflows {
		if words := describeTransport(p); words != "" {
			fmt.Fprintf(w, "  subflow %d by %s: %s\n", p.ID, text.Printable(p.Device), words)
		}
		if p.ExpectedStallMs > 0 {
			fmt.Fprintf(w, "  subflow %d by %s: a handoff may delay it by %s on average\n", p.ID,
				text.Printable(p.Device), cli.FormatMilliseconds(p.ExpectedStallMs))
		}
		if p.Pipe != "" {
			fmt.Fprintf(w, "  pipe of subflow %d to %s: %s, %d more ready; resumed %d times after a break, "+
				"migrated %d times\n",
				p.ID, text.Printable(p.Device), p.Pipe, p.Waiting, p.Resumed, p.Migrated)
		}
	}
	for _, p := range b.Subflows {
		if p.Hop != nil && p.Hop.PBE != nil {
			fmt.Fprintf(w, "  subflow %d to %s: %s\n", p.ID, text.Printable(p.Device), describePBE(*p.Hop.PBE))
		}
	}
	for _, p := range b.Subflows {
		if p.Hop != nil && p.Hop.Congestion != nil && p.Hop.Congestion.Changes > 0 {
			fmt.Fprintf(w, "  subflow %d by %s: %s\n", p.ID, text.Printable(p.Device),
				describeCongestion(*p.Hop.Congestion))
		}
	}
	for _, p := range b.Subflows {
		if p.Hop != nil && p.Hop.RejectedReports > 0 {
			fmt.Fprintf(w, "  subflow %d by %s: %d forged reports ignored: something between it and the server "+
				"changes its reports\n",
				p.ID, text.Printable(p.Device), p.Hop.RejectedReports)
		}
	}
	for _, s := range b.StreamList {
		fmt.Fprintf(w, "  stream %d%s to %s, mode %s: %v down%s, %v up%s\n", s.ID, describeProcess(s.AppInfo),
			text.Printable(s.Dest), s.Mode,
			s.DownBytes, describeStreamChoice(s.Down, devices), s.UpBytes, describeStreamChoice(s.Up, devices))
	}
	for _, f := range b.FlowList {
		who := text.Printable(cmp.Or(devices[f.Subflow], fmt.Sprintf("subflow %d", f.Subflow)))
		if f.SecondSubflow != 0 {
			who += " and " + text.Printable(cmp.Or(devices[f.SecondSubflow],
				fmt.Sprintf("subflow %d", f.SecondSubflow)))
		}
		fmt.Fprintf(w, "  datagram flow %d%s by %s: %v down, %v up, %d sent, %d received, %d dropped, "+
			"%d duplicates, moved %d times, last used %s\n", f.ID, describeProcess(f.AppInfo), who, f.DownBytes,
			f.UpBytes, f.Sent, f.Received, f.Dropped, f.Duplicate, f.Moves, f.LastUsed.Local().Format("15:04:05"))
	}
	for _, d := range b.Decisions {
		who := "wait"
		if d.Subflow != 0 {
			who = text.Printable(cmp.Or(devices[d.Subflow], fmt.Sprintf("subflow %d", d.Subflow)))
		}
		fmt.Fprintf(w, "  %s  %s: %s (delay %s, %v to schedule)\n", d.T.Local().Format("15:04:05.000"), who,
			text.Printable(d.Reason), cli.FormatMilliseconds(d.PADms), d.RemainingBytes)
	}
}

// describeProcess returns " of APP (PROGRAM, as USER)", as far as it is known.
func describeProcess(o api.AppInfo) (s string) {
	if o.App == "" {
		return ""
	}
	var more []string
	if o.Program != "" {
		more = append(more, o.Program)
	}
	if o.User != "" {
		more = append(more, "as "+o.User)
	}
	if s = " of " + o.App; len(more) > 0 {
		s += " (" + strings.Join(more, ", ") + ")"
	}
	return text.Printable(s)
}

// describeStreamChoice describes which devices may carry a direction of a stream, and why.
func describeStreamChoice(c api.StreamChoice, devices map[uint32]string) string {
	if c.Reason == "" {
		return ""
	}
	var names []string
	for _, p := range c.Subflows {
		names = append(names, text.Printable(cmp.Or(devices[p], fmt.Sprintf("subflow %d", p))))
	}
	why := c.Reason
	if c.Forecast != "" {
		why += "; " + c.Forecast
	}
	return fmt.Sprintf(" by %s (%s)", strings.Join(names, ", "), text.Printable(why))
}

// queryPrimary returns the status of the primary, which must have a proxy.
func queryPrimary(ctx context.Context, c *client.Client) (api.Status, error) {
	s, err := c.Status(ctx, false)
	if fault.Is(err, fault.NotRunning) {
		return s, fault.New(fault.NotRunning, err, "start it with `mpbond primary`, or name it with --socket")
	}
	if err == nil && s.SOCKS == "" && s.HTTP == "" {
		err = fault.New(fault.NotRunning, errors.New("the running primary has no proxy"),
			"start it with --proxy HOST:PORT")

	}
	return s, err
}

// describeCongestion describes in one line the congestion control that the losses of a hop have led
// to.
func describeCongestion(c api.Congestion) string {
	return fmt.Sprintf("congestion control of what this device sends: %s, because of %s; changed %d times", c.Name,
		c.Reason, c.Changes)
}
