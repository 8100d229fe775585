// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/control/policy"
	"mpbond/internal/cli"
	"mpbond/link/tcp"
	"mpbond/node/intercept/tun"
	"mpbond/onload/board"
	"mpbond/onload/fetch"
	"mpbond/onload/relay"
	"mpbond/onload/transfer"
)

// localLinkName names this device's own Internet link, the default route, when no interface is
// given.
const localLinkName = "this device"

// onloadResult is what `mpbond get --onload --json` prints.
type onloadResult struct {
	Objects []fetch.Fetched `json:"objects"`
	Failed  []fetch.Failed  `json:"failed"`
	Bytes   unit.Bytes      `json:"bytes"`  // of the objects, without what earlier runs fetched
	Wasted  unit.Bytes      `json:"wasted"` // fetched in vain
	Seconds float64         `json:"seconds"`
	RateBps unit.Rate       `json:"rate_bps"`
	Devices []onloadShare   `json:"devices"`
}

type onloadShare struct {
	fetch.DeviceUsage
	Fraction float64 `json:"share"` // of the bytes of all devices, 0 to 1
}

func newOnloadResult(r fetch.Result) onloadResult {
	out := onloadResult{
		Objects: append([]fetch.Fetched{}, r.Objects...), Failed: append([]fetch.Failed{}, r.Failed...),
		Seconds: r.Duration.Seconds(),
	}
	for _, o := range r.Objects {
		out.Bytes += o.Bytes - o.Resumed
	}
	out.Devices, out.Wasted = computeShares(r.Devices)
	out.RateBps = unit.RateOf(out.Bytes, r.Duration)
	return out
}

// computeShares returns the share of each device, and the bytes that were fetched in vain.
func computeShares(devices []fetch.DeviceUsage) (list []onloadShare, wasted unit.Bytes) {
	var all unit.Bytes
	for _, d := range devices {
		all, wasted = all+d.Bytes, wasted+d.Wasted
	}
	for _, d := range devices {
		list = append(list, onloadShare{d, float64(d.Bytes) / float64(max(1, all))})
	}
	return list, wasted
}

// formatShares formats shares for people, one line for each device.
func formatShares(devices []onloadShare) (s string) {
	width := 0
	for _, d := range devices {
		width = max(width, len(d.Device))
	}
	for _, d := range devices {
		s += fmt.Sprintf("\n  %-*s %5.1f %%  %v", width, text.Printable(d.Device), 100*d.Fraction, d.Bytes.Decimal())
		if d.Wasted > 0 {
			s += fmt.Sprintf(", %s of it wasted", d.Wasted.Decimal())
		}
	}
	return s
}

// String formats the result for people.
func (r onloadResult) String() string {
	what, done := formatCount(len(r.Objects), "file"), 0
	if len(r.Objects) == 1 {
		what = text.Printable(r.Objects[0].File)
	}
	s := fmt.Sprintf("%s: %s in %.2f s, %v", what, r.Bytes.Decimal(), r.Seconds, r.RateBps)
	for _, o := range r.Objects {
		if o.Resumed > 0 && o.Resumed == o.Bytes {
			done++
		} else if o.Resumed > 0 {
			s += fmt.Sprintf("\n  %s: resumed after %s", text.Printable(o.File), o.Resumed.Decimal())
		}
		if o.Unchecked != "" {
			s += fmt.Sprintf("\n  %s: not verified: unencrypted, fetched over %s alone",
				text.Printable(o.File), text.Printable(o.Unchecked))
		}
	}
	if done > 0 {
		s += fmt.Sprintf("\n  %d of them were complete from an earlier run", done)
	}
	return s + formatShares(r.Devices)
}

// onloadTask is one run of get --onload: downloads without a server.
type onloadTask struct {
	getOptions
	objects []fetch.Object
	dir     string // to create if it does not exist
	urls    []string
	secrets *fetch.Secrets
	find    func(context.Context) ([]fetch.Device, error) // the helpers; nil: findHelpers
	log     *slog.Logger
}

