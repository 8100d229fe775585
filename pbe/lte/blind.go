package lte

import (
	"math"
	"slices"

	"mpbond/pbe/cell"
)

// minOccupiedWeight is how strong a CCE must be, of what the channel makes of a full one;
// less is an empty one (from srsRAN 4G's recordings, where it costs no message). One of
// surelyOccupiedWeight is looked at whatever the noise may be.
const (
	minOccupiedWeight    = 0.3
	surelyOccupiedWeight = 0.7
)

// candidateSize is one size that a candidate may have.
type candidateSize struct {
	size                       int
	userFormats, commonFormats []cell.Format // formats of that size in both search spaces
	rateMatching               []int         // of the rate matching
}

// newCandidateSizes are all sizes in a cell.
func newCandidateSizes(c Cell) (all []candidateSize) {
	addFormat := func(f cell.Format, size int, commonSizes bool) {
		i := slices.IndexFunc(all, func(a candidateSize) bool { return a.size == size })
		if i < 0 {
			i = len(all)
			all = append(all, candidateSize{size: size, rateMatching: rateMatchingOrder(size + crcBits)})
		}
		to := &all[i].userFormats
		if commonSizes {
			to = &all[i].commonFormats
		}
		if !slices.Contains(*to, f) {
			*to = append(*to, f)
		}
	}
	commonSizes := c.dciSizes(false)
	for _, f := range []cell.Format{cell.Format0, cell.Format1A, cell.Format1C} {
		addFormat(f, commonSizes[f], true)
	}
	for _, twoBits := range []bool{false, true} {
		if twoBits && c.PRB == 15 {
			continue // the same two sizes the other way round: it is taken that nobody has it
		}
		userSizes := c.dciSizes(twoBits)
		for _, f := range []cell.Format{cell.Format0, cell.Format1A, cell.Format1} {
			addFormat(f, userSizes[f], false)
		}
		if c.Ports == 2 {
			addFormat(cell.Format2, userSizes[cell.Format2], false)
			addFormat(cell.Format2A, userSizes[cell.Format2A], false)
		}
	}
	return all
}

// blindDecoder finds what can be DCIs in a subframe of one cell without knowing its
// users.
type blindDecoder struct {
	cell           Cell
	candidateSizes []candidateSize
	viterbi        viterbiDecoder
	combined       [maxCodedBits]float32
	quantised      [maxCodedBits]int32
	word           [maxWordBits]byte
	coded          []byte
	freeCCEs       []bool // CCEs that can hold a word and hold no other
	// findings are the words that can be messages, in the order of places.
	findings []finding
	// decodedWords counts those that were decoded.
	decodedWords int
}

// finding is a word that was found.
type finding struct {
	dci  DCI // without Payload
	word [maxWordBits]byte
	size int
	// logOdds are those of a message to somebody unknown; sure, that they are enough.
	logOdds   float64
	isCertain bool
}

func newBlindDecoder(c Cell, attempts []candidateSize) *blindDecoder {
	return &blindDecoder{cell: c, candidateSizes: attempts}
}

// searchSubframe looks through a subframe: soft has the descrambled bits of all CCEs,
// elements what is known of each. Larger places go first: what a word took that is
// believed in any case is not looked at again.
func (b *blindDecoder) searchSubframe(soft []float32, elements []cceStats, subframe int) {
	b.findings, b.freeCCEs, b.decodedWords = b.findings[:0], b.freeCCEs[:0], 0
	for i := range elements {
		b.freeCCEs = append(b.freeCCEs, elements[i].isOccupied())
	}
	cces := len(elements)
	for _, level := range aggregationLevels {
		for first := 0; first+level <= cces; first += level {
			if slices.Contains(b.freeCCEs[first:first+level], false) {
				continue
			}
			if b.tryLocation(soft[first*bitsPerCCE:(first+level)*bitsPerCCE], elements[first:first+level], cceLocation{first, level, cces, subframe}) {
				clear(b.freeCCEs[first : first+level])
			}
		}
	}
}

// cceLocation is a place in a subframe.
type cceLocation struct{ first, level, cces, subframe int }

