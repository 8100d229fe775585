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
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"

	"mpbond/fault"
	"mpbond/identity"
	"mpbond/intercept/tun"
	"mpbond/onload"
	"mpbond/onload/fetch"
	"mpbond/onload/relay"
	"mpbond/tcp"
	"mpbond/unit"
)

// ownLine names this device's own line, by the route that it has.
const ownLine = "this device"

// onloadResult is what `mpbond get --onload --json` prints.
type onloadResult struct {
	Objects []fetch.Got   `json:"objects"`
	Bytes   unit.Bytes    `json:"bytes"`  // of the objects, without what was there
	Wasted  unit.Bytes    `json:"wasted"` // fetched besides
	Seconds float64       `json:"seconds"`
	RateBps unit.Rate     `json:"rate_bps"`
	Devices []onloadShare `json:"devices"`
}

type onloadShare struct {
	fetch.Share
	Of float64 `json:"share"` // of the bytes of all devices, 0 to 1
}

func newOnloadResult(r fetch.Result) onloadResult {
	out := onloadResult{Objects: r.Objects, Seconds: r.Took.Seconds()}
	if out.Objects == nil {
		out.Objects = []fetch.Got{}
	}
	for _, o := range r.Objects {
		out.Bytes += o.Bytes - o.Resumed
	}
	out.Devices, out.Wasted = onloadShares(r.Devices)
	out.RateBps = unit.RateOf(out.Bytes, r.Took)
	return out
}

// onloadShares is who did how much, and what of it was for nothing.
func onloadShares(devices []fetch.Share) (list []onloadShare, wasted unit.Bytes) {
	var all unit.Bytes
	for _, d := range devices {
		all, wasted = all+d.Bytes, wasted+d.Wasted
	}
	for _, d := range devices {
		list = append(list, onloadShare{d, float64(d.Bytes) / float64(max(1, all))})
	}
	return list, wasted
}

// sharesText is that for people: a line for each.
func sharesText(devices []onloadShare) (s string) {
	width := 0
	for _, d := range devices {
		width = max(width, len(d.Device))
	}
	for _, d := range devices {
		s += fmt.Sprintf("\n  %-*s %5.1f %%  %v", width, oneLine(d.Device), 100*d.Of, d.Bytes)
		if d.Wasted > 0 {
			s += fmt.Sprintf(", %v of it for nothing", d.Wasted)
		}
	}
	return s
}

// String is the result for people.
func (r onloadResult) String() string {
	what := fmt.Sprintf("%d files", len(r.Objects))
	if len(r.Objects) == 1 {
		what = oneLine(r.Objects[0].File)
	}
	s := fmt.Sprintf("%s: %v in %.2f s, %v", what, r.Bytes, r.Seconds, r.RateBps)
	for _, o := range r.Objects {
		if o.Resumed > 0 {
			s += fmt.Sprintf("\n  %s: %v were there", oneLine(o.File), o.Resumed)
		}
	}
	return s + sharesText(r.Devices)
}

// onloadGet is downloads without a server.
type onloadGet struct {
	getOptions
	objects []fetch.Object
	find    func(context.Context) ([]fetch.Device, error) // the helpers
	log     *slog.Logger
}

func newOnloadGet(o getOptions, urls []string) (*onloadGet, error) {
	g := &onloadGet{getOptions: o, find: findHelpers, log: slog.Default()}
	if o.socket != "" {
		return nil, usage("--socket is of a primary, which --onload does without")
	}
	if o.file == "-" {
		return nil, usage("with --onload the parts come in any order: name a file with --output")
	}
	st, err := os.Stat(o.file)
	dir := err == nil && st.IsDir()
	switch {
	case o.file != "" && len(urls) > 1 && !dir:
		return nil, usage("with several URLs, --output names a directory that is there")
	case err == nil && !dir && !st.Mode().IsRegular():
		return nil, usage("%s is no plain file", oneLine(o.file))
	case o.sha256 != "" && len(urls) > 1:
		return nil, usage("--sha256 is of one file")
	}
	names := map[string]bool{}
	in := "."
	if dir {
		in, o.file = o.file, "" // the URL's
	}
	for _, url := range urls {
		one, err := newGet(o, url)
		if err == nil {
			err = one.chooseFile(in)
		}
		if err != nil {
			return nil, err
		}
		if names[one.file] {
			return nil, usage("two of the URLs are of the name %s", oneLine(one.file))
		}
		names[one.file] = true
		g.objects = append(g.objects, fetch.Object{URL: url, File: one.file, Keep: one.keep, SHA256: one.sum})
	}
	return g, nil
}

// findHelpers lists the helpers that may be onloaded through.
func findHelpers(ctx context.Context) (list []fetch.Device, err error) {
	trust, err := openTrust()
	if err != nil || len(trust.ByRole(identity.RoleHelper)) == 0 {
		return nil, err
	}
	key, trust, err := loadIdentity()
	if err != nil {
		return nil, err
	}
	found, err := relay.Finder{Key: key, Trust: trust, Look: findOnload, Options: tcp.Options{Mark: aroundTUN()}}.Find(ctx)
	for _, d := range found {
		list = append(list, fetch.Device{Name: d.Helper.Name, Transport: d.Transport()})
	}
	return list, err
}

