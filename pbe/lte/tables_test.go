// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"mpbond/pbe/cell"
)

var formatOf = map[string]cell.Format{"0": cell.Format0, "1A": cell.Format1A, "1": cell.Format1, "1C": cell.Format1C,
	"2": cell.Format2, "2A": cell.Format2A}

func TestGivenSizes(t *testing.T) {
	for _, r := range readRows(t, "tables/dci_sizes.csv") {
		c := Cell{PRB: parseNumber(t, r[0]), Ports: parseNumber(t, r[1])}
		if c.Ports == 4 {
			continue
		}
		f := formatOf[r[3]]
		if got, want := c.dciFormatSizes(r[2] == "1")[f], parseNumber(t, r[4]); got != want {
			t.Errorf("%v: %d in the user's space", r, got)
		}
		if got, want := c.dciFormatSizes(false)[f], parseNumber(t, r[5]); got != want {
			t.Errorf("%v: %d in the common space", r, got)
		}
	}
}

// TestSizes checks the sizes with two ports against the standard's own arithmetic.
func TestSizes(t *testing.T) {
	for prb, want := range map[int]formatSizes{
		6: {21, 21, 19, 8, 31, 28}, 15: {22, 22, 23, 10, 34, 31}, 25: {25, 25, 27, 12, 39, 36},
		50: {27, 27, 31, 13, 43, 41}, 75: {27, 27, 33, 14, 45, 42}, 100: {28, 28, 39, 15, 51, 48},
	} {
		if got := (Cell{PRB: prb, Ports: 2}).dciFormatSizes(false); got != want {
			t.Errorf("%d PRB: %v, want %v", prb, got, want)
		}
	}
}

func TestGivenCoding(t *testing.T) {
	var v viterbiDecoder
	for _, r := range readRows(t, "tables/dci_coding_vectors.csv") {
		coded := encodeTailBiting(appendMaskedCRC(toBits(r[0]), uint16(parseNumber(t, r[1]))), nil)
		order := rateMatchingOrder(len(coded) / codeStreams)
		e := parseNumber(t, r[3])
		sent := make([]byte, e)
		for i := range sent {
			sent[i] = coded[order[i%len(order)]]
		}
		if fromBits(sent) != r[4] {
			t.Errorf("%s for %s: encoded otherwise", r[0], r[1])
		}
		soft := make([]int32, len(coded))
		for i, b := range sent {
			soft[order[i%len(order)]] += 1 - 2*int32(b)
		}
		out := make([]byte, len(coded)/codeStreams)
		v.decodeBits(soft, out, math.MinInt32)
		if got := fromBits(out[:len(out)-crcBits]); got != r[0] || int(recoverCRCMask(out)) != parseNumber(t, r[1]) {
			t.Errorf("%s for %s: decoded %s for %d", r[0], r[1], got, recoverCRCMask(out))
		}
	}
}

// TestViterbi checks that every word is recovered with noise of half the soft bits' weight.
func TestViterbi(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var v viterbiDecoder
	wrong := 0
	for range 300 {
		word := make([]byte, 24+rnd.IntN(maxWordBits-23))
		for i := range word {
			word[i] = byte(rnd.IntN(2))
		}
		coded := encodeTailBiting(word, nil)
		soft := make([]int32, len(coded))
		for i, b := range coded {
			soft[i] = int32((1-2*float64(b))*16 + rnd.NormFloat64()*12)
		}
		out := make([]byte, len(word))
		if v.decodeBits(soft, out, math.MinInt32); !bytes.Equal(out, word) {
			wrong++
		}
	}
	if wrong > 0 {
		t.Errorf("%d of 300 words wrong", wrong)
	}
}

// TestCRCMask checks that the mask is recovered, and that any wrong bit changes it.
func TestCRCMask(t *testing.T) {
	word := appendMaskedCRC(toBits("0110101100111010101"), 0xBEEF)
	if got := recoverCRCMask(word); got != 0xBEEF {
		t.Fatalf("%#x", got)
	}
	for i := range word {
		word[i] ^= 1
		if recoverCRCMask(word) == 0xBEEF {
			t.Errorf("bit %d does not count", i)
		}
		word[i] ^= 1
	}
}

