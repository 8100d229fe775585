package lte

import (
	"math"
	"slices"

	"mpbond/pbe/cell"
)

// leastFill is how strong a CCE must be, of what the channel makes of a full one;
// less is an empty one (from srsRAN 4G's recordings, where it costs no message). One of
// mostFill is looked at whatever the noise may be.
const (
	leastFill = 0.3
	mostFill  = 0.7
)

// attempt is one size that a candidate may have.
type attempt struct {
	size        int
	own, common []cell.Format // formats of that size in both search spaces
	order       []int         // of the rate matching
}

// newAttempts are all sizes in a cell.
func newAttempts(c Cell) (all []attempt) {
	add := func(f cell.Format, size int, common bool) {
		i := slices.IndexFunc(all, func(a attempt) bool { return a.size == size })
		if i < 0 {
			i = len(all)
			all = append(all, attempt{size: size, order: matching(size + crcBits)})
		}
		to := &all[i].own
		if common {
			to = &all[i].common
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
	return all
}

// blind finds what can be DCIs in a subframe of one cell without knowing its
// users.
type blind struct {
	cell     Cell
	attempts []attempt
	viterbi  viterbi
	sum      [maxSpread]float32
	whole    [maxSpread]int32
	word     [maxCoded]byte
	coded    []byte
	free     []bool // CCEs that can hold a word and hold no other
	// found are the words that can be messages, in the order of places.
	found []finding
	// words counts those that were decoded.
	words int
}

// finding is a word that was found.
type finding struct {
	dci  DCI // without Payload
	word [maxCoded]byte
	size int
	// odds are those of a message to somebody unknown; sure, that they are enough.
	odds float64
	sure bool
}

func newBlind(c Cell, attempts []attempt) *blind { return &blind{cell: c, attempts: attempts} }

// search looks through a subframe: soft has the descrambled bits of all CCEs,
// elements what is known of each. Larger places go first: what a word took that is
// believed in any case is not looked at again.
func (b *blind) search(soft []float32, elements []element, subframe int) {
	b.found, b.free, b.words = b.found[:0], b.free[:0], 0
	for i := range elements {
		b.free = append(b.free, elements[i].full())
	}
	cces := len(elements)
	for _, level := range levels {
		for first := 0; first+level <= cces; first += level {
			if slices.Contains(b.free[first:first+level], false) {
				continue
			}
			if b.place(soft[first*cceBits:(first+level)*cceBits], elements[first:first+level], where{first, level, cces, subframe}) {
				clear(b.free[first : first+level])
			}
		}
	}
}

// where is a place in a subframe.
type where struct{ first, level, cces, subframe int }

// place adds the words of each size that can be at a place and may be believed. It
// tells whether one of them is sure.
func (b *blind) place(soft []float32, elements []element, at where) bool {
	see := see(elements)
	all, expected := float32(2*see.weight), see.expect(elements)
	best := 0.0 // agreement of a sure one
	for i := range b.attempts {
		a := &b.attempts[i]
		common := len(a.common) > 0 && mayBeCommon(at.level, at.first, at.cces)
		if len(a.own) == 0 && !common {
			continue
		}
		chance := b.chance(a.size+crcBits, at)
		least := max(expected, see.needs(chance+slight))
		agreement := b.decode(soft, all, a, max(least, best))
		if !(agreement >= least && agreement > best) { // so that what is no number is refused
			continue
		}
		c := finding{size: a.size}
		var ok bool
		if c.dci, ok = b.can(a, at, common); !ok {
			continue
		}
		c.odds = see.evidence(soft, b.coded, a.order, agreement) - chance
		if !c.dci.RNTI.User() {
			c.odds += rntiOdds - math.Log(userless)
		}
		if !(c.odds >= slight) {
			continue
		}
		copy(c.word[:], b.word[:a.size])
		c.dci.Agreement = agreement
		if c.sure = c.odds >= enough; c.sure {
			best = agreement
		}
		b.found = append(b.found, c)
	}
	return best > 0
}

// decode decodes soft, whose weight is all, as a word of the attempt's size into
// b.word. It returns what part of the weight the word explains; 0 if it is seen
// early that it would be less than least.
func (b *blind) decode(soft []float32, all float32, a *attempt, least float64) float64 {
	b.words++
	n := a.size + crcBits
	sum := b.sum[:streams*n]
	clear(sum)
	for len(soft) > 0 {
		m := min(len(soft), len(a.order))
		for i, s := range soft[:m] {
			sum[a.order[i]] += s
		}
		soft = soft[m:]
	}
	whole := b.whole[:len(sum)]
	scale, lost := quantise(sum, whole)
	// Quantised, a word may explain more than it does by what was lost, and by what
	// sums of float32 are wrong.
	if !b.viterbi.decode(whole, b.word[:n], int32(least*float64(all*scale)-float64(lost)-8)) {
		return 0
	}
	b.coded = encode(b.word[:n], b.coded[:0])
	var fit float32
	for i, s := range sum {
		if b.coded[i] == 1 {
			s = -s
		}
		fit += s
	}
	return min(float64(fit/all), 1)
}

// can tells whether b.word can have been sent there, and as what.
func (b *blind) can(a *attempt, at where, common bool) (DCI, bool) {
	r := crcMask(b.word[:a.size+crcBits])
	switch {
	case r.User():
		if mayBe(r, at.subframe, at.level, at.first, at.cces) {
			if d, is := b.read(r, a.own, a.size, at); is {
				return d, true
			}
		}
	case r != rntiSI && r != rntiP && (r < 1 || r > maxRA):
		return DCI{}, false
	}
	if !common {
		return DCI{}, false
	}
	return b.read(r, a.common, a.size, at)
}

// read reads b.word, of so many bits, as the first of the formats that it can be.
func (b *blind) read(r cell.RNTI, formats []cell.Format, size int, at where) (DCI, bool) {
	flag := cell.Format0
	if b.word[0] == 1 {
		flag = cell.Format1A
	}
	for _, f := range formats {
		if (f == cell.Format0 || f == cell.Format1A) && f != flag || f == cell.Format1C && r.User() || f == cell.Format0 && !r.User() {
			continue
		}
		d := DCI{RNTI: r, Format: f, CCE: at.first, Level: at.level, Payload: b.word[:size]}
		if b.cell.parse(&d) {
			d.Payload = nil
			return d, true
		}
	}
	return DCI{}, false
}
