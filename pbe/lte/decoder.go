// SPDX-License-Identifier: Apache-2.0

package lte

// Subframe is the result of decoding one subframe of a cell.
type Subframe struct {
	// Cell is the cell of the subframe.
	Cell Cell
	// SFN (0 to 1023) and Index (0 to 9) number the subframe.
	SFN, Index int
	// AfterGap reports that the number need not follow the last one by the time between the two: a
	// cell was found, or samples are missing.
	AfterGap bool
	// Start is the number of its first sample.
	Start int64
	// CFI is the number of symbols of the control channels; one less in cells of up to 10 PRB.
	CFI int
	// CCEs is the number of control channel elements.
	CCEs int
	// DCIs are the messages, in no order.
	DCIs []DCI
	// Offset is the carrier frequency offset in Hz.
	Offset float64
	// SNR is the signal power per element over the noise power, in dB.
	SNR float64
}

// cellDecoder has the layout of one cell, which never changes and is shared by all tasks, and the
// state that is tracked from subframe to subframe.
type cellDecoder struct {
	cell           Cell
	fftSize        int
	estimator      *channelEstimator
	candidateSizes []candidateSize
	pcfich         [4]reg
	pdcch          [4][]reg // by CFI
	// Scrambling, by subframe.
	scramblePCFICH [10][]byte
	scramblePDCCH  [10][]byte

	noise        float64 // smoothed power per element; 0 before the first subframe
	history      *userHistory
	decodedWords int           // candidates that were decoded
	spareTasks   []*DecodeTask // not in use
	mibReader    *mibReader
	symbolRow    []complex128 // scratch: one symbol
}

func newCellDecoder(c Cell, size int) *cellDecoder {
	d := &cellDecoder{cell: c, fftSize: size, estimator: newChannelEstimator(c), candidateSizes: newCandidateSizes(c),
		pcfich: c.pcfichREGs(), history: newUserHistory()}
	for cfi := 1; cfi <= 3; cfi++ {
		d.pdcch[cfi] = c.pdcchREGs(cfi)
	}
	for sf := range 10 {
		d.scramblePCFICH[sf] = make([]byte, pcfichBits)
		goldSequence(pcfichInitState(c.ID, sf), d.scramblePCFICH[sf])
		d.scramblePDCCH[sf] = make([]byte, 8*len(d.pdcch[3]))
		goldSequence(pdcchInitState(c.ID, sf), d.scramblePDCCH[sf])
	}
	return d
}

// takeUnusedTask returns an unused task.
func (d *cellDecoder) takeUnusedTask() *DecodeTask {
	n := len(d.spareTasks)
	if n == 0 {
		return newDecodeTask(d)
	}
	w := d.spareTasks[n-1]
	d.spareTasks = d.spareTasks[:n-1]
	return w
}

// noiseSmoothing is the weight of the noise estimate of one subframe: narrow cells have few
// reference signals.
const noiseSmoothing = 0.1

// smoothNoise updates the noise estimate from a subframe's reference signals and sets it in w. Call
// it in the order of subframes.
func (d *cellDecoder) smoothNoise(w *DecodeTask, t trackingResult) {
	switch {
	case d.noise == 0:
		d.noise = t.noise
	case w.subframe.SNR > lostSNR:
		d.noise += noiseSmoothing * (t.noise - d.noise)
	}
	w.noise = d.noise
}

// acceptMessages completes a decoded subframe: it keeps the findings that are likely given the
// users of earlier subframes. Call it in the order of subframes.
func (d *cellDecoder) acceptMessages(w *DecodeTask) {
	d.decodedWords += w.blindDecoder.decodedWords
	w.subframe.DCIs = d.history.acceptFindings(w.blindDecoder.findings)
}
