package lte

import "slices"

// maxPSSPeaks is how many places and sequences of PSS are looked at for more than one cell.
const maxPSSPeaks = 8

// FindCells finds the cells in some frames of samples, rate in a second, the strongest
// first, whose MIB can be read twice. Of cells besides the strongest it finds such as
// begin their slots when that does, as those of one site do, and that are a few dB
// weaker at most.
func FindCells(rate int, samples []complex64) ([]Cell, error) {
	r, err := NewReceiver(rate)
	if err != nil {
		return nil, err
	}
	y := decimate(samples, r.fftSize/searchSize)
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
	for _, offset := range [...]float64{0, subcarrierSpacing, -2 * subcarrierSpacing} { // as beyond does
		rotateCarrier(y, offset)
		if all := r.findCellsIn(y); len(all) > 0 {
			return all, nil
		}
	}
	return nil, nil
}

// findCellsIn are those in y, at searchSize, whose carrier is off by less than half of a
// subcarrier.
func (r *Receiver) findCellsIn(y []complex128) (all []Cell) {
	_, slot := removeCarrierOffset(y)
	tried := map[int]bool{}
	for range maxPSSPeaks {
		at, id2, _ := r.searcher.findPSS(y, slot, anyCell, tried)
		if id2 < 0 {
			break
		}
		for d := -2; d <= 2; d++ {
			tried[(at+d)*3+id2] = true
		}
		id, second, _ := r.searcher.findSSS(y, at, id2, anyCell, symbolStart(searchSize, pssSymbol)-symbolStart(searchSize, sssSymbol))
		start := at - symbolStart(searchSize, pssSymbol)
		if second {
			start -= halfFrame
		}
		m, frames, ok := readFirstMIB(y, start, id, 1, 2)
		if !ok || !m.cell.isValid() || slices.Contains(all, m.cell) {
			continue
		}
		// Twice, as the CRC of one is right by chance now and then.
		again, more, ok := readFirstMIB(y, start+(frames+1)*2*halfFrame, id, 1, 2)
		if ok && again.cell == m.cell && again.sfn == (m.sfn+more+1)%1024 {
			all = append(all, m.cell)
		}
	}
	return all
}
