package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"mpbond/lab"
	"mpbond/unit"
)

type benchOptions struct {
	quick, asJSON     bool
	only              string
	seed              uint64
	markdown, summary string
}

func labBench() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use: "bench", Short: "Measure what mpbond claims, beside its baselines", Args: cobra.NoArgs,
		Long: `Measure what mpbond claims, over emulated networks on this machine, each figure
beside its baselines in the same run, schemes interleaved. Nothing else should
run meanwhile. It says at once how long it will take: about 20 minutes, with
--quick 4, and longer where transfers are disturbed and repeated.`,
		RunE: func(c *cobra.Command, _ []string) error {
			experiments, err := lab.Suite(o.quick, o.seed)
			if err != nil {
				return err
			}
			experiments = slices.DeleteFunc(experiments, func(e lab.Experiment) bool { return !strings.Contains(e.Name, o.only) })
			if len(experiments) == 0 {
				return usage("no experiment has %q in its name", o.only)
			}
			b := &bench{benchOptions: o, out: c.OutOrStdout(), screen: c.ErrOrStderr(), experiments: experiments}
			return b.run(c.Context())
		},
	}
	f := c.Flags()
	f.BoolVar(&o.quick, "quick", false, "few repetitions: to see that all works, not for figures")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object for each experiment")
	f.StringVar(&o.only, "only", "", "only experiments whose name contains `TEXT`")
	f.Uint64Var(&o.seed, "seed", 1, "of the files' content")
	f.StringVar(&o.markdown, "markdown", "", "write all tables to `FILE`; if it is there, between its lines "+benchBegin+" and "+benchEnd)
	f.StringVar(&o.summary, "summary", "", "write one table of all experiments to `FILE`, in the same way")
	return c
}

// bench is one run of the suite.
type bench struct {
	benchOptions
	out         io.Writer // tables
	screen      io.Writer // progress
	experiments []lab.Experiment

	begin    time.Time
	expected time.Duration // of all
	done     time.Duration // what of it was expected to take until now
	reports  []benchReport
}

// benchReport is an experiment with its outcome.
type benchReport struct {
	Name    string        `json:"experiment"`
	Results []lab.Result  `json:"results"`
	Summary []lab.Summary `json:"summary"`
	plan    lab.Plan
}

func (b *bench) run(ctx context.Context) error {
	for _, e := range b.experiments {
		if err := e.Plan.Check(); err != nil {
			return err
		}
		b.expected += e.Expected
	}
	for _, file := range []string{b.markdown, b.summary} {
		if _, err := between(file, ""); err != nil {
			return err // now, not after the measurements
		}
	}
	b.begin = time.Now()
	var failed error
	for i, e := range b.experiments {
		report, err := b.experiment(ctx, i, e)
		if err != nil {
			return err
		}
		b.reports = append(b.reports, report)
		for _, s := range report.Summary {
			if s.N < e.Plan.Reps {
				failed = errors.Join(failed, fmt.Errorf("%s: %s: %d of %d transfers count (%d failed%s)", e.Name, s.Scheme, s.N, e.Plan.Reps, s.Failed, prefixed(": ", s.Error)))
			}
		}
		if b.asJSON {
			err = printJSON(b.out, report)
		} else {
			err = report.table().print(b.out)
		}
		if err != nil {
			return err
		}
	}
	text := b.stamp()
	if !b.asJSON {
		fmt.Fprintln(b.out, text)
	}
	for _, file := range []struct{ name, text string }{{b.markdown, b.tables()}, {b.summary, b.overview().markdown()}} {
		if err := writeBetween(file.name, strings.TrimSpace(file.text)+"\n\n"+text+"\n"); err != nil {
			return err
		}
	}
	return failed
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// experiment runs one and says meanwhile how far it is.
func (b *bench) experiment(ctx context.Context, i int, e lab.Experiment) (benchReport, error) {
	r := benchReport{Name: e.Name, plan: e.Plan}
	b.progress(i, e, "")
	counted := 0
	err := lab.Run(ctx, e.Plan, func(res lab.Result) {
		r.Results = append(r.Results, res)
		if !res.Disturbed {
			counted++
		}
		part := time.Duration(counted) * e.Expected / time.Duration(e.Plan.Reps*len(e.Plan.Schemes))
		b.done += part
		b.progress(i, e, fmt.Sprintf(", %s: %.2f s", res.Scheme, res.Seconds))
		b.done -= part
	})
	b.done += e.Expected
	if isTerminal(b.screen) {
		fmt.Fprint(b.screen, "\r\x1b[K")
	}
	r.Summary = lab.Summarize(e.Plan.Schemes, r.Results, e.Plan.KeepDisturbed)
	return r, err
}

// progress says where the bench is and how long the rest will take, judging by
// how long all before took.
func (b *bench) progress(i int, e lab.Experiment, last string) {
	left := b.expected - b.done
	if took := time.Since(b.begin); b.done > 0 && took > b.done {
		left = time.Duration(float64(left) * float64(took) / float64(b.done))
	}
	text := fmt.Sprintf("%d/%d, about %v left: %s%s", i+1, len(b.experiments), left.Round(time.Second), e.Name, last)
	if isTerminal(b.screen) {
		line := []rune(text)
		fmt.Fprint(b.screen, "\r\x1b[K", string(line[:min(len(line), 79)])) // a longer one would wrap
	} else {
		fmt.Fprintln(b.screen, text)
	}
}

// stamp says what was measured where, and when.
func (b *bench) stamp() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	form := "full"
	if b.quick {
		form = "quick"
	}
	return fmt.Sprintf("mpbond %s, %s form, seed %d, %s, Linux %s, %d processors, took %v.", version, form, b.seed,
		time.Now().UTC().Format(time.DateOnly), unix.ByteSliceToString(u.Release[:]), runtime.NumCPU(), time.Since(b.begin).Round(time.Second))
}

