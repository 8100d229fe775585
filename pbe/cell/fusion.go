package cell

// MaxLate is for how many subframes after the newest one that any cell has told
// a Fusion waits for the others.
const MaxLate = 20

// maxDisorder is by how many subframes a cell's own come out of turn, at most: a
// decoder takes up to 3 ms for one, and runs beside others of its kind. What is
// further behind the cell's newest was missed.
const maxDisorder = 4

// maxJump is the step ahead from which on a Fusion starts afresh: a decoder
// found its cell again, or the device has other cells.
const maxJump = 1000

// Row is one subframe of all cells. What a cell has not told in time is absent.
type Row struct {
	Number int64
	// Received[c] says that cell c is in Cells[c].
	Received [MaxCells]bool
	Cells    [MaxCells]Subframe
}

// FusionCounts tell what became of messages.
type FusionCounts struct {
	Rows      int // handed on
	Missing   int // cells of those rows that were not told in time
	Late      int // subframes told after their row was handed on
	Duplicate int // told before
	Invalid   int // with values that no cell sends, or of a cell that is not listened to
	Jumps     int // steps ahead of more than a second, or behind
}

// Fusion lines up the subframes of several cells by their numbers: they come
// late, twice or not at all. It holds at most MaxLate+1 rows.
type Fusion struct {
	expected      [MaxCells]bool
	cells         int
	rows          [MaxLate + 1]Row // by Number % len; those from next to newest are open
	receivedCount [MaxLate + 1]int
	newestByCell  [MaxCells]int64 // the newest of each cell
	next          int64           // the next row to hand on
	newest        int64
	started       bool
	farBehind     int // messages in turn that are far behind: the count has begun again
	counts        FusionCounts
}

// NewFusion waits for the cells given. More than MaxCells, and one twice, are
// left out.
func NewFusion(cells ...ID) *Fusion {
	f := &Fusion{}
	for _, c := range cells {
		if c < MaxCells && !f.expected[c] {
			f.expected[c] = true
			f.cells++
		}
	}
	return f
}

// Counts are those since the beginning.
func (f *Fusion) Counts() FusionCounts { return f.counts }

// Add takes one subframe of one cell and hands the rows that are whole now, or
// waited for in vain, to each in the order of their numbers. Grants are copied;
// the row that each is given holds until it returns.
func (f *Fusion) Add(s Subframe, each func(*Row)) {
	if !s.isValid() || !f.expected[s.Cell] {
		f.counts.Invalid++
		return
	}
	switch {
	case !f.started:
		f.startAt(s.Number)
	case s.Number > f.newest+maxJump:
		f.counts.Jumps++
		f.Flush(each)
		f.startAt(s.Number)
	case s.Number < f.next:
		// One that is late by more than a second is of a count that has begun
		// again, if more such follow.
		if s.Number < f.next-maxJump {
			if f.farBehind++; f.farBehind > MaxLate {
				f.counts.Jumps++
				f.Flush(each)
				f.startAt(s.Number)
				break
			}
		}
		f.counts.Late++
		return
	}
	f.farBehind = 0
	for f.newest < s.Number {
		f.newest++
		if f.newest-f.next > MaxLate {
			f.emitRow(each)
		}
		f.openRow(f.newest)
	}
	i := s.Number % int64(len(f.rows))
	r := &f.rows[i]
	if r.Received[s.Cell] {
		f.counts.Duplicate++
		return
	}
	r.Received[s.Cell] = true
	grants := append(r.Cells[s.Cell].Grants[:0], s.Grants...)
	r.Cells[s.Cell] = s
	r.Cells[s.Cell].Grants = grants
	f.receivedCount[i]++
	f.newestByCell[s.Cell] = max(f.newestByCell[s.Cell], s.Number)
	for f.next <= f.newest && f.isComplete(f.next) {
		f.emitRow(each)
	}
}

// isComplete tells whether nothing more is to be expected of row n.
func (f *Fusion) isComplete(n int64) bool {
	i := n % int64(len(f.rows))
	if f.receivedCount[i] == f.cells {
		return true
	}
	for c, listens := range f.expected {
		if listens && !f.rows[i].Received[c] && f.newestByCell[c] < n+maxDisorder {
			return false
		}
	}
	return true
}

// Flush hands on all that is held, as at the end of a recording.
func (f *Fusion) Flush(each func(*Row)) {
	for f.started && f.next <= f.newest {
		f.emitRow(each)
	}
}

func (f *Fusion) startAt(n int64) {
	f.started, f.next, f.newest, f.farBehind = true, n, n, 0
	f.newestByCell = [MaxCells]int64{}
	f.openRow(n)
}

func (f *Fusion) openRow(n int64) {
	i := n % int64(len(f.rows))
	f.rows[i].Number = n
	f.rows[i].Received = [MaxCells]bool{}
	f.receivedCount[i] = 0
}

func (f *Fusion) emitRow(each func(*Row)) {
	i := f.next % int64(len(f.rows))
	f.counts.Rows++
	f.counts.Missing += f.cells - f.receivedCount[i]
	f.next++
	each(&f.rows[i])
}
