// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/internal/cli"
	"mpbond/pbe/air"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

type watchOptions struct {
	air           airOptions
	asJSON        bool
	record, serve string
	rnti          string
	length        time.Duration

	screen func() (tcell.Screen, error) // opens the terminal, if the live view is used
	view   *cellView                    // the live view
}

func watchCommand() *cobra.Command {
	var o watchOptions
	cmd := &cobra.Command{
		Use: "watch SOURCE…", Short: "decode the control channels of cells: show, record or serve them",
		Args: cobra.RangeArgs(1, cell.MaxCells),
		Long: `Decode the control channels of LTE cells (FDD) from IQ samples. Files are decoded at full
speed; a FIFO, unix:PATH, tcp:HOST:PORT and standard input ("-") in real time. Samples
from a socket (with --serve also from a pipe) that arrive faster than they are decoded
are dropped and counted; files and pipes block. Several sources must be carriers of one
site, recorded at the same time, the primary one first: they share subframe numbers.

On a terminal, show a live view of the resource blocks, a table of users, and the capacity
of the device --rnti; press ? for the keys. Files play at their sample rate there.
Otherwise print a line for each message.

--json prints each subframe with its messages. --record writes a recording for cellwatch
capacity and stats. --serve sends the messages live to clients such as
mpbond primary --cell wwan0=unix:PATH (files play at their sample rate then).
Only resource grants are decoded, never the content of a user.`,
		Example: `  cellwatch watch walk.cf32
  cellwatch watch primary.sc16 secondary.sc16 --record walk.cells
  cellwatch watch unix:iq.sock --format sc16 --rate 15.36M --serve unix:cells.sock --rnti 0x4601`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cli.IsTerminal(cmd.OutOrStdout()) && !o.asJSON && o.record == "" && o.serve == "" {
				o.screen = func() (tcell.Screen, error) {
					return cli.OpenScreen("pipe the output into another program, or use --json")
				}
			}
			return watchCells(cmd, args, o)
		},
	}
	o.air.addAirInputFlags(cmd)
	cmd.Flags().BoolVar(&o.air.paced, "paced", false, "read files at their sample rate, as from a radio")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON, one object per line for each subframe of each cell")
	cmd.Flags().StringVar(&o.record, "record", "", "write a recording of the messages to `FILE`")
	cmd.Flags().StringVar(&o.serve, "serve", "", "serve the live messages at `ADDRESS`: unix:PATH or tcp:HOST:PORT")
	cmd.Flags().StringVar(&o.rnti, "rnti", "", "set the `RNTI` of the device in its cells, like 17921 or 0x4601")
	cmd.Flags().DurationVar(&o.length, "for", 0, "decode `DURATION` of samples; 0: until they end or Ctrl-C")
	return cmd
}

// watcher receives subframes.
type watcher interface {
	Add(*air.Subframe) error
	Close() error
}

// watchCells runs `cellwatch watch`: it decodes the sources until their end and writes what o asks
// for.
func watchCells(cmd *cobra.Command, args []string, o watchOptions) (err error) {
	self, err := parseDeviceRNTI(o.rnti)
	if err == nil {
		err = o.checkOutputs(cmd, args)
	}
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	out := cmd.OutOrStdout()
	if o.screen != nil {
		o.view = newCellView(len(args), self)
		o.air.onWarning = o.view.setWarning
	}
	o.air.paced = o.air.paced || o.serve != "" || o.view != nil
	o.air.dropLate = o.serve != ""
	l, err := o.air.openListener(cmd, args)
	if err != nil {
		return err
	}
	all, served, err := o.openWatchers(l, out, self)
	if err == nil && o.view != nil {
		var screen tcell.Screen
		if screen, err = o.screen(); err == nil {
			all = []watcher{startCellScreen(ctx, screen, o.view, l.State, stop)}
		}
	}
	if err != nil {
		l.Close()
		return err
	}
	counts, err := watchUntil(ctx, l, all, o.length)
	for _, w := range all {
		err = errors.Join(err, w.Close())
	}
	words := out
	if o.asJSON || o.record == "-" {
		words = cmd.ErrOrStderr()
	}
	states := l.State()
	for i, t := range counts[:len(states)] {
		states[i].Subframes, states[i].Messages = t.subframes, t.messages
	}
	return errors.Join(err, printWatched(words, states, served))
}

// checkOutputs rejects outputs that would overwrite an input or each other.
func (o *watchOptions) checkOutputs(cmd *cobra.Command, args []string) error {
	if o.length < 0 {
		return negativeError(o.length)
	}
	if o.asJSON && o.record == "-" {
		return fault.New(fault.Usage, errors.New("--json and --record - both write to standard output"),
			"record to a file, or omit one of them")
	}
	return cli.RefuseSameFile("--record", o.record, args, cmd.InOrStdin(), cmd.OutOrStdout())
}

func negativeError(length time.Duration) error {
	return fault.New(fault.Usage, fmt.Errorf("--for %v is negative", length), "use 0 for no limit")
}