// tryLocation adds the words of each size that can be at a place and may be believed. It
// tells whether one of them is sure.
func (b *blindDecoder) tryLocation(soft []float32, elements []cceStats, at cceLocation) bool {
	stats := measureLocation(elements)
	all, expected := float32(2*stats.weight), stats.expectedFit(elements)
	bestAgreement := 0.0 // agreement of a sure one
	for i := range b.candidateSizes {
		a := &b.candidateSizes[i]
		common := len(a.commonFormats) > 0 && inCommonSpace(at.level, at.first, at.cces)
		if len(a.userFormats) == 0 && !common {
			continue
		}
		chanceOdds := b.logAlternatives(a.size+crcBits, at)
		minAgreement := max(expected, stats.requiredFit(chanceOdds+minCandidateOdds))
		agreement := b.decodeWord(soft, all, a, max(minAgreement, bestAgreement))
		if !(agreement >= minAgreement && agreement > bestAgreement) { // so that what is no number is refused
			continue
		}
		c := finding{size: a.size}
		var ok bool
		if c.dci, ok = b.interpretWord(a, at, common); !ok {
			continue
		}
		c.logOdds = stats.likelihoodGain(soft, b.coded, a.rateMatching, agreement) - chanceOdds
		if !c.dci.RNTI.IsUser() {
			c.logOdds += rntiLogOdds - math.Log(reservedRNTIs)
		}
		if !(c.logOdds >= minCandidateOdds) {
			continue
		}
		copy(c.word[:], b.word[:a.size])
		c.dci.Agreement = agreement
		if c.isCertain = c.logOdds >= acceptOdds; c.isCertain {
			bestAgreement = agreement
		}
		b.findings = append(b.findings, c)
	}
	return bestAgreement > 0
}

// decodeWord decodes soft, whose weight is all, as a word of the attempt's size into
// b.word. It returns what part of the weight the word explains; 0 if it is seen
// early that it would be less than least.
func (b *blindDecoder) decodeWord(soft []float32, all float32, a *candidateSize, least float64) float64 {
	b.decodedWords++
	n := a.size + crcBits
	sum := b.combined[:codeStreams*n]
	clear(sum)
	for len(soft) > 0 {
		m := min(len(soft), len(a.rateMatching))
		for i, s := range soft[:m] {
			sum[a.rateMatching[i]] += s
		}
		soft = soft[m:]
	}
	whole := b.quantised[:len(sum)]
	scale, lost := quantiseSoftBits(sum, whole)
	// Quantised, a word may explain more than it does by what was lost, and by what
	// sums of float32 are wrong.
	if !b.viterbi.decodeBits(whole, b.word[:n], int32(least*float64(all*scale)-float64(lost)-8)) {
		return 0
	}
	b.coded = encodeTailBiting(b.word[:n], b.coded[:0])
	var fit float32
	for i, s := range sum {
		if b.coded[i] == 1 {
			s = -s
		}
		fit += s
	}
	return min(float64(fit/all), 1)
}

// interpretWord tells whether b.word can have been sent there, and as what.
func (b *blindDecoder) interpretWord(a *candidateSize, at cceLocation, common bool) (DCI, bool) {
	r := recoverCRCMask(b.word[:a.size+crcBits])
	switch {
	case r.IsUser():
		if inUserSpace(r, at.subframe, at.level, at.first, at.cces) {
			if d, is := b.parseWordAs(r, a.userFormats, a.size, at); is {
				return d, true
			}
		}
	case r != rntiSI && r != rntiP && (r < 1 || r > maxRARNTI):
		return DCI{}, false
	}
	if !common {
		return DCI{}, false
	}
	return b.parseWordAs(r, a.commonFormats, a.size, at)
}

// parseWordAs reads b.word, of so many bits, as the first of the formats that it can be.
func (b *blindDecoder) parseWordAs(r cell.RNTI, formats []cell.Format, size int, at cceLocation) (DCI, bool) {
	flag := cell.Format0
	if b.word[0] == 1 {
		flag = cell.Format1A
	}
	for _, f := range formats {
		if (f == cell.Format0 || f == cell.Format1A) && f != flag || f == cell.Format1C && r.IsUser() || f == cell.Format0 && !r.IsUser() {
			continue
		}
		d := DCI{RNTI: r, Format: f, CCE: at.first, Level: at.level, Payload: b.word[:size]}
		if b.cell.parseDCI(&d) {
			d.Payload = nil
			return d, true
		}
	}
	return DCI{}, false
}