func TestGivenScrambling(t *testing.T) {
	for _, r := range readRows(t, "tables/pdcch_scrambling.csv") {
		init := pdcchInitState(parseNumber(t, r[0]), parseNumber(t, r[1]))
		out := make([]byte, len(r[3]))
		if goldSequence(init, out); int(init) != parseNumber(t, r[2]) || fromBits(out) != r[3] {
			t.Errorf("cell %s subframe %s: %d %s", r[0], r[1], init, fromBits(out))
		}
	}
}

func TestGivenSearchSpace(t *testing.T) {
	for _, r := range readRows(t, "tables/search_space.csv") {
		cces, sf, rnti, level := parseNumber(t, r[0]), parseNumber(t, r[1]), cell.RNTI(parseNumber(t, r[2])),
			parseNumber(t, r[3])
		want := map[int]bool{}
		for _, s := range strings.Split(r[4], ";") {
			if s != "" {
				want[parseNumber(t, s)] = true
			}
		}
		for first := 0; first+level <= cces; first++ {
			if inUserSpace(rnti, sf, level, first, cces) != want[first] {
				t.Errorf("%v: CCE %d", r, first)
			}
		}
	}
}

func TestGivenElements(t *testing.T) {
	for _, r := range readRows(t, "tables/nof_cce.csv") {
		c := Cell{PRB: parseNumber(t, r[0]), Ports: parseNumber(t, r[1]), PHICHSixths: parseSixths(r[2])}
		if c.Ports == 4 {
			continue
		}
		cfi := parseNumber(t, r[3])
		if got := len(c.pdcchREGs(cfi)) / regsPerCCE; c.controlSymbols(cfi) != parseNumber(t, r[4]) ||
			got != parseNumber(t, r[6]) {
			t.Errorf("%v: %d CCE", r, got)
		}
	}
}

func TestGivenGroups(t *testing.T) {
	phich := map[Cell]int{}
	for _, r := range readRows(t, "tables/pcfich_phich_regs.csv") {
		c := Cell{PRB: parseNumber(t, r[0]), Ports: parseNumber(t, r[1]), ID: parseNumber(t, r[2]),
			PHICHSixths: parseSixths(r[3])}
		i, want := parseNumber(t, r[6]), reg{parseNumber(t, r[7]), parseNumber(t, r[8])}
		if r[4] == "PHICH" {
			i += 3 * parseNumber(t, r[5])
			phich[c]++
			if got := c.phichREGs()[i]; got != want {
				t.Errorf("%v: %v", r, got)
			}
		} else if got := c.pcfichREGs()[i]; got != want {
			t.Errorf("%v: %v", r, got)
		}
	}
	for c, n := range phich {
		if got := len(c.phichREGs()); got != n {
			t.Errorf("%v: %d groups of elements for PHICHs, want %d", c, got, n)
		}
	}
	orders := map[Cell][4][]reg{}
	for _, r := range readRows(t, "tables/pdcch_reg_order.csv") {
		c := Cell{PRB: parseNumber(t, r[0]), Ports: parseNumber(t, r[1]), ID: parseNumber(t, r[2]),
			PHICHSixths: parseSixths(r[3])}
		o, ok := orders[c]
		if !ok {
			o = [4][]reg{nil, c.pdcchREGs(1), c.pdcchREGs(2), c.pdcchREGs(3)}
			orders[c] = o
		}
		if got, want := o[parseNumber(t, r[4])][parseNumber(t, r[5])],
			(reg{parseNumber(t, r[7]), parseNumber(t, r[8])}); got != want {
			t.Errorf("%v: %v", r, got)
		}
	}
}

