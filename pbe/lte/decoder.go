package lte

// Subframe is what was heard in one subframe of a cell.
type Subframe struct {
	// Cell is which was heard.
	Cell Cell
	// SFN and Index number it: 0 to 1023, 0 to 9.
	SFN, Index int
	// AfterGap says that its number need not follow that of the last one by the time between
	// them: a cell was found, or samples are missing.
	AfterGap bool
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

// cellDecoder is what is known of one cell: how it is laid out, which does not change
// and so is shared by all works, and what was heard of it so far.
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

	noise        float64 // of an element, smoothed; 0 before the first subframe
	history      *userHistory
	decodedWords int           // that were decoded
	spareTasks   []*DecodeTask // that are on no way
	mibReader    *mibReader
	symbolRow    []complex128 // of a symbol
}

func newCellDecoder(c Cell, size int) *cellDecoder {
	d := &cellDecoder{cell: c, fftSize: size, estimator: newChannelEstimator(c), candidateSizes: newCandidateSizes(c), pcfich: c.pcfichREGs(), history: newUserHistory()}
	for cfi := 1; cfi <= 3; cfi++ {
		d.pdcch[cfi] = c.pdcchREGs(cfi)
	}
	for sf := range 10 {
		d.scramblePCFICH[sf] = make([]byte, pcfichBits)
		goldSequence(pcfichInit(c.ID, sf), d.scramblePCFICH[sf])
		d.scramblePDCCH[sf] = make([]byte, 8*len(d.pdcch[3]))
		goldSequence(pdcchInit(c.ID, sf), d.scramblePDCCH[sf])
	}
	return d
}

// takeTask is a spare one.
func (d *cellDecoder) takeTask() *DecodeTask {
	n := len(d.spareTasks)
	if n == 0 {
		return newDecodeTask(d)
	}
	w := d.spareTasks[n-1]
	d.spareTasks = d.spareTasks[:n-1]
	return w
}

// noiseSmoothing is how much of what a subframe says about the noise is believed:
// narrow cells have few reference signals.
const noiseSmoothing = 0.1

// smoothNoise is told what a subframe says about time and carrier, and tells its work of
// the noise. It must be called in order.
func (d *cellDecoder) smoothNoise(w *DecodeTask, t trackingResult) {
	switch {
	case d.noise == 0:
		d.noise = t.noise
	case w.subframe.SNR > lostSNR:
		d.noise += noiseSmoothing * (t.noise - d.noise)
	}
	w.noise = d.noise
}

// acceptMessages ends what Work.Decode began: of the words that were found in a subframe
// those are its messages that are believed after what was heard before. It must be
// called in order.
func (d *cellDecoder) acceptMessages(w *DecodeTask) {
	d.decodedWords += w.blindDecoder.decodedWords
	w.subframe.DCIs = d.history.acceptFindings(w.blindDecoder.findings)
}
