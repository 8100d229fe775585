package lte

// Samples may be missing from a stream, as many as may be. What tells it:
//
//	reference signals that are not there, a delay   the next subframe does not begin where it
//	out of the blue, a MIB that cannot be read      should
//	an SFN that is another                          whole frames are missing
//
// In the first case the same cell is looked for anew, and only if it is not heard for
// long another one.
const (
	minFadeMisses      = 4    // subframes in turn without reference signals are no fade yet
	maxTrackedDelay    = 2e-6 // seconds; a delay of 11 µs looks like none
	maxUnreadMIBs      = 2    // MIBs in turn
	unreadPause        = 50   // after which it is looked for again because of them
	recheckInterval    = 20   // subframes until it is looked for again
	reacquireSubframes = 12   // subframes that are searched: one has the MIB
	cellChangeMIBs     = 2    // MIBs in turn that tell of another cell
)

// Counts tell what became of cells since the beginning.
type Counts struct {
	Found      int // cells, also the same one after it was lost
	Lost       int // cells that were given up
	Reacquired int // times that the cell was somewhere else: samples are missing
	SFNJumps   int // times that only its SFN was another: whole frames of samples are missing
	MIBs       int // that were read while a cell was followed
	UnreadMIBs int // that could not be read
}

// Counts are those since the beginning.
func (r *Receiver) Counts() Counts { return r.counts }

// recheckResult is what is done about a subframe without reference signals.
type recheckResult int

const (
	keepTracking recheckResult = iota // as if it had them
	needSamples                       // for more samples
	reacquired                        // there is another next one
)

// recheckCell asks whether the next subframe is where it should be, by its reference
// signals, if they were heard, and its delay.
func (r *Receiver) recheckCell(heard bool, delay float64, end bool) recheckResult {
	if r.recheckIn > 0 {
		r.recheckIn--
		return keepTracking
	}
	d, sub, at := r.decoder, subframeLen(r.fftSize), int(r.nextStart-r.firstSample)
	if heard && max(delay, -delay) < maxTrackedDelay && r.unreadMIBs < maxUnreadMIBs {
		return keepTracking
	}
	w := d.takeTask()
	defer func() { d.spareTasks = append(d.spareTasks, w) }()
	for k := 1; !heard && k < minFadeMisses; k++ {
		from := at + k*sub
		if from+sub > len(r.samples) {
			if end {
				return keepTracking
			}
			return needSamples
		}
		w.subframe.Index = (r.nextNumber + k) % 10
		if w.trackSubframe(r.samples[from:][:sub], r.cyclesPerSample()); w.subframe.SNR > lostSNR {
			return keepTracking
		}
	}
	window := r.samples[at:]
	if len(window) < reacquireSubframes*sub && !end {
		return needSamples
	}
	window = window[:min(len(window), reacquireSubframes*sub)]
	r.recheckIn = recheckInterval
	if r.unreadMIBs >= maxUnreadMIBs {
		r.unreadMIBs = -unreadPause
	}
	factor := r.fftSize / searchSize
	y := decimate(window, factor)
	rotateCarrier(y, r.carrierOffset)
	f, ok := r.searcher.searchCell(y, d.cell.ID)
	f.offset += r.carrierOffset
	if !ok || !f.mib.cell.isValid() || f.mib.cell.subcarrierCount() >= r.fftSize {
		return keepTracking
	}
	// Subframes from the next one to that of the MIB, as it is thought.
	until := (f.mib.sfn*10-r.nextNumber+3*frameCycle/2)%frameCycle - frameCycle/2
	if off := f.start*factor - until*sub; f.mib.cell == d.cell && max(off, -off) < r.fftSize/8 {
		return keepTracking
	}
	r.counts.Reacquired++
	r.dropSamples(at)
	r.lockToCell(f, factor)
	return reacquired
}

// frameCycle is the number of subframes after which SFN and index come again.
const frameCycle = 10240

// checkMIB reads the MIB in the subframe that w is of. It is false if the cell is
// another now, which is given up.
func (r *Receiver) checkMIB(w *DecodeTask, samples []complex64) bool {
	d := r.decoder
	m, ok := d.readMIB(w, samples)
	switch {
	case !ok:
		r.counts.UnreadMIBs++
		r.unreadMIBs++
		return true
	case m.cell == d.cell:
		r.unreadMIBs, r.otherCellMIBs = 0, 0
	default:
		if r.otherCellMIBs++; r.otherCellMIBs < cellChangeMIBs {
			return true
		}
		r.giveUpCell()
		return false
	}
	r.counts.MIBs++
	if m.sfn != w.subframe.SFN {
		r.counts.SFNJumps++
		r.gapBefore = true
		w.subframe.SFN = m.sfn
		r.nextNumber = m.sfn * 10
	}
	return true
}

// readFirstMIB reads the MIB in the subframe that w is of.
func (d *cellDecoder) readMIB(w *DecodeTask, samples []complex64) (mib, bool) {
	if d.mibReader == nil {
		d.mibReader = newMIBReader(d.cell.ID)
		d.symbolRow = make([]complex128, d.cell.subcarrierCount())
	}
	from := d.cell.subcarrierCount()/2 - pbchWidth/2
	copy(d.mibReader.grid[7], w.grid[7][from:])
	for l := 8; l <= 11; l++ {
		w.demodulator.demodulateSymbol(samples, l, d.symbolRow)
		copy(d.mibReader.grid[l], d.symbolRow[from:])
	}
	return d.mibReader.readMIB(w.subframe.SFN%4, d.cell.Ports)
}
