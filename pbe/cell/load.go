package cell

// loadWindow is how many subframes a Load averages over: ten seconds.
const loadWindow = 10_000

// Load is what part of one cell's resource blocks is given to anybody, downlink, on
// average over the last ten seconds, the newest counting most. Subframes that were not
// heard count for nothing. The zero Load has seen none.
type Load struct {
	share float64
	seen  int
}

// Add takes the next subframe of the cell.
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

// Share is the load, 0 to 1, and whether a second or more of it was seen.
func (l *Load) Share() (share float64, known bool) { return l.share, l.seen >= 1000 }
