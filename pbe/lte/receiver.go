// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"fmt"
	"math"

	"mpbond/base/fault"
)

// Bounds of the search for a cell, in subframes: how many samples arrive before each attempt, how
// many of them are kept for the next one, so that one of the two has the beginning of a frame, and
// how many are kept at most.
const (
	searchInterval  = 21
	searchOverlap   = 11
	maxSearchBuffer = 63
)

// Tracking: the weight of one subframe's time and carrier estimates, and the number of subframes
// without reference signals after which the cell is lost.
const (
	trackingGain    = 0.1
	lostAfterMisses = 50
	lostSNR         = -3 // dB
)

// Receiver finds a cell in a stream of samples and decodes its subframes, beginning with the first
// whole one, including those before the cell was found.
type Receiver struct {
	// OnSubframe is called with each subframe. The Receiver reuses it after the call; its DCIs may
	// be kept.
	OnSubframe func(*Subframe)
	// Dispatch, if set, receives the task of each subframe, in order, instead of it being decoded
	// at once. The recipient calls DecodeTask.Decode on any goroutine, and then Finish for one task
	// after the other in the order of dispatch. Finish must run on the goroutine that feeds: within
	// Dispatch, between calls of Feed, or after Close. The subframes are the same, but Cell and
	// Offset of the Receiver are ahead of those of the Subframe.
	Dispatch func(*DecodeTask)
	// Bandwidth is the width in Hz that the samples have, if it is less than their rate: wider cells are not
	// decoded. 0 stands for the rate.
	Bandwidth int

	fftSize         int
	samples         []complex64 // not yet processed
	firstSample     int64       // number of samples[0]
	dcOffset        dcOffset
	searchedSamples int // number of samples at the last search
	searcher        *searcher
	failedSearches  int // consecutive ones
	obstacle        Obstacle

	decoder       *cellDecoder // nil without a cell
	nextStart     int64        // first sample of the next subframe
	nextNumber    int          // SFN·10 + index of the next subframe
	carrierOffset float64      // in Hz
	missScore     int          // +1 for each subframe without reference signals, −2 for each with them
	missesInRow   int          // consecutive subframes without reference signals
	recheckIn     int          // subframes until recheckCell may act again
	unreadMIBs    int          // consecutive ones
	gapBefore     bool         // samples are missing before the next subframe
	otherCellMIBs int          // consecutive MIBs of another cell
	counts        Counts
}

// NewReceiver returns a receiver for rate samples per second: 1.92, 3.84, 5.76, 7.68, 11.52, 15.36, 23.04 or
// 30.72 million. The rate must be at least that of the cell's width.
func NewReceiver(rate int) (*Receiver, error) {
	switch rate / subcarrierSpacing {
	case 128, 256, 384, 512, 768, 1024, 1536, 2048:
		if rate%subcarrierSpacing == 0 {
			return &Receiver{fftSize: rate / subcarrierSpacing, searcher: newSearcher()}, nil
		}
	}
	return nil, fault.New(fault.Usage, fmt.Errorf("unsupported rate of %d samples per second", rate),
		"use 1.92, 3.84, 5.76, 7.68, 11.52, 15.36, 23.04 or 30.72 million samples per second")
}

// hasRoomFor reports whether the samples have the whole width of a cell.
func (r *Receiver) hasRoomFor(c Cell) bool {
	n := c.subcarrierCount()
	return n < r.fftSize && (r.Bandwidth == 0 || n*subcarrierSpacing <= r.Bandwidth)
}

// Cell returns the cell that is being decoded, if any.
func (r *Receiver) Cell() (Cell, bool) {
	if r.decoder == nil {
		return Cell{}, false
	}
	return r.decoder.cell, true
}

// Offset returns the carrier frequency offset in Hz.
func (r *Receiver) Offset() float64 { return r.carrierOffset }

// Feed copies and processes the next samples. It removes their mean and replaces NaN and infinite
// samples by 0.
func (r *Receiver) Feed(samples []complex64) {
	for len(samples) > 0 {
		n := min(len(samples), maxSearchBuffer*subframeLen(r.fftSize)-len(r.samples))
		r.samples = append(r.samples, samples[:n]...)
		r.dcOffset.removeFrom(r.samples, len(r.samples)-n, subframeLen(r.fftSize))
		samples = samples[n:]
		r.processSamples(false)
	}
}

// Close processes the remaining samples. It does not wait for dispatched tasks: subframes without
// Finish are lost. The unused end of the last subframe may be missing.
func (r *Receiver) Close() {
	r.processSamples(true)
	sub := subframeLen(r.fftSize)
	if n := len(r.samples); r.decoder != nil && n > sub*3/4 && n < sub {
		r.samples = append(r.samples, make([]complex64, sub-n)...)
		r.processSamples(true)
	}
}

// processSamples searches for a cell or decodes subframes, as far as the samples reach. end means
// that there are no more samples.
func (r *Receiver) processSamples(end bool) {
	sub := subframeLen(r.fftSize)
	for {
		if r.decoder == nil && !r.searchForCell(end) {
			return
		}
		for r.decoder != nil && r.nextStart-r.firstSample+int64(sub) <= int64(len(r.samples)) &&
			r.startNextSubframe(end) {
		}
		if r.decoder != nil {
			r.dropSamples(int(r.nextStart - r.firstSample))
			return
		}
	}
}