// tables are those of all experiments, in Markdown.
func (b *bench) tables() string {
	var s strings.Builder
	for _, r := range b.reports {
		s.WriteString(r.table().markdown() + "\n")
	}
	return s.String()
}

// table is what is printed for people, and written to documents. Columns
// without any cell are left out.
type table struct {
	title string
	head  []string
	rows  [][]string
}

func (t table) columns() (keep []int) {
	for i := range t.head {
		if slices.ContainsFunc(t.rows, func(r []string) bool { return r[i] != "" }) {
			keep = append(keep, i)
		}
	}
	return keep
}

func (t table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	if t.title != "" {
		fmt.Fprintln(w, t.title)
	}
	for _, row := range append([][]string{t.head}, t.rows...) {
		for _, i := range t.columns() {
			fmt.Fprintf(tw, "%s\t", cmp.Or(row[i], "-"))
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

func (t table) markdown() string {
	var s strings.Builder
	if t.title != "" {
		fmt.Fprintf(&s, "**%s**\n\n", t.title)
	}
	row := func(cell func(i int) string) {
		for _, i := range t.columns() {
			fmt.Fprintf(&s, "| %s ", cell(i))
		}
		s.WriteString("|\n")
	}
	row(func(i int) string { return t.head[i] })
	row(func(int) string { return "---" })
	for _, r := range t.rows {
		row(func(i int) string { return cmp.Or(r[i], "–") })
	}
	return s.String()
}

// schemeTitles are what the baselines are called for people, in order.
var schemeTitles = []struct{ scheme, title string }{{"single", "one link"}, {"kibbutz", "kernel MPTCP"}, {"relay", "Go relay"}, {"relay:copy", "Go relay, copying"}}

func schemeTitle(scheme string) string {
	for _, t := range schemeTitles {
		if t.scheme == scheme {
			return t.title
		}
	}
	return scheme
}

// table has a row for each scheme.
func (r benchReport) table() table {
	t := table{title: r.Name, head: []string{"scheme", "transfers", "median", "min–max", "rate", "of bound",
		"× one link", "× kernel MPTCP", "× Go relay", "× Go relay, copying", "longest gap", "ends apart", "sent twice", "shares", "peak memory", "remarks"}}
	for _, s := range r.Summary {
		row := []string{schemeTitle(s.Scheme), fmt.Sprint(s.N)}
		if s.N == 0 {
			row = append(row, make([]string, len(t.head)-3)...)
			t.rows = append(t.rows, append(row, r.remarks(s)))
			continue
		}
		row = append(row, fmt.Sprintf("%.3f s", s.Seconds), fmt.Sprintf("%.3f–%.3f s", s.Min, s.Max), s.Rate.String(), r.ofBound(s))
		for _, base := range schemeTitles {
			row = append(row, r.ratio(s, base.scheme))
		}
		row = append(row, inSeconds(s.Gap), inSeconds(s.EndSpread), sharePercent(s.Twice), byDevice(s.Shares, sharePercent),
			byDevice(s.PeakRSS, unit.Bytes.String), r.remarks(s))
		t.rows = append(t.rows, row)
	}
	return t
}

// ofBound is the part of the fluid bound's rate; empty where links have none.
func (r benchReport) ofBound(s lab.Summary) string {
	if s.Bound <= 0 || r.plan.Unchecked {
		return ""
	}
	return fmt.Sprintf("%.0f %% of %.2f s", 100*s.Bound/s.Seconds, s.Bound)
}

// ratio is how many times the baseline's rate s has.
func (r benchReport) ratio(s lab.Summary, baseline string) string {
	b, ok := r.find(func(scheme string) bool { return scheme == baseline })
	if !ok || s.Scheme == baseline {
		return ""
	}
	return fmt.Sprintf("%.2f", b.Seconds/s.Seconds)
}

// find returns the first scheme that counts and fits.
func (r benchReport) find(fits func(scheme string) bool) (lab.Summary, bool) {
	i := slices.IndexFunc(r.Summary, func(s lab.Summary) bool { return s.N > 0 && fits(s.Scheme) })
	if i < 0 {
		return lab.Summary{}, false
	}
	return r.Summary[i], true
}

func (r benchReport) remarks(s lab.Summary) string {
	var all []string
	if s.Unchecked {
		all = append(all, "size checked")
	} else if s.N > 0 {
		all = append(all, "SHA-256 right")
	}
	if s.Discarded > 0 {
		all = append(all, fmt.Sprintf("%d disturbed, discarded", s.Discarded))
	}
	if s.Failed > 0 {
		all = append(all, fmt.Sprintf("%d failed: %s", s.Failed, s.Error))
	}
	return strings.Join(all, "; ")
}

func inSeconds(v float64) string {
	if v < 0.005 {
		return ""
	}
	return fmt.Sprintf("%.2f s", v)
}

func sharePercent(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}

// byDevice lists what each device has, if anything.
func byDevice[T any](m map[string]T, text func(T) string) string {
	var all []string
	for _, d := range slices.Sorted(maps.Keys(m)) {
		if s := text(m[d]); s != "" {
			all = append(all, d+" "+s)
		}
	}
	return strings.Join(all, ", ")
}
