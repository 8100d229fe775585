// SPDX-License-Identifier: Apache-2.0

package lte

// A stream may lack any number of samples without notice. The signs are:
//
//	missing reference signals, a sudden delay,      the next subframe is not where it should be
//	an unreadable MIB
//	another SFN                                     whole frames are missing
//
// In the first case the receiver looks for the same cell nearby, and only if it stays away for
// another one.
const (
	minSearchMisses    = 4    // consecutive subframes without reference signals; fewer are a fade
	maxTrackedDelay    = 2e-6 // seconds; a delay of 11 µs aliases to none
	maxUnreadMIBs      = 2    // consecutive unreadable MIBs
	unreadPause        = 50   // MIBs after which they trigger a search again
	recheckInterval    = 20   // subframes between searches
	reacquireSubframes = 12   // subframes searched; one of them has the MIB
	cellChangeMIBs     = 2    // consecutive MIBs of another cell
)

// Counts counts events since the start.
type Counts struct {
	Found      int // cells found, including the same one after a loss
	Lost       int // cells given up
	Reacquired int // times the cell had another timing: samples are missing
	SFNJumps   int // times only the SFN jumped: whole frames are missing
	MIBs       int // MIBs decoded while following a cell
	UnreadMIBs int // MIBs that could not be decoded
}

// Counts returns the counts since the start.
func (r *Receiver) Counts() Counts { return r.counts }

// recheckResult is how to proceed with a subframe.
type recheckResult int

const (
	keepTracking recheckResult = iota // decode it
	needSamples                       // wait for more samples
	reacquired                        // the next subframe is elsewhere
)

// recheckCell checks whether the next subframe is where it should be: by its reference signals
// (hasSignal) and its delay.
func (r *Receiver) recheckCell(hasSignal bool, delay float64, end bool) recheckResult {
	if r.recheckIn > 0 {
		r.recheckIn--
		return keepTracking
	}
	d, sub, at := r.decoder, subframeLen(r.fftSize), int(r.nextStart-r.firstSample)
	if hasSignal && max(delay, -delay) < maxTrackedDelay && r.unreadMIBs < maxUnreadMIBs {
		return keepTracking
	}
	w := d.takeUnusedTask()
	defer func() { d.spareTasks = append(d.spareTasks, w) }()
	for k := 1; !hasSignal && k < minSearchMisses; k++ {
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
	y := decimateSamples(window, factor)
	rotateCarrier(y, r.carrierOffset)
	f, ok := r.searcher.searchCell(y, d.cell.ID, tonePSSFit)
	f.offset += r.carrierOffset
	if !ok || !f.mib.cell.isSupported() || !r.hasRoomFor(f.mib.cell) {
		return keepTracking
	}
	// Expected number of subframes from the next one to that of the MIB.
	until := (f.mib.sfn*10-r.nextNumber+3*frameCycle/2)%frameCycle - frameCycle/2
	if off := f.start*factor - until*sub; f.mib.cell == d.cell && max(off, -off) < r.fftSize/8 {
		return keepTracking
	}
	r.counts.Reacquired++
	r.dropSamples(at)
	r.lockToCell(f, factor)
	return reacquired
}

// frameCycle is the number of subframes after which SFN and index repeat.
const frameCycle = 10240

// confirmCellByMIB reads the MIB in the subframe of w. It returns false if another cell has taken
// over; it then gives up the cell.
func (r *Receiver) confirmCellByMIB(w *DecodeTask, samples []complex64) bool {
	d := r.decoder
	m, ok := d.readSubframeMIB(w, samples)
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

// readSubframeMIB reads the MIB in the subframe of w.
func (d *cellDecoder) readSubframeMIB(w *DecodeTask, samples []complex64) (mib, bool) {
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
	return d.mibReader.readGridMIB(w.subframe.SFN%4, d.cell.Ports)
}
