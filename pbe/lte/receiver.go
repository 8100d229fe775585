package lte

import (
	"fmt"
	"math"

	"mpbond/base/fault"
)

// Bounds of the search for a cell, in subframes: how much is heard before each
// attempt, how much of that is kept for the next one, so that a frame's beginning is
// whole in one of them, and how much is kept at most.
const (
	searchInterval  = 21
	searchOverlap   = 11
	maxSearchBuffer = 63
)

// Tracking: how much of what a subframe says about time and carrier is believed,
// and after how many subframes without reference signals the cell is lost.
const (
	trackingGain    = 0.1
	lostAfterMisses = 50
	lostSNR         = -3 // dB
)

// Receiver finds a cell in a stream of samples and decodes its subframes, from
// the first whole one on, also of the time before the cell was found.
type Receiver struct {
	// OnSubframe is called with each subframe, which is the Receiver's again when it
	// returns; its DCIs may be kept.
	OnSubframe func(*Subframe)
	// Dispatch, if set, is handed the work of each subframe, in order, instead of its
	// being done at once. Whoever takes it calls Work.Decode, on any goroutine, and then
	// Done, with one work after the other in the order in which they were handed out, on
	// the goroutine that feeds: in Spread, or between Feeds, or after Close. What is heard
	// is the same, but Cell and Offset of the Receiver are ahead of the Subframe's.
	Dispatch func(*DecodeTask)

	fftSize         int
	samples         []complex64 // not yet used
	firstSample     int64       // number of the first of them
	dcOffset        dcOffset
	searchedSamples int // samples at the last search
	searcher        *searcher
	failedSearches  int // searches in turn
	obstacle        Obstacle

	decoder       *cellDecoder // nil while there is no cell
	nextStart     int64        // sample where the next subframe begins
	nextNumber    int          // of the next subframe, SFN·10 + index
	carrierOffset float64      // of the carrier, in Hz
	missScore     int          // subframes without reference signals, less two for each with
	missesInRow   int          // of them, the last in turn
	recheckIn     int          // subframes until the cell may be looked for where it is thought to be
	unreadMIBs    int          // MIBs in turn
	gapBefore     bool         // before the next subframe
	otherCellMIBs int          // MIBs in turn that tell of another cell
	counts        Counts
}

// NewReceiver takes rate samples per second: 1.92, 3.84, 7.68, 15.36, 23.04 or
// 30.72 million, as many as the cell's width needs or more.
func NewReceiver(rate int) (*Receiver, error) {
	switch rate / subcarrierSpacing {
	case 128, 256, 512, 1024, 1536, 2048:
		if rate%subcarrierSpacing == 0 {
			return &Receiver{fftSize: rate / subcarrierSpacing, searcher: newSearcher()}, nil
		}
	}
	return nil, fault.New(fault.Usage, fmt.Errorf("%d samples per second", rate), "LTE is heard at 1.92, 3.84, 7.68, 15.36, 23.04 or 30.72 million samples per second")
}

// Cell is the cell that is heard, if there is one.
func (r *Receiver) Cell() (Cell, bool) {
	if r.decoder == nil {
		return Cell{}, false
	}
	return r.decoder.cell, true
}

// Offset is how much the carrier is off, in Hz.
func (r *Receiver) Offset() float64 { return r.carrierOffset }

// Feed takes the next samples, which it copies, without their mean. One that is no
// number is taken for silence.
func (r *Receiver) Feed(samples []complex64) {
	for len(samples) > 0 {
		n := min(len(samples), maxSearchBuffer*subframeLen(r.fftSize)-len(r.samples))
		r.samples = append(r.samples, samples[:n]...)
		r.dcOffset.removeFrom(r.samples, len(r.samples)-n, subframeLen(r.fftSize))
		samples = samples[n:]
		r.processSamples(false)
	}
}

// Close says that there are no more samples. It does not wait for works that were handed
// to Spread: what is not Done is not heard. Of the last subframe the end may be
// missing, which is not looked at.
func (r *Receiver) Close() {
	r.processSamples(true)
	sub := subframeLen(r.fftSize)
	if n := len(r.samples); r.decoder != nil && n > sub*3/4 && n < sub {
		r.samples = append(r.samples, make([]complex64, sub-n)...)
		r.processSamples(true)
	}
}

func (r *Receiver) processSamples(end bool) {
	sub := subframeLen(r.fftSize)
	for {
		if r.decoder == nil && !r.searchForCell(end) {
			return
		}
		for r.decoder != nil && r.nextStart-r.firstSample+int64(sub) <= int64(len(r.samples)) && r.startNextSubframe(end) {
		}
		if r.decoder != nil {
			r.dropSamples(int(r.nextStart - r.firstSample))
			return
		}
	}
}

// dropSamples forgets the first n samples.
func (r *Receiver) dropSamples(n int) {
	n = min(max(n, 0), len(r.samples))
	r.samples = r.samples[:copy(r.samples, r.samples[n:])]
	r.firstSample += int64(n)
	r.searchedSamples = max(r.searchedSamples-n, 0)
}

// searchForCell looks for a cell if there is enough that was not yet searched.
func (r *Receiver) searchForCell(end bool) bool {
	sub := subframeLen(r.fftSize)
	if len(r.samples) == r.searchedSamples || !end && len(r.samples) < r.searchedSamples+searchInterval*sub {
		return false
	}
	r.searchedSamples = len(r.samples)
	factor := r.fftSize / searchSize
	y := decimate(r.samples, factor)
	seldom := r.failedSearches&(r.failedSearches-1) == 0 // for what takes as long as the search, or twice
	f, ok := r.searcher.searchCell(y, anyCell)
	if !ok && seldom {
		f, ok = r.searcher.searchFarOffsets(y, f.offset)
	}
	switch c := f.mib.cell; {
	case ok && c.isValid() && c.subcarrierCount() < r.fftSize:
		r.counts.Found++
		r.failedSearches = 0
		r.lockToCell(f, factor)
		return true
	case ok:
		r.obstacle = Obstacle{Reason: TooWide, Cell: c}
	case seldom:
		r.obstacle = r.searcher.diagnose(y)
	}
	r.failedSearches++
	// What is left goes together with what comes.
	r.dropSamples(len(r.samples) - searchOverlap*sub)
	return false
}

