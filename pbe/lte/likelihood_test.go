// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"math/rand/v2"
	"testing"

	"mpbond/pbe/cell"
)

var likelihoodCell = Cell{ID: 302, PRB: 50, Ports: 2, PHICHSixths: 6}

// randomStream returns n subframes of random messages to some users, and the keys of these.
func randomStream(c Cell, size, n int, seed uint64, users int) (*transmitter, map[string]int) {
	tx := newTransmitter(c, size, seed)
	for len(tx.rntis) < users {
		tx.rntis = append(tx.rntis, cell.RNTI(0x100+tx.rnd.IntN(0xF000)))
	}
	for i := range n {
		tx.subframe(500+i/10, i%10, 1+i%3)
	}
	truth := map[string]int{}
	for _, s := range tx.sent {
		truth[s.d.key(&Subframe{SFN: 500 + s.subframe/10, Index: s.subframe % 10})] = s.d.Level
	}
	return tx, truth
}

// sweepSize returns how many subframes to generate, and with which seed; -seeds selects the size of
// the tables in docs/explanation/decoder.md.
func sweepSize() (subframes int, seed uint64) {
	if *seeds > 0 {
		return 200, 5 + uint64(*seeds)
	}
	return 40, 5
}

// TestPower checks that a PDCCH that is weaker or stronger than the reference signals is decoded as
// well as by the plain search, which ignores these.
func TestPower(t *testing.T) {
	n, seed := sweepSize()
	snrs := []float64{15}
	if *seeds > 0 {
		snrs = []float64{10, 15, 20, 25}
	}
	for _, snr := range snrs {
		for _, db := range []float64{3, -3, -6} {
			tx, truth := randomStream(likelihoodCell, 1024, n, seed, 4)
			tx.gain = db
			s := scoreAgainst(t, likelihoodCell, 1024, truth, tx.transmitThrough(t, NewEPAChannel(5, 500, snr, 3)))
			if t.Logf("SNR %v dB, PDCCH %+v dB: %+v", snr, db, s); snr >= 15 && (s.ours < s.theirs || s.oursFalse > 0) {
				t.Error("worse than the plain search")
			}
		}
	}
}

// TestNeighbour checks that under a second cell of the same timing, which is less even than noise,
// more is decoded than by the plain search, with hardly any false message.
func TestNeighbour(t *testing.T) {
	n, seed := sweepSize()
	dbs := []float64{-8}
	if *seeds > 0 {
		dbs = []float64{-6, -10, -15}
	}
	for _, id := range []int{303, 308} { // with other and with the same reference signal positions
		for _, db := range dbs {
			other, _ := randomStream(Cell{ID: id, PRB: 50, Ports: 2, PHICHSixths: 6}, 1024, n, 77, 4)
			tx, truth := randomStream(likelihoodCell, 1024, n, seed, 4)
			x, y := tx.transmitThrough(t, NewEPAChannel(5, 500, 25, 3)),
				other.transmitThrough(t, NewEPAChannel(5, 500, 40, 9))
			g := complex64(complex(math.Pow(10, db/20), 0))
			for i := range x {
				x[i] += g * y[i]
			}
			s := scoreAgainst(t, likelihoodCell, 1024, truth, x)
			if t.Logf("cell %d at %v dB: %+v", id, db, s); s.ours < s.theirs || s.oursFalse > s.all/100 {
				t.Error("worse than the plain search")
			}
		}
	}
}

// TestUsersWithOneMessage checks that users with a single message are decoded from 15 dB on, at
// level 1 too.
func TestUsersWithOneMessage(t *testing.T) {
	n, seed := sweepSize()
	snrs, sizes := []float64{15}, map[int]int{25: 512}
	if *seeds > 0 {
		snrs, sizes = []float64{10, 15, 20, 30}, map[int]int{25: 512, 50: 1024, 100: 2048}
	}
	for prb, size := range sizes {
		for _, snr := range snrs {
			c := Cell{ID: 302, PRB: prb, Ports: 2, PHICHSixths: 6}
			tx, truth := randomStream(c, size, n, seed, 3000)
			s := scoreAgainst(t, c, size, truth, tx.transmitThrough(t, NewEPAChannel(5, 500, snr, 3)))
			if t.Logf("%d PRB at %v dB: %+v", prb, snr, s); snr >= 15 && s.ours < s.all || s.oursFalse > s.all/100 {
				t.Error("not all received")
			}
		}
	}
}

