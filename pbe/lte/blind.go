package lte

import (
	"slices"

	"mpbond/pbe/cell"
)

// leastFill is how strong a CCE must be, of what the channel makes of a full one;
// less is an empty one (from srsRAN 4G's recordings, where it costs no message).
//
// A full one need not hold a word. Nothing but the search space says that a word
// was sent, as its RNTI is what the CRC does not explain. So the word must explain
// the soft bits as well as noise of that strength leaves it possible (allowed), and
// that of somebody unknown better than words by chance do (convincing).
const leastFill = 0.3

// attempt is one size that a candidate may have.
type attempt struct {
	size        int
	own, common []cell.Format // formats of that size in both search spaces
	order       []int         // of the rate matching
}

// blind finds the DCIs of one cell without knowing its users.
type blind struct {
	cell     Cell
	attempts []attempt
	viterbi  viterbi
	sum      [maxSpread]float32
	whole    [maxSpread]int32
	word     [maxCoded]byte
	coded    []byte
	history  *history
	// decodes counts the words that were decoded.
	decodes int
}

func newBlind(c Cell) *blind {
	b := &blind{cell: c, history: newHistory()}
	add := func(f cell.Format, size int, common bool) {
		i := slices.IndexFunc(b.attempts, func(a attempt) bool { return a.size == size })
		if i < 0 {
			i = len(b.attempts)
			b.attempts = append(b.attempts, attempt{size: size, order: matching(size + crcBits)})
		}
		to := &b.attempts[i].own
		if common {
			to = &b.attempts[i].common
		}
		if !slices.Contains(*to, f) {
			*to = append(*to, f)
		}
	}
	common := c.dciSizes(false)
	for _, f := range []cell.Format{cell.Format0, cell.Format1A, cell.Format1C} {
		add(f, common[f], true)
	}
	for _, twoBits := range []bool{false, true} {
		if twoBits && c.PRB == 15 {
			continue // the same two sizes the other way round: it is taken that nobody has it
		}
		own := c.dciSizes(twoBits)
		for _, f := range []cell.Format{cell.Format0, cell.Format1A, cell.Format1} {
			add(f, own[f], false)
		}
		if c.Ports == 2 {
			add(cell.Format2, own[cell.Format2], false)
			add(cell.Format2A, own[cell.Format2A], false)
		}
	}
	return b
}

// search appends the DCIs of a subframe to out: soft has the descrambled bits of
// all CCEs, elements what is known of each. Larger ones go first: what they took is not
// looked at again.
func (b *blind) search(soft []float32, elements []element, subframe int, out []DCI) []DCI {
	b.history.next()
	cces := len(elements)
	free := make([]bool, cces)
	for i, e := range elements {
		free[i] = e.full()
	}
	for _, level := range levels {
		for first := 0; first+level <= cces; first += level {
			if slices.Contains(free[first:first+level], false) {
				continue
			}
			at := where{first, level, cces, subframe}
			d, ok := b.best(soft[first*cceBits:(first+level)*cceBits], allowed(elements[first:first+level]), at)
			if !ok {
				continue
			}
			out = append(out, d)
			b.history.heard[d.RNTI] = b.history.now
			for i := first; i < first+level; i++ {
				free[i] = false
			}
		}
	}
	return out
}

// where is a place in a subframe.
type where struct{ first, level, cces, subframe int }

// best is the DCI that explains the soft bits of a candidate best, and leaves at
// most so much of their weight.
func (b *blind) best(soft []float32, most float32, at where) (best DCI, ok bool) {
	for i := range b.attempts {
		a := &b.attempts[i]
		common := len(a.common) > 0 && mayBeCommon(at.level, at.first, at.cces)
		if len(a.own) == 0 && !common {
			continue
		}
		wrong, agreement := b.decode(soft, a)
		if !(wrong <= most && agreement > best.Agreement) { // so that what is no number is refused
			continue
		}
		if d, is := b.believe(a, at, common); is {
			if !(agreement >= convincing(a.size+crcBits, at.level)) && !b.history.knows(d.RNTI) {
				b.history.guessed[d.RNTI] = b.history.now
				continue
			}
			d.Agreement = agreement
			best, ok = d, true
		}
	}
	return best, ok
}

// decode decodes soft as a word of the attempt's size into b.word. It returns the
// weight of the soft bits that the word does not explain, and what part of all it
// does.
func (b *blind) decode(soft []float32, a *attempt) (wrong float32, agreement float64) {
	b.decodes++
	n := a.size + crcBits
	sum := b.sum[:streams*n]
	clear(sum)
	for e, o := 0, 0; e < len(soft); e++ {
		sum[a.order[o]] += soft[e]
		if o++; o == len(a.order) {
			o = 0
		}
	}
	whole := b.whole[:len(sum)]
	quantise(sum, whole)
	b.viterbi.decode(whole, b.word[:n])
	b.coded = encode(b.word[:n], b.coded[:0])
	var all float32
	o := 0
	for _, s := range soft {
		all += max(s, -s)
		if b.coded[a.order[o]] == 1 {
			s = -s
		}
		wrong += max(-s, 0)
		if o++; o == len(a.order) {
			o = 0
		}
	}
	return wrong, 1 - 2*float64(wrong)/float64(max(all, 1e-30))
}

// believe tells whether b.word can have been sent there, and as what.
func (b *blind) believe(a *attempt, at where, common bool) (DCI, bool) {
	r := crcMask(b.word[:a.size+crcBits])
	d := DCI{RNTI: r, CCE: at.first, Level: at.level}
	flag := cell.Format0
	if b.word[0] == 1 {
		flag = cell.Format1A
	}
	of := func(formats []cell.Format) bool {
		for _, f := range formats {
			if (f == cell.Format0 || f == cell.Format1A) && f != flag || f == cell.Format1C && r.User() || f == cell.Format0 && !r.User() {
				continue
			}
			d.Format = f
			d.Payload = slices.Clone(b.word[:a.size])
			if b.cell.parse(&d) {
				return true
			}
			d = DCI{RNTI: r, CCE: at.first, Level: at.level}
		}
		return false
	}
	switch {
	case r.User():
		return d, mayBe(r, at.subframe, at.level, at.first, at.cces) && of(a.own) || common && of(a.common)
	case r == rntiSI || r == rntiP || r >= 1 && r <= maxRA:
		return d, common && of(a.common)
	}
	return d, false
}
