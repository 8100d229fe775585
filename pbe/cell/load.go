// SPDX-License-Identifier: Apache-2.0

package cell

// loadWindow is the number of subframes that a Load averages: ten seconds.
const loadWindow = 10_000

// Load is the average part of a cell's downlink resource blocks that was granted to anybody, over
// the last ten seconds, with the newest weighing most. Subframes that were not received do not
// count. The zero Load has seen none.
type Load struct {
	share float64
	seen  int
}

// Add adds the next subframe of the cell.
func (l *Load) Add(s Subframe) {
	used := 0
	for _, g := range s.Grants {
		if !g.IsUplink() {
			used += int(g.PRB)
		}
	}
	if s.PRB == 0 {
		return
	}
	l.seen = min(l.seen+1, loadWindow)
	l.share += (min(float64(used)/float64(s.PRB), 1) - l.share) / float64(l.seen)
}

// Share returns the load, 0 to 1, and whether it is based on at least a second.
func (l *Load) Share() (share float64, known bool) { return l.share, l.seen >= 1000 }
