// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image/color"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/internal/chart"
	"mpbond/internal/cli"
	"mpbond/pbe/air"
	"mpbond/pbe/cell"
	"mpbond/pbe/census"
)

// maxGridColumns is the largest number of subframes of a picture: a column is then one pixel wide.
const maxGridColumns = 1600

type gridOptions struct {
	air        airOptions
	out        string
	from, span time.Duration
}

func gridCommand() *cobra.Command {
	var o gridOptions
	cmd := &cobra.Command{
		Use: "grid SOURCE…", Short: "draw the users of the resource blocks, as PNG", Args: cobra.MinimumNArgs(1),
		Long: fmt.Sprintf(`Draw the user of each resource block in each subframe, downlink. Time goes to the right,
and the lowest block is the first. Each user has a colour; blocks for all users are grey,
free blocks are white, and missed subframes are dark. Cells are stacked vertically.

Sources are those of cellwatch stats: samples and recordings of messages. A recording
has the number of a user's blocks but not their positions, so these are stacked. A
picture has at most %d ms; draw several with --from for more.`, maxGridColumns),
		Example: `  cellwatch grid walk.cf32 --out walk.png
  cellwatch grid walk.cells --from 2.5s --for 100ms --out later.png`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.span < time.Millisecond || o.span > maxGridColumns*time.Millisecond || o.from < 0 {
				return fault.New(fault.Usage, fmt.Errorf("invalid --from %v or --for %v: a picture has 1 to %d ms",
					o.from, o.span, maxGridColumns), "draw several pictures, each with its own --from")
			}
			if err := cli.RefuseSameFile("--out", o.out, args, cmd.InOrStdin()); err != nil {
				return err
			}
			in, err := o.air.parseInputs(args)
			if err != nil {
				return err
			}
			r, err := buildGridRaster(cmd.Context(), in, cmd.InOrStdin(), o)
			if err != nil {
				return err
			}
			data, err := r.PNG()
			if err != nil {
				return err
			}
			to, err := cli.OpenTarget(o.out, false, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			defer to.Abandon()
			if _, err := to.Write(data); err != nil {
				return err
			}
			return to.Finish()
		},
	}
	o.air.addAirInputFlags(cmd)
	cmd.Flags().StringVar(&o.out, "out", "", "write the picture to `FILE`; \"-\" is standard output")
	cmd.Flags().DurationVar(&o.from, "from", 0, "start the picture `DURATION` after the first subframe")
	cmd.Flags().DurationVar(&o.span, "for", 250*time.Millisecond, "draw `DURATION` of the signal")
	_ = cmd.MarkFlagRequired("out") // the flag exists
	return cmd
}

// gridCells has the grids of the cells of one source.
type gridCells struct {
	started bool
	first   int64 // numbers of the first subframe of all and of the last one drawn
	last    int64
	grids   [cell.MaxCells]*census.Grid
}

// buildGridRaster reads the requested part of the sources and lays out the picture.
func buildGridRaster(ctx context.Context, sources []air.Input, stdin io.Reader, o gridOptions) (chart.Raster, error) {
	var r chart.Raster
	from, n := o.from.Milliseconds(), o.span.Milliseconds()
	for _, source := range sources {
		var g gridCells
		ctx, done := context.WithCancel(ctx)
		err := readCellSubframes(ctx, source, stdin, func(s census.Subframe) {
			if !g.started {
				g.started, g.first = true, s.Number
			}
			switch at := s.Number - g.first - from; {
			case at >= n+cell.MaxLate:
				done()
			case at >= 0 && at < n:
				if g.grids[s.Cell] == nil {
					g.grids[s.Cell] = census.NewGrid(int(n))
				}
				g.grids[s.Cell].Add(s)
				g.last = max(g.last, s.Number)
			}
		})
		done()
		if err != nil {
			return r, prefixSource(source.Source, err)
		}
		from := g.first + from
		n := min(n, g.last-from+1)
		for id, grid := range g.grids {
			if grid != nil {
				r.Panels = append(r.Panels, layoutGridPanel(fmt.Sprintf("%s, cell %d (%s)", source.Source, id,
					formatWidth(grid.PRB)), grid, [3]int64{g.first, from - g.first, n}))
			}
		}
	}
	if len(r.Panels) == 0 {
		return r, fault.New(fault.NotFound, errors.New("nothing to draw: there are no subframes in that range"),
			"check that --from is before the end")
	}
	return r, nil
}

