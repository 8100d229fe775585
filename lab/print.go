// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"mpbond/base/unit"
)

// Text output of a lab and its measurements. Write errors are ignored, as on a terminal.

// newColumns returns a writer that aligns text with tabs.
func newColumns(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// Print prints what the links carried and dropped, and how late the emulator was.
func (s Stats) Print(out io.Writer) {
	w := newColumns(out)
	fmt.Fprintln(w, "LINK\tFROM\tTO\tRATE\tDELAY\tQUEUE\tDELIVERED\tPACKETS\tDROPS queue/loss/outage\tONE WAY "+
		"p50/p95/p99/max, ms")
	for _, l := range s.Links {
		for dir, st := range l.Lines {
			rate, queue := st.Rate.String(), st.Queue.String()
			if st.Rate < 0 {
				rate = "unlimited"
			}
			if !l.Shaped {
				rate, queue = "veth", "-"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d/%d/%d\t%s\n", l.Name, l.Ends[dir], l.Ends[1-dir], rate,
				st.Delay, queue,
				st.Count.Delivered.Bytes, st.Count.Delivered.Packets, st.Count.QueueDrops.Packets,
				st.Count.LossDrops.Packets, st.Count.OutageDrops.Packets, st.Delays.String())
		}
	}
	w.Flush()
	for _, n := range s.LTE {
		n.printNetwork(out)
	}
	lt := s.Lateness
	fmt.Fprintf(out, "lateness of %d packets: p50 %v, p99 %v, p99.9 %v, max %v", lt.Packets,
		lt.P50.Round(time.Microsecond), lt.P99.Round(time.Microsecond), lt.P999.Round(time.Microsecond),
		lt.Max.Round(time.Microsecond))
	if lt.Disturbed {
		fmt.Fprint(out, ": DISTURBED")
	}
	if !s.Realtime {
		fmt.Fprint(out, " (no real-time priority)")
	}
	fmt.Fprintln(out)
}

// String returns p50, p95, p99 and the maximum in ms, or "-" without packets.
func (d Delays) String() string {
	if d.Packets == 0 {
		return "-"
	}
	ms := func(v time.Duration) string { return fmt.Sprintf("%.1f", v.Seconds()*1000) }
	return ms(d.P50) + "/" + ms(d.P95) + "/" + ms(d.P99) + "/" + ms(d.Max)
}

// printNetwork prints a network and its users.
func (n LTEStats) printNetwork(out io.Writer) {
	fmt.Fprintf(out, "lte %s, subframe %d: control messages at %s, truth at %s", n.Name, n.Number, n.Messages, n.Truth)
	if n.Missed > 0 || n.Dropped > 0 {
		fmt.Fprintf(out, " (%d subframes missed, %d listeners dropped)", n.Missed, n.Dropped)
	}
	fmt.Fprintln(out)
	for i, c := range n.Samples {
		fmt.Fprintf(out, "  samples of carrier %d at %s, %d a second", i, c.Socket, c.Rate)
		if c.Silent > 0 {
			fmt.Fprintf(out, " (%d silent subframes)", c.Silent)
		}
		fmt.Fprintln(out)
	}
	w := newColumns(out)
	fmt.Fprintln(w, "USER\tRNTI\tSIGNAL\tCARRIERS\tWAITING\tC_p\tC_f")
	for _, u := range n.Users {
		name := u.Name
		if !u.Link {
			name += " (model)"
		}
		signal := fmt.Sprintf("%.1f dB", u.SINR)
		if u.Recorded != nil {
			signal = u.Recorded.String()
		}
		fmt.Fprintf(w, "%s\t%#x\t%s\t%d\t%s\t%s\t%s\n", name, uint16(u.RNTI), signal, u.Carriers, u.Waiting,
			u.Physical, u.Fair)
	}
	w.Flush()
}

// Print prints a transfer in one line.
func (r Result) Print(out io.Writer) {
	rate := unit.RateOf(r.Bytes*unit.Bytes(r.Streams), time.Duration(r.Seconds*float64(time.Second)))
	fmt.Fprintf(out, "%-12s #%d %7.3f s %11v %4.0f %% of bound  gap %.2f s  %s", r.Scheme, r.Rep, r.Seconds, rate,
		100*r.Efficiency, r.LongestGap,
		FormatByDevice(r.Devices, unit.Bytes.String))
	if o := r.Objects; o != nil {
		fmt.Fprintf(out, "  cold %.3f s, warm %.3f s (bounds %.3f, %.3f s)", o.Cold, o.Warm, o.ColdBound, o.WarmBound)
	}
	for _, link := range slices.Sorted(maps.Keys(r.Pings)) {
		p := r.Pings[link]
		fmt.Fprintf(out, "  ping %s %s ms, %d of %d lost", link, p.Down, p.Lost, p.Sent)
	}
	if r.Disturbed {
		fmt.Fprint(out, describeDisturbance("p99.9", r.Lateness.P999, r.Lateness.Max, r.Starved))
	}
	if r.Error != "" {
		fmt.Fprint(out, "  ERROR: ", r.Error)
	}
	fmt.Fprintln(out)
}

// describeDisturbance says why a result is discarded: how late packets were, at a quantile and at
// most, and how long a program waited for a processor.
func describeDisturbance(name string, quantile, most, starved time.Duration) string {
	return fmt.Sprintf("  DISTURBED (packets late: %s %v, max %v; a program waited %v for a processor), discarded", name,
		quantile.Round(time.Millisecond), most.Round(time.Millisecond), starved.Round(time.Millisecond))
}

// FormatByDevice lists the values of all devices, without empty ones.
func FormatByDevice[T any](m map[string]T, text func(T) string) string {
	var all []string
	for _, d := range slices.Sorted(maps.Keys(m)) {
		if s := text(m[d]); s != "" {
			all = append(all, d+" "+s)
		}
	}
	return strings.Join(all, ", ")
}

// Print prints the phases of a run.
func (r FlowResult) Print(out io.Writer) {
	w := newColumns(out)
	fmt.Fprintf(w, "%s #%d", r.Set, r.Rep)
	if r.Disturbed {
		fmt.Fprint(w, describeDisturbance("p99", r.Lateness.P99, r.Lateness.Max, r.Starved))
	}
	if r.Error != "" {
		fmt.Fprint(w, "  ERROR: ", r.Error)
	}
	fmt.Fprintln(w)
	for _, ph := range r.Phases {
		fmt.Fprintf(w, "  %.0f–%.0f s\t%v\t%.1f %%\tdelay p50 %.1f\tp95 %.1f ms\t%d dropped\t%d lost", ph.From, ph.To,
			ph.Rate, 100*ph.Used,
			fractionalMillis(ph.Delay.P50), fractionalMillis(ph.Delay.P95), ph.Drops, ph.Losses)
		if len(ph.Flows) > 1 {
			fmt.Fprintf(w, "\tJain %.3f:", Jain(ph.Flows))
			for _, f := range ph.Flows {
				fmt.Fprintf(w, " %.2f", float64(f)/1e6)
			}
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
}

// Print prints medians of undisturbed results by case, and how they compare with alone.
func (p DualSpec) Print(out io.Writer, all map[string][]DualResult) {
	w := newColumns(out)
	fmt.Fprintf(w, "links %s, %v\tundisturbed\tfirst user\tsecond user\n", p.Links, p.Size)
	alone := [2]float64{}
	for _, name := range []string{DualAlone, DualIdle, DualBoth} {
		fmt.Fprintf(w, "%s\t%d of %d", map[string]string{DualAlone: "alone, without mpbond",
			DualIdle: "the other is idle", DualBoth: "both at once"}[name],
			len(all[name]), p.Reps)
		for i := range DualUsers {
			var times []float64
			for _, r := range all[name] {
				times = append(times, r.Seconds[i])
			}
			if len(times) == 0 {
				fmt.Fprint(w, "\t-")
				continue
			}
			slices.Sort(times)
			median := (times[len(times)/2] + times[(len(times)-1)/2]) / 2
			if name == DualAlone {
				alone[i] = median
			}
			fmt.Fprintf(w, "\t%.2f s", median)
			if alone[i] > 0 && name != DualAlone {
				fmt.Fprintf(w, " (%+.0f %%)", 100*(median/alone[i]-1))
			}
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
}

func fractionalMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// PrintCalibrations prints the accuracy of the emulator at each rate and the highest rate at which
// it is accurate. It returns an error if there is none.
func PrintCalibrations(out io.Writer, all []Calibration) error {
	w := newColumns(out)
	fmt.Fprintln(w, "SIX LINKS OF\tRATE ERROR\tADDED DELAY p50\tp99\tLATENESS p99\tp99.9\tmax\tCORES\tFIT")
	fit := unit.Rate(0)
	for _, r := range all {
		verdict := "no"
		switch {
		case r.Lateness.Disturbed:
			verdict = "no: disturbed"
		case r.Fit:
			verdict, fit = "yes", max(fit, r.Rate)
		}
		us := func(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
		fmt.Fprintf(w, "%v\t%+.3f%%\t%v\t%v\t%v\t%v\t%v\t%.2f\t%s\n", r.Rate, 100*r.RateError, us(r.AddedP50),
			us(r.AddedP99),
			us(r.Lateness.P99), us(r.Lateness.P999), us(r.Lateness.Max), r.CPU, verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if fit == 0 {
		return fmt.Errorf("this machine is too busy for accurate emulation (is something else running?)")
	}
	fmt.Fprintf(out, "The emulator is accurate up to six links of %v at once on this machine.\n", fit)
	return nil
}
