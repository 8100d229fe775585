// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/internal/cli"
	"mpbond/pbe/cell"
	"mpbond/pbe/listen"
)

type capacityOptions struct {
	rnti   string
	window time.Duration
	asJSON bool
}

// capacityEvery is the number of subframes per line of `capacity`.
const capacityEvery = 100

func capacityCommand() *cobra.Command {
	var o capacityOptions
	cmd := &cobra.Command{
		Use: "capacity SOURCE", Short: "print the capacity of a device in its cells, every 100 ms",
		Args: cobra.ExactArgs(1),
		Long: `Print the capacity of a device in its mobile cells, every 100 ms, from a recording of
control messages: a file; or a FIFO, unix:PATH, tcp:HOST:PORT or standard input ("-"),
until it ends or Ctrl-C.

C_p is the physical capacity with all idle resource blocks, C_f the fair share, C_t the
part of C_p that remains for the transport, and N the number of users who share the cell,
including the device. The last line counts missed subframes.`,
		Example: `  cellwatch capacity walk.cells --rnti 0x4601
  cellwatch capacity unix:cells.sock --json | jq .transport_bps`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := openMessages(cmd.Context(), args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer in.Close()
			return printCapacities(cmd.Context(), cmd.OutOrStdout(), in, o)
		},
	}
	cmd.Flags().StringVar(&o.rnti, "rnti", "",
		"set the `RNTI` of the device in its cells, like 17921 or 0x4601; default: from the recording")
	cmd.Flags().DurationVar(&o.window, "window", 40*time.Millisecond, "average over `DURATION`, the least round trip")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON, one object per line for each 100 ms")
	return cmd
}

// openMessages opens a source, or stdin for "-".
func openMessages(ctx context.Context, text string, stdin io.Reader) (io.ReadCloser, error) {
	if text == "-" {
		return io.NopCloser(stdin), nil
	}
	src, err := listen.ParseSource(text)
	if err != nil {
		return nil, err
	}
	in, _, err := src.Open(ctx)
	return in, err
}

// capacityLine is a line of `capacity --json`.
type capacityLine struct {
	Seconds   float64        `json:"seconds"` // since the first subframe
	Subframe  int64          `json:"subframe"`
	RNTI      uint16         `json:"rnti"`
	Physical  unit.Rate      `json:"physical_bps"`  // C_p
	Fair      unit.Rate      `json:"fair_bps"`      // C_f
	Transport unit.Rate      `json:"transport_bps"` // C_t
	FairShare unit.Rate      `json:"fair_transport_bps"`
	Cells     []capacityCell `json:"cells"` // active ones
}

type capacityCell struct {
	Number int     `json:"number"`
	PRB    float64 `json:"prb"`
	Users  int     `json:"users"` // N
	Own    float64 `json:"own_prb"`
	Idle   float64 `json:"idle_prb"`
	Rate   float64 `json:"bits_per_prb"`
}

// printCapacities reads a recording to its end and prints a line for every 100 subframes.
func printCapacities(ctx context.Context, w io.Writer, in io.Reader, o capacityOptions) error {
	self, err := parseDeviceRNTI(o.rnti)
	if err != nil {
		return err
	}
	r, err := cell.NewReader(in)
	if err != nil {
		return err
	}
	var ids []cell.ID
	m := cell.NewMonitor()
	m.SetWindow(o.window)
	for c, prb := range r.PRB {
		if prb > 0 {
			ids = append(ids, cell.ID(c))
			m.AddCell(cell.ID(c), self, cell.DefaultErrorRate)
		}
	}
	f := cell.NewFusion(ids...)
	first, next := int64(-1), int64(0)
	var failed error
	unnamed := fault.New(fault.Usage, errors.New("the recording has no RNTI of the device"), "set --rnti")
	each := func(row *cell.Row) {
		m.Add(row)
		if first < 0 || row.Number < next-2*capacityEvery { // the count started or restarted
			first, next = row.Number, row.Number+capacityEvery-1
		}
		if row.Number >= next && failed == nil {
			next = row.Number + capacityEvery
			failed = printCapacity(w, newCapacityLine(m.Estimate(), self, row.Number-first+1), o.asJSON)
		}
	}
	for failed == nil {
		s, err := r.Read()
		if err != nil {
			f.Flush(each)
			if failed = err; err == io.EOF || ctx.Err() != nil { // Ctrl-C is how one ends a source
				failed = nil
			}
			break
		}
		if o.rnti == "" && r.SelfKnown && r.Self != self {
			self = r.Self
			m.SetSelf(self)
		}
		if o.rnti == "" && !r.SelfKnown && f.Counts().Rows >= capacityEvery {
			return unnamed
		}
		f.Add(s, each)
	}
	if failed == nil && o.rnti == "" && !r.SelfKnown {
		return unnamed
	}
	if failed == nil && !o.asJSON {
		n := f.Counts()
		_, failed = fmt.Fprintf(w, "%d subframes; missed: %d of a cell, late: %d, duplicate: %d, invalid: %d\n",
			n.Rows, n.Missing, n.Late, n.Duplicate, n.Invalid)
	}
	return failed
}

func newCapacityLine(e cell.Estimate, self cell.RNTI, subframes int64) capacityLine {
	l := capacityLine{Seconds: float64(subframes) / 1000, Subframe: e.Number, RNTI: uint16(self),
		Physical: e.Physical, Fair: e.Fair, Transport: e.Transport, FairShare: e.FairTransport,
		Cells: []capacityCell{}}
	for c, active := range e.Active {
		if f := e.Usage[c]; active {
			l.Cells = append(l.Cells, capacityCell{c, f.PRB, f.Users, f.OwnPRB, f.IdlePRB, f.Rate})
		}
	}
	return l
}

func printCapacity(w io.Writer, l capacityLine, asJSON bool) error {
	if asJSON {
		return cli.PrintJSON(w, l)
	}
	_, err := fmt.Fprintf(w, "%7.1f s  C_p %-12v C_f %-12v C_t %-12v %s\n", l.Seconds, l.Physical, l.Fair,
		l.Transport, l.describeActiveCells())
	return err
}

// describeActiveCells describes the active cells.
func (l capacityLine) describeActiveCells() string {
	var users []string
	for _, c := range l.Cells {
		users = append(users, fmt.Sprintf("cell %d: N %d, own %.1f, idle %.1f of %.0f PRB", c.Number, c.Users, c.Own,
			c.Idle, c.PRB))
	}
	if len(users) == 0 {
		return "no active cell"
	}
	return strings.Join(users, "; ")
}
