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

// watchInterval is how often --watch asks: rates are means over a second.
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

Every mpbond that this user runs on this machine is asked: server, helper and
primary. With --json each prints one object on one line.

Of each device: whether it is there, pipes to it, and what the subflows that it
carries or ends do. Of each subflow: DOWN and UP are rates over the last second, SHARE the part of the
bond's bytes so far, RTT that of the nearest hop, DELAY the predicted delivery
time of a byte sent now (PAD), CAN the estimated rate away from here, WAITING
the bytes sent and not yet at the far end.`,
		Example: `  mpbond status --watch
  mpbond status --why
  mpbond status --json | jq '.bonds[].subflows[] | {device, rx_rate_bps}'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runStatus(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().StringVar(&o.socket, "socket", "", "ask the mpbond at this `PATH` only")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON, one line for each mpbond")
	cmd.Flags().BoolVar(&o.why, "why", false, "show the last decisions with their reasons")
	cmd.Flags().BoolVar(&o.watch, "watch", false, "again every second, until interrupted")
	return cmd
}

func runStatus(ctx context.Context, w io.Writer, o statusOptions) error {
	sockets := statusSockets(o.socket)
	for {
		all, err := queryStatus(ctx, sockets, o.why)
		if err == nil {
			err = printAll(w, all, o)
		}
		if ctx.Err() != nil && o.watch {
			return nil // Ctrl-C is how one ends it
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

// statusSockets is the socket that was given, or else that of each role.
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

// notRunningError is the error where no role answers.
func notRunningError() error {
	return fault.New(fault.NotRunning, fmt.Errorf("no mpbond of this user is running here (looked in %s)", api.RuntimeDir()),
		"start one, for example with `mpbond primary`, or tell where it is with --socket")
}

// queryStatus collects the status of every mpbond that runs behind one of sockets, as
// queryAll does.
func queryStatus(ctx context.Context, sockets []string, why bool) ([]api.Status, error) {
	return queryAll(sockets, func(c *client.Client) (api.Status, error) { return c.Status(ctx, why) })
}

// queryAll collects the answers of every mpbond that runs behind one of sockets. It
// is an error if none does, or if one does not answer as it should.
func queryAll[T any](sockets []string, query func(*client.Client) (T, error)) (all []T, err error) {
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

func printAll(w io.Writer, all []api.Status, o statusOptions) error {
	var page bytes.Buffer // printed at once, so that --watch does not flicker
	if o.watch && !o.asJSON && cli.IsTerminal(w) {
		page.WriteString("\x1b[H\x1b[2J") // home, clear
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
	for _, a := range []struct{ what, address string }{
		{"devices", s.Listen}, {"SOCKS5", s.SOCKS}, {"HTTP proxy", s.HTTP}, {"mpbond run", s.Transparent}, {"the API", s.API},
	} {
		if a.address != "" {
			at = append(at, a.what+" at "+a.address)
		}
	}
	if len(at) > 0 {
		fmt.Fprintln(w, "listens for", strings.Join(at, ", "))
	}
	if len(s.Unsaved) > 0 {
		fmt.Fprintln(w, "revoked, but not yet saved to disk (a restart would trust them again):", strings.Join(s.Unsaved, ", "))
	}
	if p := s.Policy; p != nil {
		what := fmt.Sprintf("%d rules, %d blocked, %d around the bond", p.Rules, p.Blocked, p.Direct)
		if s.Role == string(identity.RoleHelper) {
			what = fmt.Sprintf("%d tables of devices", p.Tables)
		}
		fmt.Fprintf(w, "policy of %s: %s\n", text.Printable(p.File), what)
		if p.Error != "" {
			fmt.Fprintln(w, "the file as it is now is not in force:", text.Printable(p.Error))
		}
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
		fmt.Fprintln(w, text.Printable(describeCells(c)))
	}
	printDevices(w, s)
	if len(s.Bonds) == 0 && s.Helper == nil {
		fmt.Fprintln(w, "no bond yet")
	}
	for _, b := range s.Bonds {
		printBond(w, b)
	}
}

// printDevices shows what the devices that are trusted carry, and pipes that
// cannot be had.
func printDevices(w io.Writer, s api.Status) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, d := range s.Devices {
		if i == 0 {
			fmt.Fprintln(t, "DEVICE\tROLE\tTHERE\tTIER\tBATTERY\tPIPES\tSUBFLOWS\tDOWN\tUP\tBYTES")
		}
		name, there := text.Printable(d.Name), "no"
		if d.Self {
			name += " (this one)"
		}
		switch {
		case d.Paused:
			there = "paused"
		case d.Online:
			there = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%v\t%v\t%v\n", name, strings.Join(d.Roles, ", "), there, cmp.Or(d.Tier, "-"), formatBattery(d.Facts), d.Pipes, d.Subflows, d.RxRate, d.TxRate, d.RxBytes+d.TxBytes)
	}
	_ = t.Flush()
	for _, d := range s.Devices {
		parts := append(listLinkFacts(d.Facts), listRadioEnergy(d.Radios)...)
		if d.KeyCopied {
			parts = append([]string{"its key is used by two mpbond at once: revoke it, and pair each device with a key of its own"}, parts...)
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
			continue // said above, once for all addresses
		}
		if p.Error != "" {
			fmt.Fprintf(w, "pipe with %s at %s: %s, %s\n", text.Printable(p.Device), text.Printable(p.Address), p.State, text.Printable(p.Error))
		} else if t := p.Trouble; t != nil {
			fmt.Fprintf(w, "%s does not use this device: it has no way to its server: %s\n", text.Printable(p.Device), text.Printable(t.Text))
		}
	}
}

// describeRefusal says for people that two devices do not come together, and why.
func describeRefusal(r api.Refusal) string {
	line := fmt.Sprintf("refused by %s: %s", text.Printable(r.Device), text.Printable(r.Reason))
	if r.Here {
		line = fmt.Sprintf("%s is refused here: %s", text.Printable(cmp.Or(r.Device, "a stranger at "+r.Address)), text.Printable(r.Reason))
	}
	if r.Hint != "" {
		line += "; " + text.Printable(r.Hint)
	}
	return line + fmt.Sprintf(" (%d times since %s)", r.Count, r.Since.Local().Format("15:04"))
}

// formatBattery tells people of a device's battery.
func formatBattery(f *api.KnownFacts) string {
	switch {
	case f == nil || f.BatteryPercent == nil && f.Charging == nil:
		return "-"
	case f.BatteryPercent == nil && *f.Charging:
		return "plugged in"
	case f.BatteryPercent == nil:
		return "in use"
	}
	text := fmt.Sprintf("%.0f %%", *f.BatteryPercent)
	if f.Charging != nil && *f.Charging {
		text += ", charging"
	}
	return text
}

// listLinkFacts tells people what else a device has told of itself.
func listLinkFacts(f *api.KnownFacts) (parts []string) {
	if f == nil {
		return nil
	}
	if f.Refuses != "" {
		parts = append(parts, "it carries nothing now: "+text.Printable(f.Refuses))
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

// listRadioEnergy tells people what a device's radios took.
func listRadioEnergy(list []api.Radio) (parts []string) {
	for _, r := range list {
		if r.Joules > 0 {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("about %v by %s %s", r.Joules, r.Kind, text.Printable(r.Link))))
		}
	}
	return parts
}

// printHelper tells people what a helper does. One that onloads needs no primary that
// calls: what keeps it from that is told of its pipes alone.
func printHelper(w io.Writer, h api.HelperStatus, onloads bool) {
	switch {
	case h.Primary == "" && onloads:
		fmt.Fprintln(w, "no bond uses its line now; onloading needs none")
		h.LastError = ""
	case h.Primary == "":
		fmt.Fprintln(w, "waits for a primary")
	default:
		printRelaying(w, h)
	}
	if h.OverUDP > 0 {
		fmt.Fprintf(w, "%d of the subflows go to the server over UDP\n", h.OverUDP)
	}
	if h.Fallback != "" {
		fmt.Fprintln(w, "not over UDP:", text.Printable(h.Fallback))
	}
	for _, l := range h.LinkShares {
		if l.Limited {
			fmt.Fprintf(w, "lends %v %s of %s: %s (it uses %v)\n", l.LimitBps, l.Direction, text.Printable(l.Interface), l.Reason, l.OwnerBps)
		}
	}
	if h.LastError != "" {
		fmt.Fprintln(w, "last error:", text.Printable(h.LastError))
	}
}

// printRelaying shows what a helper relays, and what its hops can carry where that is known.
func printRelaying(w io.Writer, h api.HelperStatus) {
	if h.Subflows == 0 {
		fmt.Fprintf(w, "waits for %s to use it, %v relayed\n", text.Printable(h.Primary), h.RelayedBytes)
		return
	}
	fmt.Fprintf(w, "helps %s to reach %s with %d subflows: %v down, %v up, %v of %v buffered, %v relayed\n",
		text.Printable(h.Primary), text.Printable(h.Server), h.Subflows, h.DownRateBps, h.UpRateBps, h.BufferBytes, h.BufferLimit, h.RelayedBytes)
	for _, hop := range []struct {
		name string
		can  unit.Rate
	}{{"the pipe", h.PipeRateBps}, {"the line to the server", h.HSPathRateBps}} {
		if hop.can > 0 {
			fmt.Fprintf(w, "%s can carry about %v\n", hop.name, hop.can)
		}
	}
}

// wasteCauses are the causes of api.Bond.WastedBytes, for people.
var wasteCauses = map[string]string{
	"duplicate_received":      "received twice",
	"reinjected_subflow_lost": "sent again after a lost subflow",
	"reinjected_silent":       "sent again after silence",
	"reinjected_eta":          "sent again to finish together",
	"sent_redundantly":        "sent twice on purpose",
}

// describeTransport says of a path what its hop here goes over, "" if that is what one
// expects.
func describeTransport(p api.Subflow) string {
	switch {
	case p.Fallback != "":
		return fmt.Sprintf("over %s: %s", strings.ToUpper(text.Printable(p.Transport)), text.Printable(p.Fallback))
	case p.Transport == "udp" && p.Migrated == 1:
		return "over UDP, went on from another address once"
	case p.Transport == "udp" && p.Migrated > 0:
		return fmt.Sprintf("over UDP, went on from another address %d times", p.Migrated)
	case p.Transport == "udp":
		return "over UDP"
	}
	return ""
}

func printBond(w io.Writer, b api.Bond) {
	fmt.Fprintf(w, "\nbond %s with %s, scheduler %s: %d streams now, %d in all; %v to schedule, %v out of order",
		text.Printable(b.ID), text.Printable(b.Peer), b.Scheduler, b.Streams, b.StreamsTotal, b.MetaBytes, b.ReorderBytes)
	for _, cause := range slices.Sorted(maps.Keys(b.WastedBytes)) {
		if n := b.WastedBytes[cause]; n != 0 {
			fmt.Fprintf(w, ", %v %s", n, text.Printable(cmp.Or(wasteCauses[cause], "wasted by "+cause)))
		}
	}
	if b.FlowsTotal > 0 {
		fmt.Fprintf(w, "; %d datagram flows now, %d in all, %d datagrams dropped", b.Flows, b.FlowsTotal, b.DatagramsDropped)
	}
	fmt.Fprintln(w)
	var total unit.Bytes
	for _, p := range b.Subflows {
		total += p.RxBytes + p.TxBytes
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PATH\tDEVICE\tKIND\tSTATE\tDOWN\tUP\tSHARE\tRTT\tDELAY\tCAN\tWAITING\t")
	devices := map[uint32]string{}
	for _, p := range b.Subflows {
		devices[p.ID] = p.Device
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%v\t%v\t%s\t%s\t%s\t%v\t%v\t%s\n", p.ID, text.Printable(p.Device), p.Kind, p.State,
			p.RxRate, p.TxRate, cli.FormatPercent(p.RxBytes+p.TxBytes, total), cli.FormatMilliseconds(p.SRTTms), cli.FormatMilliseconds(p.PADms), p.ThroughputBps, p.BacklogBytes, text.Printable(p.LastError))
	}
	_ = t.Flush()
	for _, p := range b.Subflows {
		if words := describeTransport(p); words != "" {
			fmt.Fprintf(w, "  path %d by %s: %s\n", p.ID, text.Printable(p.Device), words)
		}
		if p.Pipe != "" {
			fmt.Fprintf(w, "  pipe of path %d to %s: %s, %d more wait; resumed %d times after a break, changed %d times before one\n",
				p.ID, text.Printable(p.Device), p.Pipe, p.Waiting, p.Resumed, p.Migrated)
		}
	}
	for _, p := range b.Subflows {
		if p.Hop != nil && p.Hop.PBE != nil {
			fmt.Fprintf(w, "  path %d to %s: %s\n", p.ID, text.Printable(p.Device), describePBE(*p.Hop.PBE))
		}
	}
	for _, p := range b.Subflows {
		if p.Hop != nil && p.Hop.RejectedReports > 0 {
			fmt.Fprintf(w, "  path %d by %s: %d forged reports ignored: somebody between it and the server changes what it reports\n", p.ID, text.Printable(p.Device), p.Hop.RejectedReports)
		}
	}
	for _, s := range b.StreamList {
		fmt.Fprintf(w, "  stream %d%s to %s, mode %s: %v down%s, %v up%s\n", s.ID, describeProcess(s.AppInfo), text.Printable(s.Dest), s.Mode,
			s.DownBytes, describeChoice(s.Down, devices), s.UpBytes, describeChoice(s.Up, devices))
	}
	for _, f := range b.FlowList {
		who := text.Printable(cmp.Or(devices[f.Subflow], fmt.Sprintf("path %d", f.Subflow)))
		if f.SecondSubflow != 0 {
			who += " and " + text.Printable(cmp.Or(devices[f.SecondSubflow], fmt.Sprintf("path %d", f.SecondSubflow)))
		}
		fmt.Fprintf(w, "  datagram flow %d%s by %s: %v down, %v up, %d sent, %d received, %d dropped, %d came twice, moved %d times, last used %s\n", f.ID, describeProcess(f.AppInfo), who,
			f.DownBytes, f.UpBytes, f.Sent, f.Received, f.Dropped, f.Duplicate, f.Moves, f.LastUsed.Local().Format("15:04:05"))
	}
	for _, d := range b.Decisions {
		who := "wait"
		if d.Subflow != 0 {
			who = text.Printable(cmp.Or(devices[d.Subflow], fmt.Sprintf("path %d", d.Subflow)))
		}
		fmt.Fprintf(w, "  %s  %s: %s (delay %s, %v to schedule)\n", d.T.Local().Format("15:04:05.000"), who, text.Printable(d.Reason), cli.FormatMilliseconds(d.PADms), d.RemainingBytes)
	}
}

// describeProcess are " of APP (PROGRAM, as USER)", as far as it is known.
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

// describeChoice tells people which devices may carry a direction of a stream, and why.
func describeChoice(c api.StreamChoice, devices map[uint32]string) string {
	if c.Reason == "" {
		return ""
	}
	var names []string
	for _, p := range c.Subflows {
		names = append(names, text.Printable(cmp.Or(devices[p], fmt.Sprintf("path %d", p))))
	}
	return fmt.Sprintf(" by %s (%s)", strings.Join(names, ", "), text.Printable(c.Reason))
}

// queryPrimary asks the primary, at socket or its default place.
func queryPrimary(ctx context.Context, c *client.Client) (api.Status, error) {
	s, err := c.Status(ctx, false)
	if fault.Is(err, fault.NotRunning) {
		return s, fault.New(fault.NotRunning, err, "start it with `mpbond primary`, or tell where it is with --socket")
	}
	if err == nil && s.SOCKS == "" && s.HTTP == "" {
		err = fault.New(fault.NotRunning, errors.New("the running primary has no proxy"), "start it with a SOCKS5 or HTTP proxy address")
	}
	return s, err
}
