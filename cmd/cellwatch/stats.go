// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/pbe/air"
	"mpbond/pbe/cell"
	"mpbond/pbe/census"
	"mpbond/pbe/lte"
)

type statsOptions struct {
	air           airOptions
	start         string
	asJSON, asCSV bool
	plots         string
}

func statsCommand() *cobra.Command {
	var o statsOptions
	cmd := &cobra.Command{
		Use: "stats SOURCE…", Short: "count the users of cells and their grants", Args: cobra.MinimumNArgs(1),
		Long: `Count the users of mobile cells and their grants. A source is a recording of control
messages: a file; or a FIFO, unix:PATH, tcp:HOST:PORT or standard input ("-"), until it
ends or Ctrl-C. It can also be IQ samples, recognised by the ending of the name (.cf32,
.sc16, .cu8) or by --format. Each source is counted separately.

Print users by hour; users in 40 ms, all and those who pass the user filter
(docs/explanation/pbe.md); rates, activities, retransmissions, formats and levels. Users are
identified by RNTI, which changes with each connection to the network. A recording has
no time of day: hours count from its beginning, or from --start.`,
		Example: `  cellwatch stats walk.cells
  cellwatch stats walk.cells --start "2026-11-22 07:40" --plots figures
  cellwatch stats walk.cells --json | jq '.users_40ms.mean'
  cellwatch watch tcp:192.0.2.7:7001 --format sc16 --rate 15.36M --record - | cellwatch stats -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			start, err := parseStart(o.start)
			if err != nil {
				return err
			}
			in, err := o.air.parseInputs(args)
			if err != nil {
				return err
			}
			all, err := countCells(cmd.Context(), in, cmd.InOrStdin(), start)
			if o.plots != "" {
				err = errors.Join(err, drawStatsPictures(o.plots, all))
			}
			return errors.Join(err, printStats(cmd.OutOrStdout(), all, o))
		},
	}
	o.air.addAirInputFlags(cmd)
	cmd.Flags().StringVar(&o.start, "start", "",
		"set the `TIME` of the first subframe, like \"2026-11-22 07:40\" (local) or 2026-11-22T07:40:00Z")
	cmd.Flags().BoolVar(&o.asJSON, "json", false,
		"print JSON, one object per line for each cell, with complete distributions")
	cmd.Flags().BoolVar(&o.asCSV, "csv", false, "print a CSV table of all hours")
	cmd.Flags().StringVar(&o.plots, "plots", "",
		"draw the statistics as SVG and PNG in the directory `DIR`, which is created")
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
	return cmd
}

// parseStart parses a time; an empty text is the zero time.
func parseStart(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02 15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fault.New(fault.Usage, fmt.Errorf("invalid --start %q", text), `write it like "2026-11-22 07:40"`)
	}
	return t, nil
}

// cellStats is the summary of one cell of a source.
type cellStats struct {
	Source string `json:"source"`
	// Start is the beginning of the hour of the first subframe, if known.
	Start *time.Time `json:"start,omitempty"`
	census.Summary
}

// formatHourLabel returns the label of hour h.
func (s *cellStats) formatHourLabel(h census.Hour) string {
	if s.Start == nil {
		return fmt.Sprintf("%d h", h.Number)
	}
	return s.Start.Add(time.Duration(h.Number) * time.Hour).Format("2006-01-02 15:04")
}

// countCells counts all sources concurrently until they end or ctx does. Together with an error it
// returns the statistics so far.
func countCells(ctx context.Context, sources []air.Input, stdin io.Reader, start time.Time) (all []cellStats,
	failed error) {
	type counted struct {
		figures []census.Summary
		err     error
	}
	var begin *time.Time
	after := time.Duration(0)
	if !start.IsZero() {
		hour := start.Add(-time.Duration(start.Minute())*time.Minute - time.Duration(start.Second())*time.Second -
			time.Duration(start.Nanosecond()))
		begin, after = &hour, start.Sub(hour)
	}
	results := make([]chan counted, len(sources))
	for i, source := range sources {
		results[i] = make(chan counted, 1)
		go func() {
			c := census.New(after.Milliseconds())
			err := readCellSubframes(ctx, source, stdin, c.Add)
			results[i] <- counted{c.Close(), err}
		}()
	}
	for i, source := range sources {
		r := <-results[i]
		for _, f := range r.figures {
			all = append(all, cellStats{source.Source, begin, f})
		}
		if r.err != nil {
			failed = errors.Join(failed, prefixSource(source.Source, r.err))
		}
	}
	return all, failed
}

// prefixSource prefixes an error with its source, unless it already has that prefix.
func prefixSource(source string, err error) error {
	if strings.HasPrefix(err.Error(), source+": ") {
		return err
	}
	return fmt.Errorf("%s: %w", source, err)
}

// readCellSubframes reads a source of control messages or of samples until it ends or ctx does. It
// calls each for the subframes of all cells, those of one cell in order.
func readCellSubframes(ctx context.Context, source air.Input, stdin io.Reader, each func(census.Subframe)) error {
	if source.Format != air.AnyFormat || air.FormatOf(source.Source) != air.AnyFormat || air.IsSigMF(source.Source) {
		l, err := air.Open(ctx, air.Config{Inputs: []air.Input{source}, Stdin: stdin, OnWarning: logWarning})
		if err != nil {
			return err
		}
		return l.Run(ctx, func(s *air.Subframe) {
			each(census.Subframe{Cell: s.Cell, Number: s.Number, PRB: s.PRB, DCIs: s.DCIs})
		})
	}
	in, err := openMessages(ctx, source.Source, stdin)
	if err != nil {
		return err
	}
	defer in.Close()
	err = readMessages(bufio.NewReaderSize(in, 1<<16), each)
	if ctx.Err() != nil || errors.Is(err, os.ErrClosed) { // Ctrl-C is the normal end of a source
		return nil
	}
	return err
}

// readMessages reads a recording to its end.
func readMessages(in io.Reader, each func(census.Subframe)) error {
	r, err := cell.NewReader(in)
	if err != nil {
		return err
	}
	var ids []cell.ID
	for c, prb := range r.PRB {
		if prb > 0 {
			ids = append(ids, cell.ID(c))
		}
	}
	var list []lte.DCI
	row := func(row *cell.Row) {
		for c, received := range row.Received {
			if received {
				s := census.FromRecording(row.Cells[c], list[:0])
				list = s.DCIs
				each(s)
			}
		}
	}
	f := cell.NewFusion(ids...)
	for {
		s, err := r.Read()
		if err != nil {
			f.Flush(row)
			if err == io.EOF {
				err = nil
			}
			return err
		}
		f.Add(s, row)
	}
}
