// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/lab"
	"mpbond/lab/vary"
)

// Parameters of b7.
const (
	fadeSize   = 4 * unit.MB
	fadeReps   = 6
	fadeStride = 7 * time.Second // between repetitions, where carriers vary
	fadeLength = time.Minute
)

// fades are the cells of b7: which links fade, and when.
var fades = []struct {
	name, links string
	at          []string
	varies      bool // both carriers vary instead
}{
	{"the PS-path fades", "8/10/5", linkFadeChanges("ps", 8, 1), false},
	{"the HS-path fades", "8/10/5", linkFadeChanges("hs1", 10, 1), false},
	{"the pipe fades", "5/10/5", linkFadeChanges("pipe1", 5, 0.5), false},
	{"PS- and HS-path fade in turn", "8/10/5", slices.Concat(linkFadeChanges("ps", 8, 1), []string{"2.5s:hs1.rate=1Mbit/s",
		"4s:hs1.rate=10Mbit/s"}), false},
	{"both carriers vary", "8/10/5", nil, true},
}

// linkFadeChanges returns the changes of a link that fades in steps from 0.5 s to 2.5 s.
func linkFadeChanges(link string, from, low float64) (at []string) {
	for i, rate := range []float64{(from + low) / 2, low, low, (from + low) / 2, from} {
		at = append(at, fmt.Sprintf("%v:%s.rate=%gMbit/s", time.Duration(1+i)*500*time.Millisecond, link, rate))
	}
	return at
}

// rowB7FadingLinks returns row b7: all schedulers while links fade.
func rowB7FadingLinks() Row {
	r := Row{ID: "b7", Title: "All schedulers while links fade", Setup: benchSetup + fmt.Sprintf(" %v. Links fade in "+
		"steps to an eighth or tenth of their rate from 0.5 s to 2.5 s, or vary as lab/vary makes LTE; then each "+
		"repetition begins %v further on. mpbond is its default scheduler, %s. All others that it knows are "+
		"compared, also those that nobody should use (redundant, roundrobin).", fadeSize, fadeStride, sched.Default),
		Metrics: []Metric{Time, LongestGap, DuplicateShare}}
	var schemes []string
	for _, name := range sched.Names() {
		if name != sched.Default {
			schemes = append(schemes, Product+":"+name)
		}
	}
	var cells []Cell
	for i, f := range fades {
		c := Cell{Name: "4 MB, " + f.links + ", " + f.name, Links: f.links, Size: fadeSize, At: f.at, Reps: fadeReps,
			Schemes: slices.Concat([]string{Product}, schemes, []string{mptcp, singleScheme})}
		if f.varies {
			c.Stride, c.Network = fadeStride, func(seed uint64) (*lab.Topology, error) {
				return linkProfiles{
					"ps":  vary.LTE(vary.Rand(seed, "b7/ps"), 8*unit.Mbps, fadeLength),
					"hs1": vary.LTE(vary.Rand(seed, "b7/hs1"), 10*unit.Mbps, fadeLength),
				}.applyToTriangle(f.links, fadeLength)
			}
		}
		if i == 0 {
			c.Quick = 1
		}
		cells = append(cells, c)
	}
	r.Points = []Point{newClaimPoint(fmt.Sprintf(
		"links fade: never more than %.0f %% slower than the best other scheduler",
		100*(maxTimeRatio-1)), AimAtMost, maxTimeRatio, casesPerCell(cells, func(d Data, c Cell) caseValue {
		s, ok := d.schemeSummary(c.Name, Product)
		best, there := d.fastestBaseline(c, func(scheme string) bool { return slices.Contains(schemes, scheme) })
		slower := s.Seconds / best.Seconds
		return newCaseValue(ok && there, slower, "%.1f %% slower than %s", 100*(slower-1), best.Scheme)
	}))}
	return r.withCellTables(cells)
}
