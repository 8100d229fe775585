// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/e2e/rig"
)

// TestHandoffs: a program reports the cell of the primary's link. While a stream is open, both ends expect
// stalls when a handoff is likely. A handoff is an event, and the primary lists it.
func TestHandoffs(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t)
	c := n.NewClient("primary", "primary")
	report := func(neighbour float64, cell string) {
		t.Helper()
		rsrp := -100.0
		if err := c.SetFacts(t.Context(), api.Facts{Cells: map[string]api.ServingCell{"": {RSRPDBm: &rsrp,
			NeighbourRSRPDBm: &neighbour, Cell: cell}}}); err != nil {
			t.Fatal(err)
		}
	}
	endDownloads := n.startDownloads(mb)
	for _, role := range []string{"primary", "server"} {
		rig.Eventually(t, func() error {
			report(-80, "a")
			s, err := n.Status(role, role)
			for _, b := range s.Bonds {
				for _, p := range b.Subflows {
					if p.Kind == api.Direct && p.ExpectedStallMs > 0 {
						return nil
					}
				}
			}
			return errors.Join(err, fmt.Errorf("the %s expects no stall: %+v", role, s.Bonds))
		})
	}
	rig.Eventually(t, func() error {
		report(-80, "a")
		out, err := n.Run("primary", n.Mpbond, "status")
		if err == nil && !strings.Contains(out, "a handoff may delay it by") {
			err = fmt.Errorf("no word of a handoff in %s", out)
		}
		return err
	})
	report(-120, "b")
	if err := endDownloads(); err != nil {
		t.Error(err)
	}
	events, end := context.WithTimeout(t.Context(), rig.Patience)
	defer end()
	for news, err := range c.Events(events, 0) {
		if err != nil {
			t.Fatalf("no event: %v", err)
		}
		if x := news.Change; x != nil && x.Kind == "handoff" {
			if x.Text != "b" || x.Device == "" || !strings.Contains(x.Reason, "forecast") {
				t.Errorf("%+v", x)
			}
			break
		}
	}
	out, err := n.Run("primary", n.Mpbond, "handoffs")
	if err != nil || !strings.Contains(out, "  b     1 ") { // how many were foreseen depends on times
		t.Errorf("%s, %v", out, err)
	}
	bad := -32768.0
	if err := c.SetFacts(t.Context(), api.Facts{Cells: map[string]api.ServingCell{"": {RSRPDBm: &bad}}}); err == nil ||
		!strings.Contains(err.Error(), "rsrp_dbm is -32768") {
		t.Errorf("a power that no modem measures: %v", err)
	}
	if h, err := c.Handoffs(t.Context()); err != nil || len(h.Links) != 1 || h.Links[0].Cell != "b" ||
		time.Since(h.Links[0].Last) > time.Minute {
		t.Errorf("%+v, %v", h, err)
	}
}
