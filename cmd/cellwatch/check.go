// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/internal/cli"
	"mpbond/pbe/air"
	"mpbond/pbe/cell"
	"mpbond/pbe/census"
)

type checkOptions struct {
	air    airOptions
	asJSON bool
	length time.Duration
}

func checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use: "check SOURCE…", Short: "check whether decoded messages agree", Args: cobra.MinimumNArgs(1),
		Long: `Decode IQ samples and count what contradicts itself in the control messages: a capture
of a real cell has no list of what was sent to compare with. Two messages of one
direction do not name the same resource block. A repeated block follows its first
transmission. Falsely decoded messages have RNTIs that appear once.

The exit code is 5 if more than 1 % of the subframes with several messages have two that
name the same block.`,
		Example: `  cellwatch check walk.cf32
  cellwatch check tcp:192.0.2.7:7001 --format sc16 --rate 1.92M --for 10s --json`,
		RunE: func(cmd *cobra.Command, args []string) error { return runCheck(cmd, args, o) },
	}
	o.air.addAirInputFlags(cmd)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON, one object per line for each source")
	cmd.Flags().DurationVar(&o.length, "for", 0, "decode `DURATION` of samples; 0: until they end")
	return cmd
}

// checkReport is the output of `check --json`.
type checkReport struct {
	Source     string  `json:"source"`
	Identity   int     `json:"identity"`
	PRB        int     `json:"prb"`
	Subframes  int64   `json:"subframes"`
	Missing    int64   `json:"missing"`
	Messages   int64   `json:"messages"`
	Users      int     `json:"users"`
	Once       int     `json:"users_once"`    // with one message
	Shared     int64   `json:"shared"`        // subframes with several messages in one direction
	Conflicts  int64   `json:"conflicts"`     // of these, with two that name one block
	Blocks     int64   `json:"blocks"`        // downlink transport blocks
	Repeats    int64   `json:"repeats"`       // of these, retransmissions
	Orphans    int64   `json:"orphans"`       // retransmissions of blocks that were not seen
	Down       float64 `json:"downlink_used"` // part of the resource blocks
	Up         float64 `json:"uplink_used"`
	Agreement  float64 `json:"agreement"` // of messages with their soft bits, mean
	Consistent bool    `json:"consistent"`
}

// checkWatcher collects the checks of all carriers.
type checkWatcher struct {
	checkers [cell.MaxCells]*census.Checker
}

// Add implements watcher.
func (w *checkWatcher) Add(s *air.Subframe) error {
	if w.checkers[s.Cell] == nil {
		w.checkers[s.Cell] = census.NewChecker()
	}
	w.checkers[s.Cell].Add(census.Subframe{Cell: s.Cell, Number: s.Number, PRB: s.PRB, DCIs: s.DCIs})
	return nil
}

// Close implements watcher.
func (w *checkWatcher) Close() error { return nil }

// runCheck checks sources until they end, or for the time of the options.
func runCheck(cmd *cobra.Command, args []string, o checkOptions) error {
	if o.length < 0 {
		return negativeError(o.length)
	}
	l, err := o.air.openListener(cmd, args)
	if err != nil {
		return err
	}
	w := &checkWatcher{}
	if _, err := watchUntil(cmd.Context(), l, []watcher{w}, o.length); err != nil {
		return err
	}
	var bad error
	for i, s := range l.State() {
		if w.checkers[i] == nil {
			return fault.New(fault.Timeout, fmt.Errorf("%s: no cell found in %d samples", s.Source, s.Samples),
				"check that the source receives a cell; --for waits longer")
		}
		r := newCheckReport(s, w.checkers[i].Check())
		if o.asJSON {
			err = cli.PrintJSON(cmd.OutOrStdout(), r)
		} else {
			err = printCheckReport(cmd.OutOrStdout(), r)
		}
		if !r.Consistent {
			bad = errors.Join(bad, fault.New(fault.Integrity, fmt.Errorf("%s: messages contradict each other", s.Source),
				"improve the signal; another cell at the same frequency may interfere"))
		}
		if err != nil {
			return err
		}
	}
	return bad
}

func newCheckReport(s air.State, c census.Check) checkReport {
	part := func(n, of int64) float64 {
		if of == 0 {
			return 0
		}
		return float64(n) / float64(of)
	}
	r := checkReport{Source: s.Source, Identity: s.Cell.ID, PRB: s.Cell.PRB, Subframes: c.Subframes, Missing: c.Gaps,
		Messages: c.Messages, Users: c.Users, Once: c.Once, Shared: c.Shared, Conflicts: c.Conflicts, Blocks: c.Blocks,
		Repeats: c.Repeats, Orphans: c.Orphans, Down: part(c.PRB[0], c.AllPRB[0]), Up: part(c.PRB[1], c.AllPRB[1]),
		Consistent: c.IsConsistent()}
	if c.Messages > 0 {
		r.Agreement = c.Agreement / float64(c.Messages)
	}
	return r
}

func printCheckReport(w io.Writer, r checkReport) error {
	percent := func(n, of int64) string {
		if of == 0 {
			return "none"
		}
		return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(of))
	}
	verdict := "the messages agree"
	if !r.Consistent {
		verdict = "the messages contradict each other"
	}
	_, err := fmt.Fprintf(w, `%s: cell %d, %d PRB: %s
subframes: %d, missing between them %d; %d messages to %d users, which explain %.0f %% of their soft bits
two messages name one resource block: %s of %d subframes with several
retransmissions: %s of %d downlink blocks; %d of blocks that were not seen
users with one message only: %s; blocks used: %.1f %% down, %.1f %% up
`, r.Source, r.Identity, r.PRB, verdict, r.Subframes, r.Missing, r.Messages, r.Users, 100*r.Agreement,
		percent(r.Conflicts, r.Shared), r.Shared, percent(r.Repeats, r.Blocks), r.Blocks, r.Orphans,
		percent(int64(r.Once), int64(r.Users)), 100*r.Down, 100*r.Up)
	return err
}
