// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"

	"mpbond/base/unit"
	"mpbond/internal/cli"
	"mpbond/lab"
)

// Parameters of the demo.
const (
	demoLinks = "8/10/5,10/5"
	demoSize  = 20 * unit.MB
)

// demoSchemes are the schemes of the demo.
var demoSchemes = []string{"single", "mptcp", "mpbond"}

func labDemoCommand() *cobra.Command {
	links, size := demoLinks, demoSize.String()
	c := &cobra.Command{
		Use: "demo", Short: "compare one download over one link, kernel MPTCP and mpbond", Args: cobra.NoArgs,
		Example: "  mpbond-lab demo --links 8/10/5 --size 4MB",
		Long: `Emulate a primary and two helpers, each with a link to the same server, and
download the same file three times with curl from nginx: over the primary's own
link (single), by tethering with the kernel's MPTCP (mptcp), and with mpbond.
Show what each device carries, then compare. The demo takes about a minute and
leaves nothing behind.`,
		RunE: func(c *cobra.Command, _ []string) error {
			top, err := lab.Triangle(links)
			if err != nil {
				return cli.AsUsageError(err)
			}
			d := &demo{topology: top, out: c.OutOrStdout(), screen: c.ErrOrStderr()}
			if d.size, err = unit.ParseBytes(size); err != nil {
				return cli.AsUsageError(err)
			}
			return d.runDemoDownloads(c.Context())
		},
	}
	c.Flags().StringVar(&links, "links", links, "set the rates in Mbit/s, as PS/HS/pipe[+pipe…][,HS/pipe…]")
	hideFormerLinksFlag(c, &links)
	c.Flags().StringVar(&size, "size", size, "download a file of this size")
	return c
}

// demo is one run of the demo. Its samples and results come one after the other.
type demo struct {
	topology *lab.Topology
	size     unit.Bytes
	out      io.Writer    // of the table
	screen   io.Writer    // of everything else
	display  *demoDisplay // of the running transfer, or nil
	results  map[string]lab.Result
}

// runDemoDownloads makes the downloads and prints the table.
func (d *demo) runDemoDownloads(ctx context.Context) error {
	d.results = map[string]lab.Result{}
	p := lab.RunSpec{Topology: d.topology, Size: d.size, Reps: 1, Seed: uint64(time.Now().UnixNano()),
		KeepDisturbed: true, Watch: d.showSample}
	p.Schemes = demoSchemes
	if err := p.Check(); err != nil {
		return err
	}
	if err := checkProduct(ctx, p.Schemes...); err != nil {
		return err
	}
	fmt.Fprintln(d.screen, d.describeNetwork())
	err := lab.Run(ctx, p, func(r lab.Result) {
		d.endDisplay(&r)
		d.results[r.Scheme] = r
	})
	d.endDisplay(nil)
	if err != nil {
		return err
	}
	if err := d.printComparison(); err != nil {
		return err
	}
	for _, s := range demoSchemes {
		if r := d.results[s]; r.Error != "" {
			return fmt.Errorf("%s: %s", s, r.Error)
		}
	}
	return nil
}

// describeNetwork describes the emulated network.
func (d *demo) describeNetwork() string {
	link := func(name string) string {
		l := d.topology.Link[name]
		return fmt.Sprintf("%s, %s one way", cmp.Or(l.Rate, "not limited"), cmp.Or(l.Delay, "0ms"))
	}
	var s strings.Builder
	fmt.Fprintf(&s, "Emulated: primary to server %s;", link("ps"))
	for i, h := range d.topology.Helpers() {
		fmt.Fprintf(&s, "\n  %s to server %s, to primary %s;", h, link(fmt.Sprintf("hs%d", i+1)),
			link(fmt.Sprintf("pipe%d", i+1)))
	}
	fmt.Fprintf(&s, "\nThree schemes download the same %v with curl from nginx behind the server:\n"+
		"  single over one link, mptcp by tethering with the kernel's MPTCP, and mpbond.\n", d.size)
	return s.String()
}

// showSample shows a sample of the running transfer.
func (d *demo) showSample(s lab.Sample) {
	if d.display == nil {
		d.display = newDemoDisplay(d, s.Scheme)
	}
	d.display.addDemoSample(s)
}

// endDisplay ends the display of a transfer; r is nil if it was interrupted.
func (d *demo) endDisplay(r *lab.Result) {
	if d.display != nil {
		d.display.finishDisplay(r)
		d.display = nil
	}
}

// deviceNames returns the primary, then the helpers.
func (d *demo) deviceNames() []string { return append([]string{"primary"}, d.topology.Helpers()...) }

// demoDisplay displays a running transfer: bars on a terminal, else a line a second.
type demoDisplay struct {
	demo     *demo
	name     string
	screen   *mpb.Progress // nil if this is not a terminal
	bars     map[string]*demoBar
	samples  []lab.Sample // of the last second, for rates
	lastLine time.Duration
}

