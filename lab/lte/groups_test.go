// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"fmt"
	"slices"
	"testing"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
	phy "mpbond/pbe/lte"
)

// TestGroups: where whole groups are granted, a message represents each grant exactly. Users get as
// much as with single blocks, and less than a group stays free.
func TestGroups(t *testing.T) {
	for _, prb := range []int{6, 15, 25, 50, 75, 100} {
		for _, scheduler := range []Scheduler{EqualShare, ProportionalFair} {
			t.Run(fmt.Sprint(prb, scheduler), func(t *testing.T) {
				var rates [2]float64
				for i := range rates {
					cfg := Config{Seed: 3, Scheduler: scheduler,
						Cells: []CellConfig{{PRB: prb, Layers: 2, Control: 0.4, Groups: i == 0}}}
					for u := range 3 {
						cfg.Users = append(cfg.Users, UserConfig{RNTI: cell.RNTI(0x4000 + u), Cells: []int{0},
							SINR: steady(15), ErrorRate: 1e-5})
					}
					n := New(cfg)
					c := phy.Cell{PRB: prb, Ports: 2, PHICHSixths: 6}
					hear := func(s cell.Subframe) {
						messages, unsaid := c.EncodeGrants(s.Grants, nil)
						if i == 1 {
							return
						}
						if unsaid > 0 || len(messages) != len(s.Grants) {
							t.Fatalf("subframe %d: no message for %d of %+v", s.Number, unsaid, s.Grants)
						}
						var all phy.PRBSet
						for k := range messages {
							for b := range prb {
								if messages[k].PRBs.Has(b) {
									if all.Has(b) {
										t.Fatalf("subframe %d: block %d is given twice", s.Number, b)
									}
									all[b>>6] |= 1 << (b & 63)
								}
							}
							g := messages[k].Grant()
							if g.N == 1 && g.Format == cell.Format2 { // the second is disabled
								g.N, g.Blocks[1] = 2, cell.Block{RV: 1}
							}
							if !slices.Contains(s.Grants, g) {
								t.Fatalf("subframe %d: %+v was not granted: %+v", s.Number, g, s.Grants)
							}
						}
					}
					for range 1500 {
						for u := range cfg.Users {
							// the third seldom needs all of its share
							for n.Waiting(u) < []unit.Bytes{100_000, 100_000, 1}[u] {
								n.Offer(u, &Item{Size: packet})
							}
						}
						n.Step(nil, hear)
					}
					for u := range cfg.Users {
						rates[i] += float64(n.Truth(u).Delivered)
					}
				}
				expectNear(t, "rate in groups", rates[0], rates[1], 0.04)
			})
		}
	}
}
