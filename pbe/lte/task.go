// SPDX-License-Identifier: Apache-2.0

package lte

import "math"

// DecodeTask is one subframe on its way through a Receiver. The receiver cuts it out and tracks
// time and carrier, in order. Decode, which is most of the work, depends on no other subframe.
// Receiver.Finish accepts the messages, in order again.
type DecodeTask struct {
	decoder  *cellDecoder // Decode only reads its constant parts
	subframe Subframe
	samples  []complex64 // all control symbols
	noise    float64     // power per element

	demodulator  *demodulator
	estimator    *channelEstimator
	softener     softener
	blindDecoder *blindDecoder
	grid         *grid
	bits         []float32
	cces         []cceStats
}

func newDecodeTask(d *cellDecoder) *DecodeTask {
	n := d.cell.subcarrierCount()
	return &DecodeTask{decoder: d, demodulator: newDemodulator(d.fftSize, n), estimator: d.estimator.cloneEstimator(),
		blindDecoder: newBlindDecoder(d.cell, d.candidateSizes), grid: newResourceGrid(n, 0, 1, 2, 3, 4, 7),
		softener: softener{cell: d.cell, channel: [2][]complex128{make([]complex128, n), make([]complex128, n)}}}
}

// Subframe returns the subframe. It is complete when the Receiver passes it to OnSubframe.
func (w *DecodeTask) Subframe() *Subframe { return &w.subframe }

// trackSubframe copies the samples of a subframe with its Index set and measures its time and
// carrier. offset is the carrier offset in cycles per sample.
func (w *DecodeTask) trackSubframe(samples []complex64, offset float64) trackingResult {
	w.samples = append(w.samples[:0], samples[:symbolStart(w.demodulator.fftSize, 5)]...)
	w.demodulator.setCarrierOffset(offset)
	for _, l := range []int{0, 7} {
		w.demodulator.demodulateSymbol(samples, l, w.grid[l])
	}
	t := w.estimator.trackReference(w.grid, w.subframe.Index)
	w.subframe.SNR = 10 * math.Log10(max(t.signal, 1e-12)/max(t.noise, 1e-12))
	return t
}

// Decode finds the candidate messages of the subframe. It may run on any goroutine, concurrently
// with other tasks.
func (w *DecodeTask) Decode() {
	w.demodulateSymbols(4, 5)
	w.estimateChannels()
	w.readSubframeCFI()
	w.demodulateSymbols(1, min(w.decoder.cell.controlSymbols(w.subframe.CFI), 4))
	w.computeSoftBits()
	w.blindDecoder.searchSubframe(w.bits, w.cces, w.subframe.Index)
}

// demodulateSymbols computes the subcarriers of the symbols from first to before end.
func (w *DecodeTask) demodulateSymbols(first, end int) {
	for l := first; l < end; l++ {
		w.demodulator.demodulateSymbol(w.samples, l, w.grid[l])
	}
}

// estimateChannels estimates the channels of all ports.
func (w *DecodeTask) estimateChannels() {
	for port := range w.decoder.cell.Ports {
		w.estimator.estimateChannel(w.grid, port, 0, 2*w.subframe.Index, w.softener.channel[port])
	}
	w.softener.measurePower()
}

// readSubframeCFI decodes the CFI.
func (w *DecodeTask) readSubframeCFI() {
	w.bits = w.bits[:0]
	for _, r := range w.decoder.pcfich {
		w.bits = w.softener.appendGroupBits(w.grid, r, w.bits)
	}
	w.subframe.CFI = likeliestCFI(w.bits, w.decoder.scramblePCFICH[w.subframe.Index])
}

// computeSoftBits computes the soft bits of all CCEs.
func (w *DecodeTask) computeSoftBits() {
	d := w.decoder
	groups := d.pdcch[w.subframe.CFI]
	w.subframe.CCEs = len(groups) / regsPerCCE
	w.bits, w.cces = w.bits[:0], w.cces[:0]
	scramble := d.scramblePDCCH[w.subframe.Index]
	// Noise relative to the power of a bit; estimation errors count as noise.
	noise := float64(d.cell.Ports)*w.noise/w.softener.meanPower*1.2 + 0.005
	for cce := range w.subframe.CCEs {
		var e cceStats
		for _, r := range groups[cce*regsPerCCE:][:regsPerCCE] {
			from := len(w.bits)
			w.bits = w.softener.appendGroupBits(w.grid, r, w.bits)
			for i := from; i < len(w.bits); i++ {
				w.bits[i] *= float32(2 / noise)
				if scramble[i] == 1 {
					w.bits[i] = -w.bits[i]
				}
			}
			e.addBitGroup(w.softener.relativePower(r)/noise, w.bits[from:])
		}
		w.cces = append(w.cces, e)
	}
}
