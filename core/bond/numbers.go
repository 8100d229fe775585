package bond

// numbers remembers which of the newest numbers have been seen: a window of
// them, as IPsec has against replay (RFC 4303 section 3.4.3). The zero value has
// seen none.
type numbers struct {
	next uint64 // the highest one seen, plus 1
	seen [numberWindow / 64]uint64
}

const numberWindow = 1024

// add notes n and reports whether it was not seen before. One that has left
// the window counts as seen.
func (w *numbers) add(n uint64) bool {
	if n < w.next {
		if w.next-n > numberWindow || *w.bit(n)&(1<<(n%64)) != 0 {
			return false
		}
	} else if n-w.next >= numberWindow {
		w.seen = [numberWindow / 64]uint64{}
		w.next = n + 1
	} else {
		for ; w.next <= n; w.next++ {
			*w.bit(w.next) &^= 1 << (w.next % 64)
		}
	}
	*w.bit(n) |= 1 << (n % 64)
	return true
}

func (w *numbers) bit(n uint64) *uint64 { return &w.seen[n/64%uint64(len(w.seen))] }