type demoBar struct {
	bar  *mpb.Bar
	rate atomic.Pointer[string] // drawn by a goroutine of the library
}

const demoTotal = "all"

func newDemoDisplay(d *demo, scheme string) *demoDisplay {
	s := &demoDisplay{demo: d, name: scheme, bars: map[string]*demoBar{}, samples: []lab.Sample{{}}}
	if !cli.IsTerminal(d.screen) {
		return s
	}
	fmt.Fprintln(d.screen, s.name)
	s.screen = cli.NewBars(d.screen)
	for _, name := range append([]string{demoTotal}, d.deviceNames()...) {
		b := &demoBar{}
		b.rate.Store(new(string))
		// The sizes of the lab are powers of 1024, as its report prints them.
		b.bar = cli.NewBar(s.screen, d.size, "  "+name, unit.Bytes.String,
			func(unit.Bytes) string { return *b.rate.Load() })
		s.bars[name] = b
	}
	return s
}

// addDemoSample shows a sample.
func (s *demoDisplay) addDemoSample(now lab.Sample) {
	for len(s.samples) > 1 && now.Elapsed-s.samples[1].Elapsed >= time.Second {
		s.samples = s.samples[1:]
	}
	before := s.samples[0]
	s.samples = append(s.samples, now)
	rate := func(a, b unit.Bytes) string { return unit.RateOf(b-a, now.Elapsed-before.Elapsed).String() }
	if s.screen != nil {
		for name, b := range s.bars {
			from, to := before.Devices[name], now.Devices[name]
			if name == demoTotal {
				from, to = before.Bytes, now.Bytes
			}
			text := rate(from, to)
			b.rate.Store(&text)
			b.bar.SetCurrent(int64(min(to, s.demo.size-1))) // complete only at the end
		}
		return
	}
	if now.Elapsed-s.lastLine < time.Second {
		return
	}
	s.lastLine = now.Elapsed.Truncate(time.Second)
	line := fmt.Sprintf("%-8s %4.0f s  %v of %v", s.name, now.Elapsed.Seconds(), now.Bytes, s.demo.size)
	for _, name := range s.demo.deviceNames() {
		line += fmt.Sprintf("  %s %s", name, rate(before.Devices[name], now.Devices[name]))
	}
	fmt.Fprintln(s.demo.screen, line)
}

// finishDisplay leaves the bars on the screen if the transfer succeeded, with its mean rates.
func (s *demoDisplay) finishDisplay(r *lab.Result) {
	if s.screen == nil {
		return
	}
	ok := r != nil && r.Error == ""
	for name, b := range s.bars {
		if ok {
			n := r.Devices[name]
			if name == demoTotal {
				n = r.Bytes
			}
			text := unit.RateOf(n, toDuration(r.Seconds)).String()
			b.rate.Store(&text)
			b.bar.SetCurrent(int64(min(n, s.demo.size)))
		}
		b.bar.Abort(!ok)
	}
	s.screen.Wait()
}

// printComparison prints the table.
func (d *demo) printComparison() error {
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%v\tTIME\tRATE\t%s\tOF BOUND\tSHA-256\t\n", d.size, strings.Join(d.deviceNames(), "\t"))
	var bound float64
	var notes []string
	for _, s := range demoSchemes {
		r, ok := d.results[s]
		if !ok {
			continue
		}
		bound = r.Bound
		var sum unit.Bytes
		for _, n := range r.Devices {
			sum += n
		}
		fmt.Fprintf(w, "%s\t%.2f s\t%v", s, r.Seconds, unit.RateOf(r.Bytes, toDuration(r.Seconds)))
		for _, name := range d.deviceNames() {
			fmt.Fprintf(w, "\t%s", cli.FormatPercent(r.Devices[name], sum))
		}
		verdict := "WRONG"
		if r.SHA {
			verdict = "right"
		}
		fmt.Fprintf(w, "\t%.0f %%\t%s\t\n", 100*r.Efficiency, verdict)
		if r.Disturbed {
			notes = append(notes, fmt.Sprintf("%s: the machine was busy and delayed links by up to %v, and "+
				"programs by up to %v; the time may be wrong.", s, r.Lateness.Max.Round(time.Millisecond),
				r.Starved.Round(time.Millisecond)))
		}
	}
	fmt.Fprintf(w, "fluid bound of all links\t%.2f s\t%v\t\n", bound, unit.RateOf(d.size, toDuration(bound)))
	if err := w.Flush(); err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(d.out, n)
	}
	if one, all := d.results["single"], d.results["mpbond"]; one.Error == "" && all.Error == "" && all.Seconds > 0 {
		fmt.Fprintf(d.out, "mpbond took %.2f times the time of single.\n", all.Seconds/one.Seconds)
	}
	return nil
}

// toDuration converts seconds.
func toDuration(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
