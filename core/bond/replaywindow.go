// SPDX-License-Identifier: Apache-2.0

package bond

// replayWindow remembers which of the highest numbers were seen, as IPsec does against replay (RFC
// 4303 section 3.4.3). The zero value has seen none.
type replayWindow struct {
	next uint64 // the highest number seen, plus 1
	seen [replayWindowSize / 64]uint64
}

const replayWindowSize = 1024

// recordIfNew records n and reports whether it is new. A number below the window counts as seen.
func (w *replayWindow) recordIfNew(n uint64) bool {
	if n < w.next {
		if w.next-n > replayWindowSize || *w.wordOf(n)&(1<<(n%64)) != 0 {
			return false
		}
	} else if n-w.next >= replayWindowSize {
		w.seen = [replayWindowSize / 64]uint64{}
		w.next = n + 1
	} else {
		for ; w.next <= n; w.next++ {
			*w.wordOf(w.next) &^= 1 << (w.next % 64)
		}
	}
	*w.wordOf(n) |= 1 << (n % 64)
	return true
}

func (w *replayWindow) wordOf(n uint64) *uint64 { return &w.seen[n/64%uint64(len(w.seen))] }