// watchCounts counts the subframes and messages passed on of a carrier: fewer than decoded, with
// --for.
type watchCounts struct{ subframes, messages int64 }

// watchUntil passes all subframes to the watchers until one of them fails or length is over.
func watchUntil(ctx context.Context, l *air.Listener, all []watcher,
	length time.Duration) (counts [cell.MaxCells]watchCounts, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if length > 0 && l.State()[0].IsLive {
		go stopWhenLate(ctx, l, length+time.Second, stop) // ends with ctx
	}
	var failed error
	first := int64(-1)
	err = l.Run(ctx, func(s *air.Subframe) {
		if first < 0 {
			first = s.Number
		}
		if failed != nil || length > 0 && s.Number-first >= length.Milliseconds() {
			stop()
			return
		}
		counts[s.Cell].subframes++
		counts[s.Cell].messages += int64(len(s.DCIs))
		for _, w := range all {
			if failed = w.Add(s); failed != nil {
				stop()
				return
			}
		}
	})
	return counts, errors.Join(failed, err)
}

// stopWhenLate stops live sources when enough samples arrived without a cell, or none arrive. A
// source that can wait may take longer than a radio.
func stopWhenLate(ctx context.Context, l *air.Listener, length time.Duration, stop func()) {
	tick := time.NewTimer(length)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s := l.State()[0]
		came := s.Samples + s.Lost
		if came == last || came >= int64(length.Seconds()*float64(s.Rate)) {
			stop()
			return
		}
		last = came
		tick.Reset(time.Second)
	}
}

// openWatchers opens the requested outputs.
func (o *watchOptions) openWatchers(l *air.Listener, out io.Writer, self cell.RNTI) (all []watcher,
	served *air.Server, err error) {
	n := len(l.State())
	if o.serve != "" {
		if served, err = air.Serve(o.serve); err != nil {
			return nil, nil, err
		}
		r := served.Recorder(n)
		r.Self = self
		all = append(all, &servedRecording{r, served})
	}
	if o.record != "" {
		file, err := cli.OpenTarget(o.record, false, out)
		if err != nil {
			for _, w := range all {
				w.Close()
			}
			return nil, nil, err
		}
		r := air.NewRecorder(file, n)
		r.Self = self
		all = append(all, &recordingFile{Recorder: r, to: file})
	}
	switch {
	case o.asJSON:
		b := bufio.NewWriter(out)
		all = append(all, &linePrinter{b: b, live: l.State()[0].IsLive,
			print: func(s *air.Subframe) error { return cli.PrintJSON(b, newWatchLine(s)) }})
	case len(all) > 0, o.view != nil:
	default:
		b := bufio.NewWriter(out)
		all = append(all, &linePrinter{b: b, live: l.State()[0].IsLive,
			print: func(s *air.Subframe) error { return printMessages(b, s) }})
	}
	return all, served, nil
}

// servedRecording is a recording for clients.
type servedRecording struct {
	*air.Recorder
	server io.Closer
}

func (e *servedRecording) Close() error { return errors.Join(e.Recorder.Close(), e.server.Close()) }

// recordingFile is a recording that becomes a file when it is complete.
type recordingFile struct {
	*air.Recorder
	to      *cli.Target
	started bool
	failed  bool
}

func (r *recordingFile) Add(s *air.Subframe) error {
	err := r.Recorder.Add(s)
	r.started, r.failed = true, r.failed || err != nil
	return err
}

// Close gives the file its name if it has content; otherwise an existing file of that name stays.
// If writing failed, as on a full disk, the beginning is kept under a temporary name.
func (r *recordingFile) Close() error {
	err := r.Recorder.Close()
	if err != nil && !fault.Is(err, fault.Integrity) {
		r.failed = true
	}
	switch {
	case r.to.File == nil:
	case r.failed && r.started:
		return errors.Join(err, r.to.Close(), fmt.Errorf("the recording so far is in %s", r.to.File.Name()))
	case !r.started:
		r.to.Abandon()
		return errors.Join(err, fault.New(fault.NotFound,
			fmt.Errorf("no subframe was received: %s is not written", r.to.Name), ""))
	}
	return errors.Join(err, r.to.Finish())
}

// linePrinter prints subframes; live ones without delay.
type linePrinter struct {
	b     *bufio.Writer
	live  bool
	print func(*air.Subframe) error
}

func (l *linePrinter) Add(s *air.Subframe) error {
	err := l.print(s)
	if err == nil && l.live {
		err = l.b.Flush()
	}
	return err
}

func (l *linePrinter) Close() error { return l.b.Flush() }

// watchLine is a line of `watch --json`. Names and meanings are stable: docs/howto/cells.md.
type watchLine struct {
	Subframe int64          `json:"subframe"`
	Cell     int            `json:"cell"`
	Identity int            `json:"identity"`
	SFN      int            `json:"sfn"`
	Index    int            `json:"index"`
	PRB      int            `json:"prb"`
	CFI      int            `json:"cfi"`
	CCEs     int            `json:"cces"`
	SNR      float64        `json:"snr_db"`
	Offset   float64        `json:"offset_hz"`
	Sample   int64          `json:"sample"`
	Messages []watchMessage `json:"messages"`
}