// TestDistributed checks that messages to all users may have distributed blocks by the whole RIV,
// with the gap in NDI (36.212 section 5.3.3.1.3).
func TestDistributed(t *testing.T) {
	for _, prb := range []int{6, 15, 25, 50, 75, 100} {
		c := Cell{PRB: prb, Ports: 2}
		for _, second := range []bool{false, true}[:min(1+prb/50, 2)] {
			for n := 1; n <= c.virtualBlockCount(second); n++ {
				first := (c.virtualBlockCount(second) - n) / 2
				riv := prb*(n-1) + first // 36.213 section 7.1.6.3
				if n-1 > prb/2 {
					riv = prb*(prb-n+1) + prb - 1 - first
				}
				gap := 0
				if second {
					gap = 1
				}
				bits := fmt.Sprintf("11%0*b%05b000%b00", rivBitCount(prb), riv, 7, gap)
				d := DCI{RNTI: rntiSI, Format: cell.Format1A, Payload: make([]byte, c.dciFormatSizes(false)[cell.Format1A])}
				copy(d.Payload, toBits(bits))
				var want DCI
				c.setDistributed(&want, first, n, second)
				if !c.parseDCI(&d) || d.PRB != n || d.PRBs != want.PRBs {
					t.Errorf("%d PRB, gap %d: %d from %d read as %d", prb, gap, n, first, d.PRB)
				}
			}
		}
	}
}

// TestNoNumber checks that no word is accepted if soft bits or their statistics are NaN.
func TestNoNumber(t *testing.T) {
	c := Cell{PRB: 25, Ports: 1}
	b := newBlindDecoder(c, newCandidateSizes(c))
	best := func(soft []float32, gamma float64) []DCI {
		b.findings = b.findings[:0]
		var elements [8]cceStats
		for i := range 8 * regsPerCCE {
			elements[i/regsPerCCE].addBitGroup(gamma, soft[8*i:][:8])
		}
		b.tryLocation(soft, elements[:], cceLocation{0, 8, 8, 0})
		return newUserHistory().acceptFindings(b.findings)
	}
	d := DCI{RNTI: rntiSI, Format: cell.Format1A, Payload: toBits("1000000000000001000000000")}
	if !c.parseDCI(&d) {
		t.Fatal("no message")
	}
	coded := encodeTailBiting(appendMaskedCRC(slices.Clone(d.Payload), uint16(d.RNTI)), nil)
	order := rateMatchingOrder(len(coded) / codeStreams)
	soft := make([]float32, 8*bitsPerCCE)
	for i := range soft {
		soft[i] = 1 - 2*float32(coded[order[i%len(order)]])
	}
	nan := float32(math.NaN())
	if got := best(soft, 1); len(got) != 1 || got[0].RNTI != rntiSI || !slices.Equal(got[0].Payload, d.Payload) {
		t.Errorf("%+v", got)
	}
	if got := best(soft, math.NaN()); len(got) > 0 {
		t.Errorf("of unknown noise: %+v", got)
	}
	soft[3] = nan
	if got := best(soft, 1); len(got) > 0 {
		t.Errorf("with a bit that is no number: %+v", got)
	}
}

// TestElements checks for every width and PHICH that all groups are different, lie in the cell, and
// use each element once.
func TestElements(t *testing.T) {
	for _, prb := range []int{6, 15, 25, 50, 75, 100} {
		for _, six := range []int{1, 3, 6, 12} {
			for id := 0; id <= maxCellID; id += 7 {
				c := Cell{ID: id, PRB: prb, Ports: 2, PHICHSixths: six, ExtendedPHICH: id%2 == 1}
				if !c.isSupported() {
					t.Fatal(c)
				}
				seen := map[[2]int]bool{}
				pcfich := c.pcfichREGs()
				for _, r := range append(append(pcfich[:], c.phichREGs()...), c.pdcchREGs(3)...) {
					for _, k := range c.dataSubcarriers(r) {
						at := [2]int{k, r.l}
						if seen[at] || k < 0 || k >= c.subcarrierCount() || r.l >= c.controlSymbols(3) {
							t.Fatalf("%+v: element %v", c, at)
						}
						seen[at] = true
					}
				}
			}
		}
	}
}