// newOnloadTask checks the options for `mpbond get --onload` and chooses the file of each URL.
func newOnloadTask(o getOptions, urls []string) (*onloadTask, error) {
	g := &onloadTask{getOptions: o, urls: urls, log: slog.Default()}
	if o.socket != "" {
		return nil, cli.UsageError("--socket names a primary, and --onload uses none: leave one out")
	}
	if o.file == "-" {
		return nil, cli.UsageError("with --onload parts arrive in any order: name a file with --output")
	}
	var err error
	if g.secrets, err = o.secretOptions.loadSecrets(urls...); err != nil {
		return nil, err
	}
	st, err := userfile.Stat(o.file)
	dir := err == nil && st.IsDir()
	if o.file != "" && err != nil && (len(urls) > 1 || strings.HasSuffix(o.file, "/")) {
		g.dir, dir = o.file, true
	}
	switch {
	case o.file != "" && len(urls) > 1 && !dir:
		return nil, cli.UsageError("with several URLs --output must name a directory")
	case err == nil && !dir && !st.Mode().IsRegular():
		return nil, cli.UsageError("%s is not a plain file", text.Printable(o.file))
	case o.sha256 != "" && len(urls) > 1:
		return nil, cli.UsageError("--sha256 needs exactly one URL")
	}
	names := map[string]bool{}
	in := "."
	if dir {
		in, o.file = o.file, "" // named after the URL
	}
	for _, url := range urls {
		one, err := newGetTask(o, url)
		switch {
		case err != nil:
		case len(urls) > 1: // an existing file may be from an earlier run
			err = one.setOutputName(in)
		default:
			err = one.chooseOutputFile(in)
		}
		if err != nil {
			return nil, err
		}
		if names[one.file] {
			return nil, cli.UsageError("two of the URLs name the file %s", text.Printable(one.file))
		}
		names[one.file] = true
		g.objects = append(g.objects, fetch.Object{URL: url, File: one.file, KeepExisting: one.noReplace,
			SHA256: one.wantSHA256})
	}
	return g, nil
}

// findHelpers returns the helpers that carry onloading for this device. The ledger counts the
// connections to them.
func findHelpers(ctx context.Context, ledger tcp.Ledger) (list []fetch.Device, err error) {
	trust, err := cli.OpenTrust()
	if err != nil || len(trust.ByRole(identity.RoleHelper)) == 0 {
		return nil, err
	}
	key, trust, err := cli.LoadIdentity()
	if err != nil {
		return nil, err
	}
	finder := relay.Finder{
		Key: key, Trust: trust, Discover: findOnloadHelpers, Options: tcp.Options{Mark: bypassMark(), Ledger: ledger},
	}
	found, err := finder.Find(ctx)
	for _, d := range found {
		list = append(list, fetch.Device{Name: d.Helper.Name, Transport: d.Transport(), Helper: true,
			Metered: d.Metered})
	}
	if len(list) == 0 && err == nil {
		err = helpersNotFound(trust.ByRole(identity.RoleHelper))
	}
	return list, err
}

// helpersNotFound returns the error for helpers that do not answer, nil if all are paused.
func helpersNotFound(helpers []identity.Peer) error {
	var names []string
	for _, p := range helpers {
		if !p.Paused {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fault.New(fault.NotFound, fmt.Errorf("no address of %s is known, and mDNS finds none",
		strings.Join(names, ", ")),
		"start `mpbond helper --onload=200MB` there, on this network; if the network blocks multicast, "+
			"pair again with its address: `mpbond pair CODE@ADDRESS`")
}

// bypassMark returns the mark of sockets that bypass a TUN device of mpbond, 0 if there is none.
func bypassMark() int {
	if tun.Present() && os.Geteuid() == 0 {
		return tcp.OwnMark
	}
	return 0 // without root connections go through the bond, which works too
}

// noLowWatermark lets the kernel decide how many unsent bytes it holds.
const noLowWatermark = 1 << 30

// openLocalLinks returns this device's Internet links: the named interfaces, or the default route
// if there are none. The ledger counts their connections.
func openLocalLinks(interfaces []string, ledger tcp.Ledger) (list []fetch.Device, err error) {
	for i, name := range interfaces {
		if slices.Contains(interfaces[:i], name) {
			return nil, cli.UsageError("--interface %s is given twice", text.Printable(name))
		}
		if _, err := net.InterfaceByName(name); err != nil {
			return nil, fault.New(fault.Usage, fmt.Errorf("--interface %s: %w", name, err),
				"`ip link` lists the interfaces")
		}
	}
	names := interfaces
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		opt := tcp.Options{Interface: name, Mark: bypassMark()}
		d := &net.Dialer{Control: opt.Bind, Timeout: headerTimeout / 2}
		d.SetMultipathTCP(false)
		opt.Ledger, opt.NotSentLowat = ledger, noLowWatermark
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			counted, err := tcp.Wrap(c.(*net.TCPConn), opt)
			if err != nil {
				return nil, err
			}
			return counted, nil
		}
		list = append(list, fetch.Device{Name: cmp.Or(name, localLinkName), Transport: transfer.NewTransport(dial)})
	}
	return list, nil
}

