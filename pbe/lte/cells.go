// SPDX-License-Identifier: Apache-2.0

package lte

import "slices"

// maxPSSPeaks is how many positions and sequences of PSS are tried to find more than one cell.
const maxPSSPeaks = 8

// FindCells finds the cells in some frames of samples, with rate samples per second, the strongest
// first. It reports a cell when its MIB has decoded twice. Besides the strongest cell it finds
// those with the same slot timing, such as those of one site, that are at most a few dB weaker.
func FindCells(rate int, samples []complex64) ([]Cell, error) {
	r, err := NewReceiver(rate)
	if err != nil {
		return nil, err
	}
	y := decimateSamples(samples, r.fftSize/searchSize)
	if len(y) < 4*halfFrame {
		return nil, nil
	}
	var mean complex128
	for _, v := range y {
		mean += v / complex(float64(len(y)), 0)
	}
	for i := range y {
		y[i] -= mean
	}
	if all := r.findCellsIn(y, 0); len(all) > 0 {
		return all, nil
	}
	for step := range farOffsets {
		rotateCarrier(y, float64(step)*subcarrierSpacing)
		if all := r.findCellsIn(y, farPSSFit); len(all) > 0 {
			return all, nil
		}
	}
	return nil, nil
}

// findCellsIn returns the cells in y, at searchSize, with carrier offsets below half a subcarrier and a least fit
// of the PSS.
func (r *Receiver) findCellsIn(y []complex128, minFit float64) (all []Cell) {
	_, slot := removeCarrierOffset(y)
	tried := map[int]bool{}
	for range maxPSSPeaks {
		at, id2, peak := r.searcher.findPSS(y, slot, anyCell, tried)
		if id2 < 0 || peak < minFit {
			break
		}
		for d := -2; d <= 2; d++ {
			tried[(at+d)*3+id2] = true
		}
		id, second, _ := r.searcher.findSSS(y, at, id2, anyCell,
			symbolStart(searchSize, pssSymbol)-symbolStart(searchSize, sssSymbol))
		start := at - symbolStart(searchSize, pssSymbol)
		if second {
			start -= halfFrame
		}
		m, frames, ok := readFirstMIB(y, start, id, 1, 2)
		if !ok || !m.cell.isSupported() || slices.Contains(all, m.cell) {
			continue
		}
		// Twice, because the CRC of one is sometimes right by chance.
		if isMIBRepeated(y, foundCell{mib: m, start: start + frames*2*halfFrame}) {
			all = append(all, m.cell)
		}
	}
	return all
}