type watchMessage struct {
	RNTI        uint16       `json:"rnti"`
	Type        string       `json:"type"` // C, SI, P, RA
	Format      string       `json:"format"`
	Direction   string       `json:"direction"` // down, up
	PRB         int          `json:"prb"`
	PRBs        [][2]int     `json:"prbs"` // first and last of each range
	Distributed bool         `json:"distributed"`
	HARQ        *int         `json:"harq,omitempty"`
	Blocks      []watchBlock `json:"blocks"`
	CCE         int          `json:"cce"`
	Level       int          `json:"level"`
	Agreement   float64      `json:"agreement"`
}

type watchBlock struct {
	MCS int  `json:"mcs"`
	TBS *int `json:"tbs"` // bits; null: unknown
	NDI bool `json:"ndi"`
	RV  int  `json:"rv"`
}

func newWatchLine(s *air.Subframe) watchLine {
	l := watchLine{Subframe: s.Number, Cell: int(s.Cell), Identity: s.Subframe.Cell.ID, SFN: s.SFN, Index: s.Index,
		PRB: int(s.PRB), CFI: s.CFI, CCEs: s.CCEs,
		SNR: roundTenths(s.SNR), Offset: roundTenths(s.Offset), Sample: s.Start, Messages: []watchMessage{}}
	for i := range s.DCIs {
		d := &s.DCIs[i]
		m := watchMessage{RNTI: uint16(d.RNTI), Type: rntiTypeName(d.RNTI), Format: d.Format.String(), Direction: "down",
			PRB: d.PRB, PRBs: listPRBRanges(d.PRBs), Distributed: d.Distributed,
			Blocks: []watchBlock{}, CCE: d.CCE, Level: d.Level, Agreement: float64(int(1000*d.Agreement+0.5)) / 1000}
		if d.Format == cell.Format0 {
			m.Direction = "up"
		} else if d.RNTI.IsUser() {
			harq := int(d.HARQ)
			m.HARQ = &harq
		}
		for _, b := range d.Blocks[:d.N] {
			w := watchBlock{MCS: int(b.MCS), NDI: b.NDI, RV: int(b.RV)}
			if size := int(b.Size); size > 0 {
				w.TBS = &size
			}
			m.Blocks = append(m.Blocks, w)
		}
		l.Messages = append(l.Messages, m)
	}
	return l
}

// roundTenths rounds v to one decimal.
func roundTenths(v float64) float64 { return float64(int(10*v+100000.5)-100000) / 10 }

// listPRBRanges returns the first and last block of each contiguous range.
func listPRBRanges(m lte.PRBSet) [][2]int {
	all := [][2]int{}
	for prb := 0; prb < cell.MaxPRB; prb++ {
		if !m.Has(prb) {
			continue
		}
		first := prb
		for prb+1 < cell.MaxPRB && m.Has(prb+1) {
			prb++
		}
		all = append(all, [2]int{first, prb})
	}
	return all
}

// printMessages prints a line for each message.
func printMessages(w io.Writer, s *air.Subframe) error {
	for _, m := range newWatchLine(s).Messages {
		var ranges []string
		for _, r := range m.PRBs {
			ranges = append(ranges, fmt.Sprintf("%d-%d", r[0], r[1]))
		}
		text := fmt.Sprintf("%d PRB (%s)", m.PRB, strings.Join(ranges, ","))
		if m.HARQ != nil {
			text += fmt.Sprintf(", HARQ %d", *m.HARQ)
		}
		for _, b := range m.Blocks {
			text += fmt.Sprintf(", MCS %d", b.MCS)
			if b.TBS != nil {
				text += fmt.Sprintf(" %d bits", *b.TBS)
			}
			ndi := 0
			if b.NDI {
				ndi = 1
			}
			text += fmt.Sprintf(" NDI %d RV %d", ndi, b.RV)
		}
		if _, err := fmt.Fprintf(w, "%d  cell %d  %-2s 0x%04x  %-2s %-4s  %d CCE at %-2d  %s\n", s.Number, s.Cell,
			m.Type, m.RNTI, m.Format, m.Direction, m.Level, m.CCE, text); err != nil {
			return err
		}
	}
	return nil
}

// printWatched prints a summary of each carrier.
func printWatched(w io.Writer, all []air.State, served *air.Server) error {
	var b strings.Builder
	for i, s := range all {
		fmt.Fprintf(&b, "cell %d (%s): %d subframes, %d messages; %d samples, %d lost; reacquired %d times\n", i,
			s.Source, s.Subframes, s.Messages, s.Samples, s.Lost, s.Resyncs)
	}
	b.WriteString(warningLines(all))
	if served != nil && served.Dropped() > 0 {
		fmt.Fprintf(&b, "%d slow clients were disconnected\n", served.Dropped())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