// dropSamples removes the first n samples.
func (r *Receiver) dropSamples(n int) {
	n = min(max(n, 0), len(r.samples))
	r.samples = r.samples[:copy(r.samples, r.samples[n:])]
	r.firstSample += int64(n)
	r.searchedSamples = max(r.searchedSamples-n, 0)
}

// searchForCell searches for a cell if there are enough new samples.
func (r *Receiver) searchForCell(end bool) bool {
	sub := subframeLen(r.fftSize)
	if len(r.samples) == r.searchedSamples || !end && len(r.samples) < r.searchedSamples+searchInterval*sub {
		return false
	}
	r.searchedSamples = len(r.samples)
	factor := r.fftSize / searchSize
	y := decimateSamples(r.samples, factor)
	// These limit steps that cost as much as the search, or twice, and seven times: after 0, 1, 2, 4, 8 … failures, and
	// after 0, 1, 4, 16 ….
	thorough := r.failedSearches&(r.failedSearches-1) == 0
	far := thorough && r.failedSearches&0x55555555 == r.failedSearches
	f, ok := r.searcher.searchCell(y, anyCell, tonePSSFit)
	if !ok && far {
		f, ok = r.searcher.searchFarOffsets(y, f.offset)
	}
	switch c := f.mib.cell; {
	case ok && c.isSupported() && r.hasRoomFor(c):
		r.counts.Found++
		r.failedSearches = 0
		r.lockToCell(f, factor)
		return true
	case ok:
		r.obstacle = Obstacle{Reason: TooWide, Cell: c}
	case thorough:
		r.obstacle = r.searcher.diagnoseObstacle(y)
	}
	r.failedSearches++
	// The rest is searched together with the next samples.
	r.dropSamples(len(r.samples) - searchOverlap*sub)
	return false
}

// lockToCell starts to follow the found cell at the first whole subframe.
func (r *Receiver) lockToCell(f foundCell, factor int) {
	sub := subframeLen(r.fftSize)
	if r.decoder == nil || r.decoder.cell != f.mib.cell {
		r.decoder = newCellDecoder(f.mib.cell, r.fftSize)
	}
	r.carrierOffset, r.gapBefore = f.offset, true
	start := f.start * factor
	number := f.mib.sfn * 10
	w := r.decoder.takeUnusedTask()
	// Refine time to one sample, and the carrier to some Hz, with all subframes at hand.
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
	// Only the unused first prefix of the first subframe may be missing.
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

// cyclesPerSample returns the carrier offset in cycles per sample.
func (r *Receiver) cyclesPerSample() float64 {
	return r.carrierOffset / float64(r.fftSize*subcarrierSpacing)
}

// startNextSubframe starts to decode the next subframe. It returns false if it needs more samples.
func (r *Receiver) startNextSubframe(end bool) bool {
	d, samples := r.decoder, r.samples[r.nextStart-r.firstSample:][:subframeLen(r.fftSize)]
	w := d.takeUnusedTask()
	w.subframe = Subframe{Cell: d.cell, SFN: r.nextNumber / 10, Index: r.nextNumber % 10, Start: r.nextStart,
		Offset: r.carrierOffset}
	t := w.trackSubframe(samples, r.cyclesPerSample())
	// One in ten subframes of pure noise looks like a weak signal.
	hasSignal := w.subframe.SNR > lostSNR
	if v := r.recheckCell(hasSignal, t.delay, end); v != keepTracking {
		d.spareTasks = append(d.spareTasks, w)
		return v == reacquired
	}
	if !hasSignal {
		r.missScore++
		r.missesInRow++
	} else {
		r.missScore, r.missesInRow = max(r.missScore-2, 0), 0
		if w.subframe.Index == 0 && !r.confirmCellByMIB(w, samples) {
			d.spareTasks = append(d.spareTasks, w)
			return true
		}
	}
	w.subframe.AfterGap, r.gapBefore = r.gapBefore, false
	d.smoothNoise(w, t)
	r.nextStart += int64(len(samples))
	if hasSignal {
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

// timingCorrection returns by how many samples to delay the next subframe if this one was late by
// delay: none up to 1.5 samples, else half of the delay.
func (r *Receiver) timingCorrection(delay float64) int64 {
	shift := delay * float64(r.fftSize*subcarrierSpacing)
	if !(math.Abs(shift) > 1.5) {
		return 0
	}
	return int64(math.Copysign(max(1, math.Abs(shift)/2), shift))
}

// giveUpCell stops following the cell and searches again.
func (r *Receiver) giveUpCell() {
	r.counts.Lost++
	r.decoder = nil
	r.dropSamples(int(r.nextStart - r.firstSample))
	r.searchedSamples = 0
}

// Finish completes the task of a subframe that was dispatched and decoded.
func (r *Receiver) Finish(w *DecodeTask) {
	w.decoder.acceptMessages(w)
	if r.OnSubframe != nil {
		r.OnSubframe(&w.subframe)
	}
	w.decoder.spareTasks = append(w.decoder.spareTasks, w)
}