// Colours of positions without a user.
var (
	gridIdle   = color.RGBA{255, 255, 255, 255}
	gridMissed = color.RGBA{60, 60, 60, 255}
)

func gridUserColor(r cell.RNTI) color.Color {
	red, green, blue := census.UserColour(r)
	return color.RGBA{red, green, blue, 255}
}

// layoutGridPanel lays out a grid. The stream begins at number span[0]; it draws span[2] subframes
// from span[1] on.
func layoutGridPanel(title string, g *census.Grid, span [3]int64) chart.Panel {
	first, n := span[0]+span[1], int(span[2])
	columns := make([]*census.Column, n)
	granted, received, placed := map[cell.RNTI]int{}, 0, true
	for i := range g.Len() {
		c := g.At(i)
		if at := c.Number - first; at >= 0 && at < int64(n) && c.Received {
			columns[at] = c
			received++
			placed = placed && c.HasPositions
			for _, rnti := range c.Users[:g.PRB] {
				if rnti != 0 {
					granted[rnti]++
				}
			}
		}
	}
	if !placed {
		title += "; blocks are stacked"
	}
	p := chart.Panel{Title: title, Rows: g.PRB, Columns: n, ColorAt: func(row, column int) color.Color {
		switch c := columns[column]; {
		case c == nil:
			return gridMissed
		case c.Users[row] == 0:
			return gridIdle
		default:
			return gridUserColor(c.Users[row])
		}
	}}
	for prb := 0; prb < g.PRB; prb += cli.IfElse(g.PRB > 25, 10, 5) {
		p.Y = append(p.Y, chart.Mark{Position: prb, Label: fmt.Sprint(prb)})
	}
	step := subframesPerMark(n)
	for i := range n {
		if number := first + int64(i); number%int64(step) == 0 {
			p.X = append(p.X, chart.Mark{Position: i, Label: fmt.Sprintf("SFN %d", number/10%1024),
				Below: fmt.Sprintf("%.2f s", float64(number-span[0])/1000)})
		}
	}
	p.Keys = buildGridLegend(granted, received*g.PRB, cli.IfElse(g.PRB > 50, 8, 4))
	return p
}

// subframesPerMark returns the number of subframes between two marks: whole frames, five to twelve
// marks.
func subframesPerMark(n int) int {
	for _, step := range []int{10, 20, 50, 100, 200} {
		if n/step <= 12 {
			return step
		}
	}
	return 200
}

// buildGridLegend returns the legend: the users with the most blocks, up to named of them one by
// one, and the sum of blocks for all users.
func buildGridLegend(granted map[cell.RNTI]int, all, named int) (keys []chart.Key) {
	var users []cell.RNTI
	forAll := 0
	for r, n := range granted {
		if r.IsUser() {
			users = append(users, r)
		} else {
			forAll += n
		}
	}
	slices.SortFunc(users, func(a, b cell.RNTI) int { return cmp.Or(granted[b]-granted[a], int(a)-int(b)) })
	part := func(n int) string { return formatPartPercent(float64(n) / float64(max(all, 1))) }
	if forAll > 0 {
		keys = append(keys, chart.Key{Color: gridUserColor(0xFFFF), Name: "for all  " + part(forAll)})
	}
	for i, r := range users {
		if i == named && len(users) > named+1 {
			others := 0
			for _, r := range users[i:] {
				others += granted[r]
			}
			return append(keys, chart.Key{Color: color.Transparent,
				Name: fmt.Sprintf("%d more  %s", len(users)-i, part(others))})
		}
		keys = append(keys, chart.Key{Color: gridUserColor(r),
			Name: fmt.Sprintf("0x%04x  %s", uint16(r), part(granted[r]))})
	}
	return keys
}