// runOnloadDownload downloads the files. Progress appears on stderr if that is a terminal.
func (t *onloadTask) runOnloadDownload(ctx context.Context, stderr io.Writer) (res onloadResult, err error) {
	scheduler, err := board.New(cmp.Or(t.scheduler, board.Default))
	if err != nil {
		return res, err
	}
	notes := io.Writer(&lockedWriter{w: stderr})
	if t.quiet {
		notes = io.Discard
	}
	done, err := t.openFinished()
	if err != nil {
		return res, err
	}
	if len(done.remaining) == 0 {
		done.complete = len(done.failed) == 0
		return newOnloadResult(done.mergeResult(fetch.Result{})), done.closeJournal()
	}
	if t.dir != "" {
		if err := userfile.MkdirAll(t.dir, 0o777); err != nil {
			return res, fault.New(fault.Usage, err, "name another directory with --output")
		}
		defer userfile.Remove(t.dir) // fails unless it is empty
	}
	use, err := openOnloadTally()
	if err != nil {
		return res, err
	}
	defer use.closeOnloadTally()
	devices, err := openLocalLinks(t.interfaces, use.LedgerFor(policy.ForDirect))
	if err != nil {
		return res, err
	}
	screen := io.Discard
	if !t.quiet && !t.asJSON {
		screen = stderr
	}
	bars := newOnloadBars(screen, notes)
	if text := describeExposed(t.secrets, t.urls); text != "" {
		fmt.Fprintln(bars.writerAbove(notes), text)
	}
	search := startHelperSearch(ctx, use.helperFinder(t.find), len(devices) == 1, bars.writerAbove(notes))
	defer search.stopSearch()
	cfg := fetch.Config{
		Devices: devices, NewDevices: search.found, Objects: done.remaining, Secrets: t.secrets,
		OnVerified: done.recordFinished,
		Scheduler:  scheduler, UserAgent: "mpbond/" + cli.Version, Mode: cli.NewFileMode(), Log: t.log,
		OnProgress: bars.drawProgress,
	}
	r, err := fetch.Get(ctx, cfg)
	search.stopSearch()
	bars.finishOnloadBars(err == nil)
	if errors.Is(err, context.Canceled) {
		err = fault.New(fault.Other, errors.New("interrupted"),
			"run the same command again to resume, if the web server allows it")
	}
	if err == nil {
		done.complete = len(done.failed) == 0
	}
	return newOnloadResult(done.mergeResult(r)), errors.Join(addOnloadHint(err), done.closeJournal())
}

// addOnloadHint gives an error without a kind a kind and a hint.
func addOnloadHint(err error) error {
	if fault.Is(err, fault.Other) && fault.HintOf(err) == "" {
		return addDownloadHint(err)
	}
	return err
}

// onloadAndPrint downloads and prints the result, even if some files failed.
func (t *onloadTask) onloadAndPrint(cmd *cobra.Command) error {
	res, err := t.runOnloadDownload(cmd.Context(), cmd.ErrOrStderr())
	switch {
	case len(res.Objects) == 0 && err != nil && (!t.asJSON || len(res.Failed) == 0):
	case t.asJSON:
		err = errors.Join(err, cli.PrintJSON(cmd.OutOrStdout(), res))
	case !t.quiet:
		cmd.PrintErrln(res)
	}
	return err
}
