// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"maps"
	"path/filepath"
	"time"

	"mpbond/api"
	apiclient "mpbond/api/client"
)

// CellReport is a report of the modem of one of the primary's links.
type CellReport struct {
	At   time.Duration // since the beginning of the link's changes
	Link string
	Cell api.ServingCell
}

// reportTaker is a scheme whose primary uses reports of modems.
type reportTaker interface {
	// takesReports reports whether this one does.
	takesReports() bool
}

func (m *mpbondScheme) takesReports() bool { return !m.noHints }

// startReports passes the reports of the primary's modems on as they come, if there are any and the
// scheme uses them, as a program on the device would: by the API. They must be ordered by time. The
// returned function ends that and returns the first error.
func (s *session) startReports(ctx context.Context, b *Bench, t Transfer) (stop func() error) {
	scheme, ok := s.schemes[t.Scheme].(reportTaker)
	if len(s.spec.Reports) == 0 || !ok || !scheme.takesReports() {
		return func() error { return nil }
	}
	begin := time.Now().Add(-s.spec.startOffset(t.Rep))
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		c := apiclient.New(filepath.Join(mpbondHome(b, "primary"), "run", "primary.sock"))
		defer c.Close()
		done <- sendReports(ctx, s.spec.Reports, begin, func(cells map[string]api.ServingCell) error {
			return c.SetFacts(ctx, api.Facts{Cells: cells})
		})
	}()
	return func() error {
		cancel()
		return <-done
	}
}

// sendReports sends reports at their times after begin until ctx ends, those of one time together.
// Reports of the past are left out.
func sendReports(ctx context.Context, reports []CellReport, begin time.Time,
	send func(map[string]api.ServingCell) error) error {
	cells := map[string]api.ServingCell{}
	for i, r := range reports {
		wait := time.Until(begin.Add(r.At))
		if wait < 0 && len(cells) == 0 {
			continue
		}
		if cells[r.Link] = r.Cell; i+1 < len(reports) && reports[i+1].At == r.At {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := send(maps.Clone(cells)); err != nil && ctx.Err() == nil {
			return err
		}
		clear(cells)
	}
	return nil
}