// lockToCell begins to follow the cell that was found, at the first whole subframe.
func (r *Receiver) lockToCell(f foundCell, factor int) {
	sub := subframeLen(r.fftSize)
	if r.decoder == nil || r.decoder.cell != f.mib.cell {
		r.decoder = newCellDecoder(f.mib.cell, r.fftSize)
	}
	r.carrierOffset, r.gapBefore = f.offset, true
	start := f.start * factor
	number := f.mib.sfn * 10
	w := r.decoder.takeTask()
	// Time to a sample, and the carrier to some Hz, from all subframes there are.
	for range 2 {
		var delay, offset, noise float64
		n, carriers := 0, 0
		for at, k := start%sub+sub, number-start/sub+1+10240; at+2*sub <= len(r.samples); at, k = at+sub, k+1 {
			w.subframe.Index = k % 10
			t := w.trackSubframe(r.samples[at:at+sub], r.cyclesPerSample())
			delay += t.delay
			noise += t.noise
			n++
			if !w.estimator.isMulticast {
				offset += t.offset
				carriers++
			}
		}
		if n == 0 {
			break
		}
		r.carrierOffset += offset / float64(max(carriers, 1))
		r.decoder.noise = noise / float64(n)
		if shift := delay / float64(n) * float64(r.fftSize*subcarrierSpacing); math.Abs(shift) < float64(r.fftSize) {
			start += int(math.Round(shift))
		}
	}
	r.decoder.spareTasks = append(r.decoder.spareTasks, w)
	// What is missing of the first subframe may be its first prefix, which is not
	// looked at.
	if spare := firstPrefixLen * r.fftSize / 256; start < 0 && start >= -spare {
		r.samples = append(make([]complex64, -start, len(r.samples)-start), r.samples...)
		r.firstSample += int64(start)
		start = 0
	}
	back := start / sub
	if start < 0 {
		back = -1
	}
	r.nextStart = r.firstSample + int64(max(start-back*sub, 0))
	r.nextNumber = ((number-back)%10240 + 10240) % 10240
	r.missScore, r.missesInRow, r.unreadMIBs, r.otherCellMIBs = 0, 0, 0, 0
}

// cyclesPerSample is the carrier's offset in cycles per sample.
func (r *Receiver) cyclesPerSample() float64 {
	return r.carrierOffset / float64(r.fftSize*subcarrierSpacing)
}

// startNextSubframe begins the work of the next one. It is false if more must be heard first.
func (r *Receiver) startNextSubframe(end bool) bool {
	d, samples := r.decoder, r.samples[r.nextStart-r.firstSample:][:subframeLen(r.fftSize)]
	w := d.takeTask()
	w.subframe = Subframe{Cell: d.cell, SFN: r.nextNumber / 10, Index: r.nextNumber % 10, Start: r.nextStart, Offset: r.carrierOffset}
	t := w.trackSubframe(samples, r.cyclesPerSample())
	// Of noise alone one in ten looks like a weak signal.
	heard := w.subframe.SNR > lostSNR
	if v := r.recheckCell(heard, t.delay, end); v != keepTracking {
		d.spareTasks = append(d.spareTasks, w)
		return v == reacquired
	}
	if !heard {
		r.missScore++
		r.missesInRow++
	} else {
		r.missScore, r.missesInRow = max(r.missScore-2, 0), 0
		if w.subframe.Index == 0 && !r.checkMIB(w, samples) {
			d.spareTasks = append(d.spareTasks, w)
			return true
		}
	}
	w.subframe.AfterGap, r.gapBefore = r.gapBefore, false
	d.smoothNoise(w, t)
	r.nextStart += int64(len(samples))
	if heard {
		r.carrierOffset += trackingGain * t.offset
		r.nextStart += r.timingCorrection(t.delay)
	}
	r.nextNumber = (r.nextNumber + 1) % 10240
	if r.missScore >= lostAfterMisses {
		r.giveUpCell()
		return true
	}
	if r.Dispatch != nil {
		r.Dispatch(w)
		return true
	}
	w.Decode()
	r.Finish(w)
	return true
}

// timingCorrection is by how many samples the next subframe begins later if this one did so by
// delay: none while the clock is less than half of one off, all but half of many.
func (r *Receiver) timingCorrection(delay float64) int64 {
	shift := delay * float64(r.fftSize*subcarrierSpacing)
	if !(math.Abs(shift) > 1.5) {
		return 0
	}
	return int64(math.Copysign(max(1, math.Abs(shift)/2), shift))
}

// giveUpCell gives the cell up.
func (r *Receiver) giveUpCell() {
	r.counts.Lost++
	r.decoder = nil
	r.dropSamples(int(r.nextStart - r.firstSample))
	r.searchedSamples = 0
}

// Finish ends the work of a subframe that was handed to Spread and decoded.
func (r *Receiver) Finish(w *DecodeTask) {
	w.decoder.acceptMessages(w)
	if r.OnSubframe != nil {
		r.OnSubframe(&w.subframe)
	}
	w.decoder.spareTasks = append(w.decoder.spareTasks, w)
}
