package lte

import "math"

// Work is one subframe on its way through a Receiver. It is cut out, and time and
// carrier are followed by it, in order; decoded, which needs no other one and is
// most of the work; and its words are believed or not, in order again.
type Work struct {
	decoder *decoder // of which Decode uses what does not change
	sub     Subframe
	samples []complex64 // with all control symbols
	noise   float64     // of an element

	demod    *demodulator
	est      *estimator
	soft     softener
	blind    *blind
	grid     *grid
	bits     []float32
	elements []element
}

func newWork(d *decoder) *Work {
	n := d.cell.subcarriers()
	return &Work{decoder: d, demod: newDemodulator(d.size, n), est: d.est.clone(), blind: newBlind(d.cell, d.attempts), grid: newGrid(n, 0, 1, 2, 3, 4, 7),
		soft: softener{cell: d.cell, channel: [2][]complex128{make([]complex128, n), make([]complex128, n)}}}
}

// Subframe is what was heard, all of it when the Receiver hands it to Heard.
func (w *Work) Subframe() *Subframe { return &w.sub }

// track takes the samples of a subframe whose Index is set, and looks at them for
// their time and carrier. offset is the carrier's, in cycles per sample.
func (w *Work) track(samples []complex64, offset float64) tracking {
	w.samples = append(w.samples[:0], samples[:symbolAt(w.demod.size, 5)]...)
	w.demod.tune(offset)
	for _, l := range []int{0, 7} {
		w.demod.symbol(samples, l, w.grid[l])
	}
	t := w.est.track(w.grid, w.sub.Index)
	w.sub.SNR = 10 * math.Log10(max(t.signal, 1e-12)/max(t.noise, 1e-12))
	return t
}

// Decode finds the words of the subframe's control channels. It may be called on
// any goroutine, at the same time as that of other works.
func (w *Work) Decode() {
	w.spectrum(4, 5)
	w.channels()
	w.control()
	w.spectrum(1, min(w.decoder.cell.symbols(w.sub.CFI), 4))
	w.soften()
	w.blind.search(w.bits, w.elements, w.sub.Index)
}

// spectrum makes subcarriers of the symbols from first to before end.
func (w *Work) spectrum(first, end int) {
	for l := first; l < end; l++ {
		w.demod.symbol(w.samples, l, w.grid[l])
	}
}

// channels estimates those from all ports.
func (w *Work) channels() {
	for port := range w.decoder.cell.Ports {
		w.est.estimate(w.grid, port, 0, 2*w.sub.Index, w.soft.channel[port])
	}
	w.soft.measure()
}

// control reads the CFI.
func (w *Work) control() {
	w.bits = w.bits[:0]
	for _, r := range w.decoder.pcfich {
		w.bits = w.soft.group(w.grid, r, w.bits)
	}
	w.sub.CFI = cfi(w.bits, w.decoder.scramblePCFICH[w.sub.Index])
}

// soften makes soft bits of all elements.
func (w *Work) soften() {
	d := w.decoder
	groups := d.pdcch[w.sub.CFI]
	w.sub.CCEs = len(groups) / cceREGs
	w.bits, w.elements = w.bits[:0], w.elements[:0]
	scramble := d.scramblePDCCH[w.sub.Index]
	// Noise over the power of a bit; what the estimates lack counts as noise.
	noise := float64(d.cell.Ports)*w.noise/w.soft.mean*1.2 + 0.005
	for cce := range w.sub.CCEs {
		var e element
		for _, r := range groups[cce*cceREGs:][:cceREGs] {
			from := len(w.bits)
			w.bits = w.soft.group(w.grid, r, w.bits)
			for i := from; i < len(w.bits); i++ {
				w.bits[i] *= float32(2 / noise)
				if scramble[i] == 1 {
					w.bits[i] = -w.bits[i]
				}
			}
			e.add(w.soft.power(r)/noise, w.bits[from:])
		}
		w.elements = append(w.elements, e)
	}
}