// aroundTUN is the mark of sockets that go around a bond that takes all.
func aroundTUN() int {
	if tun.Present() && os.Geteuid() == 0 {
		return tcp.OwnMark
	}
	return 0 // or through the bond, which does no harm
}

// devicesFor are those that an item can go over: own lines, by the route that there is or
// the interfaces that are named, and helpers. What is amiss with these is told to stderr.
func devicesFor(ctx context.Context, interfaces []string, find func(context.Context) ([]fetch.Device, error), stderr io.Writer) ([]fetch.Device, error) {
	devices, err := ownLines(interfaces)
	if err != nil {
		return nil, err
	}
	helpers, err := find(ctx)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "helpers cannot be found: %s\n", oneLine(err.Error()))
	case len(helpers) == 0 && len(devices) == 1:
		fmt.Fprintln(stderr, "no helper is found: over this device's own line alone")
	}
	return append(devices, helpers...), nil
}

// ownLines are this device's lines: by the route that it has, or the interfaces that
// are named.
func ownLines(interfaces []string) (list []fetch.Device, err error) {
	for _, name := range interfaces {
		if _, err := net.InterfaceByName(name); err != nil {
			return nil, fault.New(fault.Usage, fmt.Errorf("--interface %s: %w", name, err), "`ip link` lists the interfaces")
		}
	}
	names := interfaces
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		opt := tcp.Options{Interface: name, Mark: aroundTUN()}
		d := &net.Dialer{Control: opt.Bind, Timeout: headerTimeout / 2}
		d.SetMultipathTCP(false)
		list = append(list, fetch.Device{Name: cmp.Or(name, ownLine), Transport: fetch.NewLine(d.DialContext)})
	}
	return list, nil
}

// run downloads. Progress goes to stderr, if that is a terminal.
func (g *onloadGet) run(ctx context.Context, stderr io.Writer) (res onloadResult, err error) {
	scheduler, err := onload.New(cmp.Or(g.scheduler, onload.Default))
	if err != nil {
		return res, err
	}
	notes := stderr
	if g.quiet {
		notes = io.Discard
	}
	devices, err := devicesFor(ctx, g.interfaces, g.find, notes)
	if err != nil {
		return res, err
	}
	cfg := fetch.Config{Devices: devices, Objects: g.objects, Scheduler: scheduler, UserAgent: "mpbond/" + version, Mode: newFileMode(), Log: g.log}
	screen := io.Discard
	if !g.quiet && !g.asJSON {
		screen = stderr
	}
	bars := newOnloadBars(screen, cfg.Devices)
	cfg.Progress = bars.draw
	r, err := fetch.Get(ctx, cfg)
	bars.end(err == nil)
	if errors.Is(err, context.Canceled) {
		err = fault.New(fault.Other, errors.New("interrupted"), "what came is kept, if it can be gone on with: the same command does")
	}
	return newOnloadResult(r), explainOnload(err)
}

// explainOnload gives errors without a kind what can be done about them.
func explainOnload(err error) error {
	if fault.Is(err, fault.Other) && fault.HintOf(err) == "" {
		return explainGet(err)
	}
	return err
}

// onloadBars draws a bar for all, and one for each device.
type onloadBars struct {
	screen  *mpb.Progress
	total   *mpb.Bar
	devices []*deviceBar
	begun   time.Time
}

func newOnloadBars(to io.Writer, devices []fetch.Device) *onloadBars {
	b := &onloadBars{screen: newScreen(to), begun: time.Now()}
	b.total = newBar(b.screen, -1, "total", func(n unit.Bytes) string { return unit.RateOf(n, time.Since(b.begun)).String() })
	for _, d := range devices {
		one := &deviceBar{}
		one.note.Store(new(string))
		one.bar = newBar(b.screen, -1, d.Name, func(unit.Bytes) string { return *one.note.Load() })
		b.devices = append(b.devices, one)
	}
	return b
}

func (b *onloadBars) draw(p fetch.Progress) {
	b.total.SetTotal(max(0, int64(p.Size)), false)
	b.total.SetCurrent(int64(p.Bytes))
	for i, d := range p.Devices {
		note := d.Rate.String()
		if d.Down != nil {
			note = oneLine(d.Down.Error())
			note = note[:min(len(note), 60)]
		}
		b.devices[i].note.Store(&note)
		b.devices[i].bar.SetTotal(max(0, int64(p.Size)), false)
		b.devices[i].bar.SetCurrent(int64(d.Bytes))
	}
}

// end leaves the bars on the screen if all went well.
func (b *onloadBars) end(ok bool) {
	b.total.Abort(!ok)
	for _, d := range b.devices {
		d.bar.Abort(!ok)
	}
	b.screen.Wait()
}

// command downloads, and tells what came of it, also if some objects are missing.
func (g *onloadGet) command(cmd *cobra.Command) error {
	res, err := g.run(cmd.Context(), cmd.ErrOrStderr())
	switch {
	case len(res.Objects) == 0 && err != nil:
	case g.asJSON:
		err = errors.Join(err, printJSON(cmd.OutOrStdout(), res))
	case !g.quiet:
		cmd.PrintErrln(res)
	}
	return err
}