// TestEvidence checks that for locations without a message, with noise or words of another cell,
// the likelihood gain of the best word is below the number of words to choose from, at any level
// and size.
func TestEvidence(t *testing.T) {
	n := 20
	if *seeds > 0 {
		n = 400
	}
	b := newBlindDecoder(likelihoodCell, newCandidateSizes(likelihoodCell))
	for _, kind := range []string{"noise", "others"} {
		for _, a := range b.candidateSizes {
			for _, level := range aggregationLevels {
				rnd := rand.New(rand.NewPCG(4, 4))
				var sum, squares float64
				most := math.Inf(-1)
				for range n {
					soft := make([]float32, level*bitsPerCCE)
					elements := make([]cceStats, level)
					for i := range soft {
						soft[i] = float32(rnd.NormFloat64())
						if kind == "others" {
							soft[i] = float32(math.Copysign(1, float64(soft[i])))
						}
					}
					for i := range level * regsPerCCE {
						elements[i/regsPerCCE].addBitGroup(1, soft[8*i:][:8])
					}
					see := measureLocation(elements)
					agreement := b.decodeWord(soft, float32(2*see.weight), &a, 0)
					odds := see.likelihoodGain(soft, b.coded, a.rateMatching,
						agreement) - float64(a.size+crcBits)*math.Ln2
					sum, squares, most = sum+odds, squares+odds*odds, max(most, odds)
				}
				mean := sum / float64(n)
				t.Logf("%s, %d bits at level %d: %.1f, deviation %.1f, at most %.1f", kind, a.size+crcBits, level,
					mean, math.Sqrt(squares/float64(n)-mean*mean), most)
				if mean > -2 || most > 12 {
					t.Error("too much")
				}
			}
		}
	}
}

// TestHalf checks that a word is not accepted for a location of which it fills only half, however
// clear it is.
func TestHalf(t *testing.T) {
	b := newBlindDecoder(likelihoodCell, newCandidateSizes(likelihoodCell))
	rnd := rand.New(rand.NewPCG(1, 1))
	a := b.candidateSizes[0]
	payload := make([]byte, a.size)
	coded := encodeTailBiting(appendMaskedCRC(payload, 100), nil)
	soft := make([]float32, 8*bitsPerCCE)
	elements := make([]cceStats, 8)
	for i := range soft {
		soft[i] = 1 - 2*float32(coded[a.rateMatching[i%len(a.rateMatching)]])
	}
	evidence := func() float64 {
		clear(elements)
		for i := range 8 * regsPerCCE {
			elements[i/regsPerCCE].addBitGroup(1, soft[8*i:][:8])
		}
		see := measureLocation(elements)
		return see.likelihoodGain(soft, coded, a.rateMatching, b.decodeWord(soft, float32(2*see.weight), &a, 0))
	}
	if all := evidence(); all < 8*bitsPerCCE*math.Ln2*0.99 {
		t.Errorf("%v for a clear word", all)
	}
	for i := range soft[4*bitsPerCCE:] {
		soft[4*bitsPerCCE+i] = 1 - 2*float32(rnd.IntN(2))
	}
	if half := evidence(); half != 0 {
		t.Errorf("%v for half a word", half)
	}
}

// TestAlike checks that a sent word seldom explains less than expected, for soft bits of any power.
func TestAlike(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	for _, gamma := range []float64{0.5, 2, 4, 10, 1000} {
		under := 0
		const n = 1000
		for range n {
			soft := make([]float32, bitsPerCCE)
			var fit, all float64
			for i := range soft {
				x := 2*gamma + 2*math.Sqrt(gamma)*rnd.NormFloat64()
				soft[i], fit, all = float32(x), fit+x, all+math.Abs(x)
			}
			elements := make([]cceStats, 1)
			for g := range regsPerCCE {
				elements[0].addBitGroup(4*gamma, soft[8*g:][:8]) // 6 dB below the reference signals
			}
			see := measureLocation(elements)
			if expected := see.expectedFit(elements); fit/all < expected {
				under++
			} else if gamma == 1000 && expected < 0.9 {
				t.Errorf("%v expected of what is clear", expected)
			}
		}
		if under > n/200 {
			t.Errorf("γ %v: %d of %d explain less", gamma, under, n)
		}
	}
}

// TestHistory checks that users with accepted messages, or guessed in another subframe, need less
// evidence for a while.
func TestHistory(t *testing.T) {
	word := func(r cell.RNTI, odds float64) *finding {
		return &finding{dci: DCI{RNTI: r}, logOdds: odds, isCertain: odds >= acceptOdds}
	}
	h := newUserHistory()
	h.advanceSubframe()
	h.acceptedAt[100] = h.now
	if !h.acceptFinding(word(100, -5)) || h.acceptFinding(word(200, -1)) || h.acceptFinding(word(200, -1)) ||
		!h.acceptFinding(word(300, 3)) {
		t.Error("at once")
	}
	h.advanceSubframe()
	if !h.acceptFinding(word(200, 0)) || h.acceptFinding(word(200, -8)) {
		t.Error("a guess is not remembered for what it is")
	}
	for range guessMemory {
		h.advanceSubframe()
	}
	if h.acceptFinding(word(200, -1)) || !h.acceptFinding(word(100, -5)) {
		t.Error("after 20 subframes")
	}
	for range 3 * userMemory {
		h.advanceSubframe()
	}
	if h.acceptFinding(word(100, -5)) || len(h.acceptedAt) > 0 || len(h.guesses) > 1 {
		t.Error("remembered for ever")
	}
}
