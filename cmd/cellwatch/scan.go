// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/internal/cli"
	"mpbond/pbe/air"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

type scanOptions struct {
	air    airOptions
	asJSON bool
	length time.Duration
}

func scanCommand() *cobra.Command {
	var o scanOptions
	cmd := &cobra.Command{
		Use: "scan SOURCE", Short: "identify the cell in samples", Args: cobra.ExactArgs(1),
		Long: `Identify the LTE cell (FDD) in IQ samples. Print its identity, width, antenna ports and
frame numbers, the carrier offset, the signal strength, and the number of users in the
first seconds. If there are several cells at one frequency, the strongest is decoded. In
a file, cells of the same site that are hardly weaker are listed too.

The format (cf32, sc16, cu8) follows from the name's ending, or from --format. The sample
rate of a file is detected.`,
		Example: `  cellwatch scan walk.cf32
  cellwatch scan tcp:192.0.2.7:7001 --format sc16 --rate 15.36M --json`,
		RunE: func(cmd *cobra.Command, args []string) error { return runCellScan(cmd, args, o) },
	}
	o.air.addAirInputFlags(cmd)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.Flags().DurationVar(&o.length, "for", 2*time.Second, "decode `DURATION` of samples; 0: until they end")
	return cmd
}

// scanReport is the output of `scan --json`.
type scanReport struct {
	Source       string         `json:"source"`
	Format       string         `json:"format"`
	Rate         int            `json:"rate"`
	RateDetected bool           `json:"rate_detected"`
	Identity     int            `json:"identity"`
	PRB          int            `json:"prb"`
	MHz          float64        `json:"mhz"`
	Ports        int            `json:"ports"`
	PHICH        string         `json:"phich"`    // normal, extended
	Groups       string         `json:"phich_ng"` // 1/6, 1/2, 1, 2
	Offset       float64        `json:"offset_hz"`
	SNR          float64        `json:"snr_db"`
	Level        float64        `json:"level_db"`
	Clipped      float64        `json:"clipped"`
	First        string         `json:"first"` // SFN.index
	Last         string         `json:"last"`
	Count        int64          `json:"subframes"`
	Messages     int64          `json:"messages"`
	Formats      map[string]int `json:"formats"`
	Users        int            `json:"users"`
	Samples      int64          `json:"samples"`
	Lost         int64          `json:"lost_samples"`
	Resyncs      int            `json:"resyncs"`
	Others       []otherCell    `json:"others"`
}

// otherCell is another cell at the same frequency.
type otherCell struct {
	Identity int `json:"identity"`
	PRB      int `json:"prb"`
	Ports    int `json:"ports"`
}

// scanCollector collects the subframes of a scan.
type scanCollector struct {
	first, last string
	users       map[cell.RNTI]bool
	formats     map[string]int
	others      []lte.Cell // cells decoded before or after
}

// Add counts the messages of a subframe by format and user, and notes its cell.
func (s *scanCollector) Add(sub *air.Subframe) error {
	at := fmt.Sprintf("%d.%d", sub.SFN, sub.Index)
	if s.last = at; s.first == "" {
		s.first = at
	}
	if c := sub.Subframe.Cell; !slices.Contains(s.others, c) {
		s.others = append(s.others, c)
	}
	for i := range sub.DCIs {
		s.formats[sub.DCIs[i].Format.String()]++
		if r := sub.DCIs[i].RNTI; r.IsUser() {
			s.users[r] = true
		}
	}
	return nil
}

func (s *scanCollector) Close() error { return nil }

// runCellScan decodes a source until it ends, or for the time of the options, and prints what was
// found.
func runCellScan(cmd *cobra.Command, args []string, o scanOptions) error {
	o.air.allCells = true
	if o.length < 0 {
		return negativeError(o.length)
	}
	l, err := o.air.openListener(cmd, args)
	if err != nil {
		return err
	}
	s := &scanCollector{users: map[cell.RNTI]bool{}, formats: map[string]int{}}
	counts, err := watchUntil(cmd.Context(), l, []watcher{s}, o.length)
	if err != nil {
		return err
	}
	st := l.State()[0]
	if st.Subframes, st.Messages = counts[0].subframes, counts[0].messages; st.Subframes == 0 {
		return fault.New(fault.Timeout, fmt.Errorf("%s: no cell found in %d samples", st.Source, st.Samples),
			"check that the source receives a cell; --for waits longer")
	}
	r := newScanReport(st, s)
	if o.asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), r)
	}
	return printScanReport(cmd.OutOrStdout(), r, st)
}

// cellMHz are the widths of cells by resource blocks (36.101 table 5.6-1).
var cellMHz = map[int]float64{6: 1.4, 15: 3, 25: 5, 50: 10, 75: 15, 100: 20}

func newScanReport(st air.State, s *scanCollector) scanReport {
	c := st.Cell
	r := scanReport{Source: st.Source, Format: st.Format.String(), Rate: st.Rate, RateDetected: st.RateDetected,
		Identity: c.ID, PRB: c.PRB, MHz: cellMHz[c.PRB], Ports: c.Ports, PHICH: "normal",
		Groups: map[int]string{1: "1/6", 3: "1/2", 6: "1", 12: "2"}[c.PHICHSixths], Offset: roundTenths(st.Offset),
		SNR: roundTenths(st.SNR), Level: roundTenths(st.Level), Clipped: st.Clipped,
		First: s.first, Last: s.last, Count: st.Subframes, Messages: st.Messages, Formats: s.formats,
		Users:   len(s.users),
		Samples: st.Samples, Lost: st.Lost, Resyncs: st.Resyncs, Others: []otherCell{}}
	if c.ExtendedPHICH {
		r.PHICH = "extended"
	}
	for _, x := range append(s.others, st.AllCells...) {
		o := otherCell{x.ID, x.PRB, x.Ports}
		if x != c && !slices.Contains(r.Others, o) {
			r.Others = append(r.Others, o)
		}
	}
	return r
}

func printScanReport(w io.Writer, r scanReport, st air.State) error {
	ports := "1 antenna port"
	if r.Ports > 1 {
		ports = fmt.Sprintf("%d antenna ports", r.Ports)
	}
	found := ""
	if r.RateDetected {
		found = " (detected)"
	}
	var formats []string
	for _, f := range slices.Sorted(maps.Keys(r.Formats)) {
		formats = append(formats, fmt.Sprintf("%s: %d", f, r.Formats[f]))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "cell %d, %g MHz (%d PRB), %s, PHICH %s, N_g %s\n", r.Identity, r.MHz, r.PRB, ports, r.PHICH,
		r.Groups)
	fmt.Fprintf(&b, "signal: SNR %.1f dB, carrier offset %.0f Hz, level %.1f dB\n", r.SNR, r.Offset, r.Level)
	fmt.Fprintf(&b, "received: frames %s to %s, %d subframes, %d messages (%s), %d users\n", r.First, r.Last, r.Count,
		r.Messages, strings.Join(formats, ", "), r.Users)
	fmt.Fprintf(&b, "samples: %s, %gM per second%s, %d\n", r.Format, float64(r.Rate)/1e6, found, r.Samples)
	for _, o := range r.Others {
		fmt.Fprintf(&b, "also found: cell %d, %g MHz; the strongest one is decoded\n", o.Identity, cellMHz[o.PRB])
	}
	b.WriteString(warningLines([]air.State{st}))
	_, err := io.WriteString(w, b.String())
	return err
}
