package lte

// Subframe is what was heard in one subframe of a cell.
type Subframe struct {
	// Cell is which was heard.
	Cell Cell
	// SFN and Index number it: 0 to 1023, 0 to 9.
	SFN, Index int
	// Gap says that its number need not follow that of the last one by the time between
	// them: a cell was found, or samples are missing.
	Gap bool
	// Start is the sample where it begins.
	Start int64
	// CFI is how many symbols the control channels took; in cells of up to 10 PRB one
	// less.
	CFI int
	// CCEs is how many control channel elements there were.
	CCEs int
	// DCIs are the messages, in no order.
	DCIs []DCI
	// Offset is how much the carrier was off, in Hz.
	Offset float64
	// SNR is the signal's power per element over the noise's, in dB.
	SNR float64
}

// decoder is what is known of one cell: how it is laid out, which does not change
// and so is shared by all works, and what was heard of it so far.
type decoder struct {
	cell     Cell
	size     int
	est      *estimator
	attempts []attempt
	pcfich   [4]reg
	pdcch    [4][]reg // by CFI
	// Scrambling, by subframe.
	scramblePCFICH [10][]byte
	scramblePDCCH  [10][]byte

	noise   float64 // of an element, smoothed; 0 before the first subframe
	history *history
	words   int     // that were decoded
	spare   []*Work // that are on no way
	mibs    *mibReader
	row     []complex128 // of a symbol
}

func newDecoder(c Cell, size int) *decoder {
	d := &decoder{cell: c, size: size, est: newEstimator(c), attempts: newAttempts(c), pcfich: c.pcfich(), history: newHistory()}
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

// work is a spare one.
func (d *decoder) work() *Work {
	n := len(d.spare)
	if n == 0 {
		return newWork(d)
	}
	w := d.spare[n-1]
	d.spare = d.spare[:n-1]
	return w
}

// noiseGain is how much of what a subframe says about the noise is believed:
// narrow cells have few reference signals.
const noiseGain = 0.1

// follow is told what a subframe says about time and carrier, and tells its work of
// the noise. It must be called in order.
func (d *decoder) follow(w *Work, t tracking) {
	switch {
	case d.noise == 0:
		d.noise = t.noise
	case w.sub.SNR > lostSNR:
		d.noise += noiseGain * (t.noise - d.noise)
	}
	w.noise = d.noise
}

// done ends what Work.Decode began: of the words that were found in a subframe
// those are its messages that are believed after what was heard before. It must be
// called in order.
func (d *decoder) done(w *Work) {
	d.words += w.blind.words
	w.sub.DCIs = d.history.believe(w.blind.found)
}
