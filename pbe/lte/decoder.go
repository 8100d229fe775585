package lte

import "math"

// Subframe is what was heard in one subframe of a cell.
type Subframe struct {
	// SFN and Index number it: 0 to 1023, 0 to 9.
	SFN, Index int
	// Start is the sample where it begins.
	Start int64
	// CFI is how many symbols the control channels took; in cells of up to 10 PRB one
	// less.
	CFI int
	// CCEs is how many control channel elements there were.
	CCEs int
	// DCIs are the messages, in no order.
	DCIs []DCI
	// SNR is the signal's power per element over the noise's, in dB.
	SNR float64
}

// noiseGain is how much of what a subframe says about the noise is believed:
// narrow cells have few reference signals.
const noiseGain = 0.1

// decoder decodes the subframes of one cell.
type decoder struct {
	cell   Cell
	demod  *demodulator
	est    *estimator
	soft   softener
	blind  *blind
	grid   *grid
	pcfich [4]reg
	pdcch  [4][]reg // by CFI
	// Scrambling, by subframe.
	scramblePCFICH [10][]byte
	scramblePDCCH  [10][]byte
	bits           []float32
	elements       []element
	noise          float64 // of an element, smoothed; 0 before the first subframe
}

func newDecoder(c Cell, size int) *decoder {
	n := c.subcarriers()
	d := &decoder{cell: c, demod: newDemodulator(size, n), est: newEstimator(c), blind: newBlind(c), grid: newGrid(n, 0, 1, 2, 3, 4, 7), pcfich: c.pcfich(),
		soft: softener{cell: c, channel: [2][]complex128{make([]complex128, n), make([]complex128, n)}}}
	for cfi := 1; cfi <= 3; cfi++ {
		d.pdcch[cfi] = c.pdcch(cfi)
	}
	for sf := range 10 {
		d.scramblePCFICH[sf] = make([]byte, cfiLen)
		gold(pcfichInit(c.ID, sf), d.scramblePCFICH[sf])
		d.scramblePDCCH[sf] = make([]byte, 8*len(d.pdcch[3]))
		gold(pdcchInit(c.ID, sf), d.scramblePDCCH[sf])
	}
	return d
}

// track looks at a subframe for its time and carrier only.
func (d *decoder) track(samples []complex64, subframe int, offset float64) tracking {
	for _, l := range []int{0, 7} {
		d.demod.symbol(samples, l, offset, d.grid[l])
	}
	return d.est.track(d.grid, subframe)
}

// decode fills s, whose Index is set, from its samples. offset is the carrier's,
// in cycles per sample.
func (d *decoder) decode(samples []complex64, offset float64, s *Subframe) tracking {
	t := d.track(samples, s.Index, offset)
	if d.noise == 0 {
		d.noise = t.noise
	}
	d.noise += noiseGain * (t.noise - d.noise)
	s.SNR = 10 * math.Log10(max(t.signal, 1e-12)/max(t.noise, 1e-12))
	d.demod.symbol(samples, 4, offset, d.grid[4])
	for port := range d.cell.Ports {
		d.est.estimate(d.grid, port, 0, 2*s.Index, d.soft.channel[port])
	}
	d.soft.measure()
	d.bits = d.bits[:0]
	for _, r := range d.pcfich {
		d.bits = d.soft.group(d.grid, r, d.bits)
	}
	s.CFI, _ = cfi(d.bits, d.scramblePCFICH[s.Index])
	for l := 1; l < d.cell.symbols(s.CFI); l++ {
		if l != 4 {
			d.demod.symbol(samples, l, offset, d.grid[l])
		}
	}
	groups := d.pdcch[s.CFI]
	s.CCEs = len(groups) / cceREGs
	d.bits, d.elements = d.bits[:0], d.elements[:0]
	scramble := d.scramblePDCCH[s.Index]
	// Noise over the power of a bit; what the estimates lack counts as noise.
	noise := float64(d.cell.Ports)*d.noise/d.soft.mean*1.2 + 0.005
	for cce := range s.CCEs {
		var e element
		for _, r := range groups[cce*cceREGs:][:cceREGs] {
			from := len(d.bits)
			d.bits = d.soft.group(d.grid, r, d.bits)
			for i := from; i < len(d.bits); i++ {
				d.bits[i] *= float32(2 / noise)
				if scramble[i] == 1 {
					d.bits[i] = -d.bits[i]
				}
			}
			e.add(d.soft.power(r)/noise, d.bits[from:])
		}
		d.elements = append(d.elements, e)
	}
	s.DCIs = d.blind.search(d.bits, d.elements, s.Index, s.DCIs)
	return t
}
