// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"cmp"
	options "flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var seeds = options.Int("seeds", 0, "how often TestReference adds noise to each vector; else once to two of them")

// referenceAgreement is the part of the soft bits' weight that a word must explain in the reference
// search, by level.
var referenceAgreement = map[int]float64{1: .92, 2: .85, 4: .75, 8: .70}

// searchExhaustively is the plain search that produced the results of the vectors: one subframe at
// a time, without knowledge of noise or users. soft has bits that weigh 1 in the mean of a full CCE
// without noise.
func (b *blindDecoder) searchExhaustively(soft []float32, cces, subframe int) (out []DCI) {
	var all []DCI
	for _, level := range aggregationLevels {
		for first := 0; first+level <= cces; first += level {
			bits := soft[first*bitsPerCCE : (first+level)*bitsPerCCE]
			var weight float32
			full := true
			for i := range level {
				var one float32
				for _, s := range bits[i*bitsPerCCE : (i+1)*bitsPerCCE] {
					one += max(s, -s)
				}
				full = full && one/bitsPerCCE >= 0.3
				weight += one
			}
			for i := range b.candidateSizes {
				a := &b.candidateSizes[i]
				common := len(a.commonFormats) > 0 && inCommonSpace(level, first, cces)
				if !full || len(a.userFormats) == 0 && !common {
					continue
				}
				agreement := b.decodeWord(bits, weight, a, 0)
				if agreement < referenceAgreement[level] {
					continue
				}
				if d, ok := b.interpretWord(a, cceLocation{first, level, cces, subframe}, common); ok {
					d.Agreement, d.Payload = agreement, slices.Clone(b.word[:a.size])
					all = append(all, d)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(x, y DCI) int {
		return cmp.Or(cmp.Compare(y.Level, x.Level), cmp.Compare(y.Agreement, x.Agreement))
	})
	taken := make([]bool, cces)
	for _, d := range all {
		if own := taken[d.CCE : d.CCE+d.Level]; !slices.Contains(own, true) {
			for i := range own {
				own[i] = true
			}
			out = append(out, d)
		}
	}
	return out
}

// addNoise returns the samples of the vector with noise added for an SNR. Its elements have a power
// of 0.04; that of two faded ports is derived from the noise of those vectors that differ in
// nothing else.
func (v vector) addNoise(snr float64, seed uint64) []complex64 {
	power := 0.04
	if v.cell.Ports == 2 {
		power = 0.05128
	}
	level := math.Sqrt(power * (math.Pow(10, -snr/10) - math.Pow(10, -v.snr/10)) / 2)
	rnd := rand.New(rand.NewPCG(seed, 11))
	out := slices.Clone(v.samples)
	for i := range out {
		out[i] += complex64(complex(rnd.NormFloat64()*level, rnd.NormFloat64()*level))
	}
	return out
}

// score counts messages: all that were sent, and the right and false ones of both searches.
type score struct{ all, ours, oursFalse, theirs, theirsFalse int }

func (s *score) add(o score) {
	s.all += o.all
	s.ours, s.oursFalse = s.ours+o.ours, s.oursFalse+o.oursFalse
	s.theirs, s.theirsFalse = s.theirs+o.theirs, s.theirsFalse+o.theirsFalse
}

// scoreSamples runs both searches over the same soft bits.
func (v vector) scoreSamples(t *testing.T, samples []complex64) (s score) {
	return scoreAgainst(t, v.cell, v.size, v.truth(t), samples)
}

// scoreAgainst scores both searches against the truth.
func scoreAgainst[M any](t *testing.T, c Cell, size int, truth map[string]M, samples []complex64) (s score) {
	s.all = len(truth)
	r, err := NewReceiver(size * subcarrierSpacing)
	if err != nil {
		t.Fatal(err)
	}
	var plain *blindDecoder
	var ours []DCI
	r.OnSubframe = func(sub *Subframe) { ours = sub.DCIs }
	r.Dispatch = func(w *DecodeTask) {
		w.Decode()
		r.Finish(w)
		if plain == nil {
			plain = newBlindDecoder(c, w.decoder.candidateSizes)
		}
		noise := float64(c.Ports)*w.noise/w.softener.meanPower*1.2 + 0.005 // as computeSoftBits scales them
		soft := slices.Clone(w.bits)
		for i := range soft {
			soft[i] *= float32(noise / 2)
		}
		count := func(dcis []DCI, right, wrong *int) {
			for i := range dcis {
				if _, ok := truth[dcis[i].key(&w.subframe)]; ok {
					*right++
				} else {
					*wrong++
				}
			}
		}
		count(ours, &s.ours, &s.oursFalse)
		count(plain.searchExhaustively(soft, w.subframe.CCEs, w.subframe.Index), &s.theirs, &s.theirsFalse)
	}
	r.Feed(samples)
	r.Close()
	return s
}

// TestReference checks that in much noise the receiver finds at least as much as the reference
// search, with far fewer false messages.
func TestReference(t *testing.T) {
	all := readVectors(t)
	for _, v := range all {
		if v.snr == 10 {
			t.Logf("%s: %+v", v.name, v.scoreSamples(t, v.samples))
		}
	}
	for _, snr := range []float64{10, 5} {
		var sum score
		for _, v := range all {
			if v.snr < 15 || *seeds == 0 && (v.cell.PRB != 25 || v.snr > 20) {
				continue
			}
			var of score
			for seed := range max(*seeds, 1) {
				of.add(v.scoreSamples(t, v.addNoise(snr, uint64(seed))))
			}
			t.Logf("%s at %v dB: %+v", v.name, snr, of)
			sum.add(of)
		}
		if t.Logf("all at %v dB: %+v", snr, sum); sum.ours < sum.theirs || sum.oursFalse*10 > sum.theirsFalse {
			t.Errorf("at %v dB: worse than the reference", snr)
		}
	}
}
