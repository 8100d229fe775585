// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
	"mpbond/lab/vary"
)

// Each repetition of m8 begins m8Stride later in profiles of m8Length, which repeat.
const (
	m8Reps   = 10
	m8Stride = 20 * time.Second
	m8Length = 230 * time.Second // not a multiple of the stride, so that more repetitions see new parts
)

// m8Kinds are what varies and how. Everything else is as in 8/10/5.
var m8Kinds = []struct {
	name string
	made func(seed uint64) linkProfiles
	// recorded are the files by link.
	recorded map[string]string
}{
	{"WWAN varies", func(seed uint64) linkProfiles {
		return linkProfiles{"ps": vary.LTE(vary.Rand(seed, "m8/ps"), 8*unit.Mbps, m8Length),
			"hs1": vary.LTE(vary.Rand(seed, "m8/hs1"), 10*unit.Mbps, m8Length)}
	}, map[string]string{"ps": "mahimahi/Verizon-LTE-short.down", "hs1": "mahimahi/TMobile-LTE-short.down"}},
	{"WLAN varies", func(seed uint64) linkProfiles {
		return linkProfiles{"pipe1": vary.WLAN(vary.Rand(seed, "m8/pipe1"), m8Walk, m8Length)}
	}, map[string]string{"pipe1": "wifi-cellular-pairs/8_1_wifi.csv"}},
}

// m8Walk leads from close together to where the pipe is slower than the HS-path, or out of range
// behind a wall.
var m8Walk = vary.Walk{Near: 1, Far: 35}

// m8Recorded is how much of recordings is used.
const m8Recorded = 100 * time.Second

// rowM8VaryingLinks returns row m8: small files while networks vary.
func rowM8VaryingLinks(set radio.Set) Row {
	active := Energy(set, "", false)
	r := Row{
		ID: "m8", Title: "Small files while WWAN or WLAN vary", Source: mpbondPaper + ", varying networks",
		Setup: commonSetup + fmt.Sprintf(" 8/10/5 Mbit/s; \"WWAN\": PS and HS vary as lab/vary makes LTE, with "+
			"these means, in queues of %v; \"WLAN\": the pipe is that between people who walk %g to %g m from "+
			"each other. Each repetition begins %v further on. The published values are of all sizes. So each of "+
			"ours is the mean of a repetition, in which all sizes begin at the same moment of the profiles. The "+
			"fixed ratio of %s is the best mean of a cell, in steps of 10 %% of the bytes. %s",
			cellularQueue, m8Walk.Near, m8Walk.Far, m8Stride, mptcp, energySetup(set)),
		NotCovered: "the paper's profiles, which are not known to us",
		Metrics:    []Metric{Time, active, Energy(set, "", true), LongestGap},
	}
	for _, kind := range m8Kinds {
		var cells []string
		for _, traced := range []bool{false, true} {
			for _, size := range m5Sizes {
				c := Cell{Name: fmt.Sprintf("%s, %v", kind.name, size), Size: size,
					Schemes: slices.Concat([]string{Product, pams, mptcp}, combineSchemes, wideRatioSchemes()),
					Reps:    m8Reps, Quick: 1, Stride: m8Stride}
				if traced {
					c.Name += ", recorded"
					c.FromRecordings = func(dir string) (*lab.Topology, error) {
						v, err := loadRecordings(dir, m8Recorded, kind.recorded)
						if err != nil {
							return nil, err
						}
						return v.applyToTriangle("8/10/5", m8Recorded)
					}
				} else {
					c.Network = func(seed uint64) (*lab.Topology, error) {
						return kind.made(seed).applyToTriangle("8/10/5", m8Length)
					}
				}
				r.Cells = append(r.Cells, c)
				cells = append(cells, c.Name)
			}
		}
		all := group{kind.name, cells, true}
		r.Points = append(r.Points, all.comparePoint(mptcp, Time, -23, -21), all.comparePoint(mptcp, active, -25, -18),
			all.compareCombine(Time, -35, -29), all.compareCombine(active, -23, -16),
			all.compareBestRatio(wideRatioSchemes(), Time))
	}
	return r
}
