// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"slices"

	"mpbond/pbe/cell"
)

// minOccupiedWeight is the least mean weight of an occupied CCE, relative to a clean one; weaker
// CCEs are empty (from srsRAN 4G's recordings, where this costs no message). A CCE of
// surelyOccupiedWeight is decoded whatever the noise.
const (
	minOccupiedWeight    = 0.3
	surelyOccupiedWeight = 0.7
)

// candidateSize is a message size that a candidate may have.
type candidateSize struct {
	size                       int
	userFormats, commonFormats []cell.Format // formats of that size in the user and common search space
	rateMatching               []int
}

// newCandidateSizes returns all message sizes in a cell.
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
	commonSizes := c.dciFormatSizes(false)
	for _, f := range []cell.Format{cell.Format0, cell.Format1A, cell.Format1C} {
		addFormat(f, commonSizes[f], true)
	}
	for _, twoBits := range []bool{false, true} {
		if twoBits && c.PRB == 15 {
			continue // the same two sizes swapped: we assume that no user has this variant
		}
		userSizes := c.dciFormatSizes(twoBits)
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

// blindDecoder finds possible DCIs in a subframe of one cell without knowing the users.
type blindDecoder struct {
	cell           Cell
	candidateSizes []candidateSize
	viterbi        viterbiDecoder
	combined       [maxCodedBits]float32
	quantised      [maxCodedBits]int32
	word           [maxWordBits]byte
	coded          []byte
	freeCCEs       []bool // CCEs that may hold a word and are not part of a certain one
	// findings are the words that may be messages, in the order of locations.
	findings []finding
	// decodedWords counts the decoded candidates.
	decodedWords int
}

// finding is a decoded word that may be a message.
type finding struct {
	dci  DCI // without Payload
	word [maxWordBits]byte
	size int
	// logOdds is the log odds that it is a message to an unknown user. isCertain reports that they
	// suffice.
	logOdds   float64
	isCertain bool
}

func newBlindDecoder(c Cell, attempts []candidateSize) *blindDecoder {
	return &blindDecoder{cell: c, candidateSizes: attempts}
}

// searchSubframe searches a subframe. soft has the descrambled bits of all CCEs, elements their
// statistics. Larger locations are tried first; the CCEs of certain words are not tried again.
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
			if b.tryLocation(soft[first*bitsPerCCE:(first+level)*bitsPerCCE], elements[first:first+level],
				cceLocation{first, level, cces, subframe}) {
				clear(b.freeCCEs[first : first+level])
			}
		}
	}
}

// cceLocation is a candidate location in a subframe.
type cceLocation struct{ first, level, cces, subframe int }

// tryLocation adds the acceptable words of each size at a location. It reports whether one is
// certain.
func (b *blindDecoder) tryLocation(soft []float32, elements []cceStats, at cceLocation) bool {
	stats := measureLocation(elements)
	all, expected := float32(2*stats.weight), stats.expectedFit(elements)
	bestAgreement := 0.0 // of a certain word
	for i := range b.candidateSizes {
		a := &b.candidateSizes[i]
		common := len(a.commonFormats) > 0 && inCommonSpace(at.level, at.first, at.cces)
		if len(a.userFormats) == 0 && !common {
			continue
		}
		chanceOdds := b.logAlternatives(a.size+crcBits, at)
		minAgreement := max(expected, stats.requiredFit(chanceOdds+minCandidateOdds))
		agreement := b.decodeWord(soft, all, a, max(minAgreement, bestAgreement))
		if !(agreement >= minAgreement && agreement > bestAgreement) { // this form rejects NaN
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

// decodeWord decodes soft, of total weight all, as a word of size a into b.word. It returns
// the part of the weight that the word explains, or 0 if it stopped early because that is below
// minAgreement.
func (b *blindDecoder) decodeWord(soft []float32, all float32, a *candidateSize, minAgreement float64) float64 {
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
	quantised := b.quantised[:len(sum)]
	scale, lost := quantiseSoftBits(sum, quantised)
	// Account for quantisation loss and float32 rounding.
	if !b.viterbi.decodeBits(quantised, b.word[:n], int32(minAgreement*float64(all*scale)-float64(lost)-8)) {
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

// interpretWord returns the message that b.word can be at that location, if any.
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

// parseWordAs parses b.word, of size bits, as the first matching one of the formats.
func (b *blindDecoder) parseWordAs(r cell.RNTI, formats []cell.Format, size int, at cceLocation) (DCI, bool) {
	flag := cell.Format0
	if b.word[0] == 1 {
		flag = cell.Format1A
	}
	for _, f := range formats {
		if (f == cell.Format0 || f == cell.Format1A) && f != flag || f == cell.Format1C && r.IsUser() ||
			f == cell.Format0 && !r.IsUser() {
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
