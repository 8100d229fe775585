// SPDX-License-Identifier: Apache-2.0

package cell

// MaxLate is how many subframes after the newest one of any cell a Fusion waits for the others.
const MaxLate = 20

// maxDisorder bounds how far the subframes of one cell arrive out of order: a decoder takes up to 3
// ms for one and runs beside others. A subframe further behind the cell's newest was missed.
const maxDisorder = 4

// maxJump is the step ahead from which on a Fusion restarts: the decoder has found its cell again,
// or the device has other cells.
const maxJump = 1000

// Row is one subframe of all cells. Cells that did not arrive in time are missing.
type Row struct {
	Number int64
	// Received[c] reports whether Cells[c] is valid.
	Received [MaxCells]bool
	Cells    [MaxCells]Subframe
}

// FusionCounts counts what happened to the messages.
type FusionCounts struct {
	Rows      int // emitted
	Missing   int // cells of those rows that did not arrive in time
	Late      int // subframes that arrived after their row was emitted
	Duplicate int // subframes that arrived before
	Invalid   int // with values that no cell sends, or of an unexpected cell
	Jumps     int // steps ahead of more than a second, or behind
}

// Fusion aligns the subframes of several cells by their numbers: they arrive late, twice or not at
// all. It holds at most MaxLate+1 rows.
type Fusion struct {
	expected      [MaxCells]bool
	cells         int
	rows          [MaxLate + 1]Row // by Number % len; those from next to newest are open
	receivedCount [MaxLate + 1]int
	newestByCell  [MaxCells]int64 // the newest subframe of each cell
	next          int64           // the next row to emit
	newest        int64
	started       bool
	farBehind     int // consecutive subframes that are far behind: the count has restarted
	counts        FusionCounts
}

// NewFusion returns a Fusion that waits for the given cells. It ignores duplicates and IDs from
// MaxCells on.
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

// Counts returns the counts since the beginning.
func (f *Fusion) Counts() FusionCounts { return f.counts }

// Add adds one subframe of one cell. It calls each, in ascending order, for every row that is now
// complete or has waited too long. Grants are copied; a row is valid until each returns.
func (f *Fusion) Add(s Subframe, each func(*Row)) {
	if !s.hasValidFields() || !f.expected[s.Cell] {
		f.counts.Invalid++
		return
	}
	switch {
	case !f.started:
		f.startAtRow(s.Number)
	case s.Number > f.newest+maxJump:
		f.counts.Jumps++
		f.Flush(each)
		f.startAtRow(s.Number)
	case s.Number < f.next:
		// If several subframes in a row are late by more than a second, the count has restarted.
		if s.Number < f.next-maxJump {
			if f.farBehind++; f.farBehind > MaxLate {
				f.counts.Jumps++
				f.Flush(each)
				f.startAtRow(s.Number)
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
			f.emitNextRow(each)
		}
		f.openRowSlot(f.newest)
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
	for f.next <= f.newest && f.isRowComplete(f.next) {
		f.emitNextRow(each)
	}
}

// isRowComplete reports whether no more subframes of row n are expected.
func (f *Fusion) isRowComplete(n int64) bool {
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

// Flush emits all rows that are held, as at the end of a recording.
func (f *Fusion) Flush(each func(*Row)) {
	for f.started && f.next <= f.newest {
		f.emitNextRow(each)
	}
}

func (f *Fusion) startAtRow(n int64) {
	f.started, f.next, f.newest, f.farBehind = true, n, n, 0
	f.newestByCell = [MaxCells]int64{}
	f.openRowSlot(n)
}

func (f *Fusion) openRowSlot(n int64) {
	i := n % int64(len(f.rows))
	f.rows[i].Number = n
	f.rows[i].Received = [MaxCells]bool{}
	f.receivedCount[i] = 0
}

func (f *Fusion) emitNextRow(each func(*Row)) {
	i := f.next % int64(len(f.rows))
	f.counts.Rows++
	f.counts.Missing += f.cells - f.receivedCount[i]
	f.next++
	each(&f.rows[i])
}
