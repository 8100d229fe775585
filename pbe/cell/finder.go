// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"cmp"
	"math"
	"slices"

	"mpbond/base/unit"
)

// Tuning of finder. Numbers count subframes.
const (
	finderHistory = 512 // kept of messages and arrivals
	maxBlocks     = 256 // kept of a subframe: more than all cells of a device have
	// settleTime is the longest repetition of a block: three retransmissions of 8 subframes each. Only after
	// it is the time of delivery known.
	settleTime = 3 * 8
	// Data reach the device between minLag and maxLag after the subframe of their block, as the message
	// arrives: modem, USB and kernel delay data, a decoder delays messages.
	minLag, maxLag = -20, 60
	lagTolerance   = 5 // around the lag once it is known
	// Two series are compared in sums over stepLength, since modems deliver in steps.
	stepLength = 5
	// One RNTI is compared over shortMatch, several that are alike over longMatch.
	shortMatch, longMatch = 160, 320
	// minNewMatch is the least time over which several new ones are compared.
	minNewMatch = 80
	// minMatchBytes is the least number of arrived bytes that a decision needs.
	minMatchBytes = 20 * unit.KB
	// maxCandidates bounds the RNTIs that are compared: those with most bits.
	maxCandidates = 16
	// A series that differs by at most maxMisfit of the bytes is that of this device, if each other one
	// differs by clearlyWorse times that, and misfitMargin.
	maxMisfit = 0.25
	// maxSoleMisfit is the same for one that is the only new one when this device's has become stale.
	maxSoleMisfit = 0.4
	clearlyWorse  = 1.6
	misfitMargin  = 0.05
	// An RNTI is new if it had no grant for minAbsence before its first one. minVolume is the part of what
	// arrives that it must be given at least.
	minAbsence = 100
	minVolume  = 0.3
	// The RNTI is stale if its grants explain less than minExplained of what arrives within staleWindow.
	minExplained = 0.5
	staleWindow  = 80
	// minReceived is the part of subframes that must be received for a decision.
	minReceived = 0.8
)

// grantedBlock is a transport block as its grant describes it.
type grantedBlock struct {
	number  int64
	bits    int64
	rnti    RNTI
	process uint16 // cell, HARQ process and block
	ndi     bool
}

// harqBlocks is the number of values of grantedBlock.process.
const harqBlocks = MaxCells * maxHARQ * 2

// candidate is an RNTI that may be this device's.
type candidate struct {
	rnti  RNTI
	bits  int64
	first int64 // subframe of the first grant after a pause
	last  int64 // subframe of the last grant
	since int64 // bits since first
}

// finder compares the times at which data reach this device with the blocks that the cells give each
// user. A block with errors arrives with its retransmission, and the blocks after it wait: so it can also
// distinguish two users who always get the same.
type finder struct {
	blocks   [finderHistory][]grantedBlock // by subframe modulo finderHistory
	received [finderHistory]int64          // subframe of blocks; -1: none, or not of all cells
	arrived  [finderHistory]int64          // bytes, by subframe
	arrival  [finderHistory]int64          // subframe of arrived

	cells       [MaxCells]bool // that were ever received
	newest      int64          // newest subframe of a message
	newestBytes int64          // newest subframe of an arrival
	lag         int            // of this device's data; valid if hasLag
	hasLag      bool

	// Scratch space.
	granted    map[RNTI]candidate
	candidates []candidate
	sent       []grantedBlock
	deliveries []int64
	last       [harqBlocks]int32
	release    [finderHistory]int64 // bits, summed up from the beginning of the comparison
	sums       [finderHistory]int64 // arrived bytes, summed up
}

func newFinder() *finder {
	f := &finder{granted: map[RNTI]candidate{}}
	f.clearHistory()
	return f
}

// clearHistory forgets messages and arrivals: their numbers start anew.
func (f *finder) clearHistory() {
	for i := range finderHistory {
		f.received[i], f.arrival[i] = -1, -1
	}
	f.newest, f.newestBytes, f.hasLag, f.cells = -1, -1, false, [MaxCells]bool{}
}

// addRow adds the downlink blocks of a subframe. A row that is not after the last one restarts the count.
func (f *finder) addRow(r *Row) {
	if r.Number <= f.newest {
		f.clearHistory()
	}
	f.newest = r.Number
	i := r.Number % finderHistory
	b := f.blocks[i][:0]
	f.received[i] = -1
	if isComplete := f.noteCells(r); isComplete {
		f.received[i] = r.Number
	}
	for c, received := range r.Received {
		if !received {
			continue
		}
		for _, g := range r.Cells[c].Grants {
			if g.IsUplink() || !g.RNTI.IsUser() {
				continue
			}
			for k, x := range g.Blocks[:g.N] {
				if !x.IsDisabled() && len(b) < maxBlocks {
					b = append(b, grantedBlock{number: r.Number, bits: int64(x.Size), rnti: g.RNTI, ndi: x.NDI,
						process: uint16(c)*maxHARQ*2 + uint16(g.HARQ)*2 + uint16(k)})
				}
			}
		}
	}
	f.blocks[i] = b
}

// noteCells reports whether a row has all cells that were ever received: grants of the others are missing.
func (f *finder) noteCells(r *Row) bool {
	any, all := false, true
	for c, received := range r.Received {
		f.cells[c] = f.cells[c] || received
		any = any || received
		all = all && (received || !f.cells[c])
	}
	return any && all
}

// addArrival counts bytes that reached this device at the time of a subframe.
func (f *finder) addArrival(number int64, size unit.Bytes) {
	if number < 0 || number > maxNumber {
		return
	}
	i := number % finderHistory
	if f.arrival[i] != number {
		f.arrival[i], f.arrived[i] = number, 0
	}
	f.arrived[i] += int64(size)
	f.newestBytes = max(f.newestBytes, number)
}

// bytesAt returns what arrived at a subframe.
func (f *finder) bytesAt(number int64) int64 {
	if i := number & (finderHistory - 1); f.arrival[i] == number {
		return f.arrived[i]
	}
	return 0
}

// isReceived reports whether a subframe of all cells was received.
func (f *finder) isReceived(number int64) bool {
	return number >= 0 && f.received[number&(finderHistory-1)] == number
}

// sumArrived returns the bytes that arrived from a subframe on, before another.
func (f *finder) sumArrived(from, to int64) (n int64) {
	for x := from; x < to; x++ {
		n += f.bytesAt(x)
	}
	return n
}

// hasReceived reports whether enough subframes were received for a decision.
func (f *finder) hasReceived(from, to int64) bool {
	n := 0
	for x := from; x < to; x++ {
		if f.isReceived(x) {
			n++
		}
	}
	return float64(n) >= minReceived*float64(to-from)
}

// lagBounds returns the bounds of the lag of data after their messages.
func (f *finder) lagBounds() (from, to int) {
	if f.hasLag {
		return max(f.lag-lagTolerance, minLag), min(f.lag+lagTolerance, maxLag)
	}
	return minLag, maxLag
}

// explains reports whether the grants to an RNTI explain what arrived lately. decided is false if too little
// arrived to tell, or most of it at once: this device stood still.
func (f *finder) explains(rnti RNTI) (yes, decided bool) {
	for _, length := range [...]int64{staleWindow, shortMatch, longMatch} {
		if yes, decided = f.explainsWithin(rnti, length); decided {
			break
		}
	}
	return yes, decided
}

// explainsWithin does so over a number of subframes.
func (f *finder) explainsWithin(rnti RNTI, length int64) (yes, decided bool) {
	from, to := f.lagBounds()
	end := f.newest + min(0, int64(from)) // the messages of later data may be missing
	begin := end - length
	first, last := max(begin-int64(to)-settleTime, 0), min(end-int64(from), f.newest)
	if begin < 0 || !f.hasReceived(first, last) {
		return false, false
	}
	var arrived, most int64
	for n := begin; n < end; n++ {
		x := f.bytesAt(n)
		arrived, most = arrived+x, max(most, x)
	}
	if arrived < int64(minMatchBytes) || most > arrived/2 {
		return false, false
	}
	var bits int64
	for n := first; n <= last; n++ {
		for _, b := range f.allBlocksAt(n) {
			if b.rnti == rnti {
				bits += b.bits
			}
		}
	}
	return float64(bits)/8 >= minExplained*float64(arrived), true
}

// allBlocksAt returns the blocks of a subframe, also of one that was received in part.
func (f *finder) allBlocksAt(number int64) []grantedBlock {
	if number < 0 || number <= f.newest-finderHistory || number > f.newest {
		return nil
	}
	b := f.blocks[number&(finderHistory-1)]
	if len(b) > 0 && b[0].number != number {
		return nil
	}
	return b
}

// findRNTI returns the RNTI whose blocks arrive as this device's data do, 0 if none does or several might. If self,
// which was the device's, is stale, an RNTI that is new is preferred: its blocks follow those of self.
func (f *finder) findRNTI(self RNTI, stale bool) RNTI {
	for _, length := range [...]int64{shortMatch, longMatch} {
		if !stale {
			break
		}
		if r, clear := f.findWithin(length, self, true); clear {
			return r
		}
	}
	for _, length := range [...]int64{shortMatch, longMatch} {
		if r, clear := f.findWithin(length, 0, false); clear {
			return r
		}
	}
	return 0
}

// findWithin returns the best RNTI over a number of subframes, after the blocks of another one. With isNew, only
// new ones count. clear is false if it fits too badly, or another fits nearly as well.
func (f *finder) findWithin(length int64, before RNTI, isNew bool) (best RNTI, clear bool) {
	end := f.newest - settleTime
	begin := end - length
	from, to := f.lagBounds()
	if begin-settleTime < 0 || !f.hasReceived(begin, end) {
		return 0, false
	}
	least, second, lag := math.Inf(1), math.Inf(1), 0
	f.listCandidates(begin-int64(to), end, isNew)
	if isNew && len(f.candidates) > 1 {
		// Before the change, all are alike.
		begin = max(begin, slices.MinFunc(f.candidates, compareFirst).first)
		if end-begin < minNewMatch {
			return 0, false
		}
	}
	f.sumArrivals(begin+int64(from), end+int64(to))
	for _, c := range f.candidates {
		if c.rnti == before {
			continue
		}
		misfit, at := f.compareReleases([2]RNTI{c.rnti, before}, begin, end, from, to)
		switch {
		case misfit < least:
			best, least, second, lag = c.rnti, misfit, least, at
		case misfit < second:
			second = misfit
		}
	}
	most := maxMisfit
	if isNew && len(f.candidates) == 1 {
		most = maxSoleMisfit
	}
	if least > most || second < clearlyWorse*least+misfitMargin {
		return 0, false
	}
	f.lag, f.hasLag = lag, true
	return best, true
}

// learnLag measures the lag of the data of an RNTI, which is this device's, if it is unknown.
func (f *finder) learnLag(rnti RNTI) {
	end := f.newest - settleTime
	begin := end - shortMatch
	if f.hasLag || begin-settleTime < 0 || !f.hasReceived(begin, end) {
		return
	}
	f.sumArrivals(begin+minLag, end+maxLag)
	if misfit, lag := f.compareReleases([2]RNTI{rnti}, begin, end, minLag, maxLag); misfit <= maxMisfit {
		f.lag, f.hasLag = lag, true
	}
}

func compareFirst(a, b candidate) int { return cmp.Compare(a.first, b.first) }

// listCandidates lists the RNTIs with most bits from a subframe on, before another. With isNew, it lists those that
// are new, and were given much of what arrived since.
func (f *finder) listCandidates(from, to int64, isNew bool) {
	clear(f.granted)
	oldest := max(f.newest-finderHistory+1, 0)
	for n := oldest; n < to; n++ {
		for _, b := range f.allBlocksAt(n) {
			c, known := f.granted[b.rnti]
			if !known || n-c.last > minAbsence {
				c = candidate{rnti: b.rnti, bits: c.bits, first: n}
			}
			if c.last = n; n >= from {
				c.bits += b.bits
			}
			c.since += b.bits
			f.granted[b.rnti] = c
		}
	}
	f.candidates = f.candidates[:0]
	for _, c := range f.granted {
		if c.bits > 0 && (!isNew || c.first >= oldest+minAbsence && f.hasReceived(c.first-minAbsence, c.first) &&
			float64(c.since)/8 >= minVolume*float64(f.sumArrived(c.first, to))) {
			f.candidates = append(f.candidates, c)
		}
	}
	slices.SortFunc(f.candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.bits, a.bits), cmp.Compare(a.rnti, b.rnti))
	})
	f.candidates = f.candidates[:min(len(f.candidates), maxCandidates)]
}

// compareReleases returns the least part of the bytes by which the blocks of a device's RNTIs, as they leave the
// cells between two subframes, differ from what arrives some subframes later, and that lag. It is 1 if too
// little arrives.
func (f *finder) compareReleases(of [2]RNTI, begin, end int64, from, to int) (misfit float64, lag int) {
	f.predictReleases(of, begin, end)
	misfit = 1
	for l := from; l <= to; l++ {
		// Later arrivals may be unknown yet.
		shift := max(0, end+int64(l)-max(f.newest, f.newestBytes))
		if shift > settleTime {
			break
		}
		if m := f.misfitAt(l-from, int(end-begin-shift)); m < misfit {
			misfit, lag = m, l
		}
	}
	return misfit, lag
}

// predictReleases sums up in f.release the bits of a device's RNTIs that leave the cells between two subframes.
func (f *finder) predictReleases(of [2]RNTI, begin, end int64) {
	f.sent, f.deliveries = f.sent[:0], f.deliveries[:0]
	for i := range f.last {
		f.last[i] = -1
	}
	for n := max(begin-settleTime-NDIMemory, 0); n <= f.newest; n++ {
		for _, b := range f.allBlocksAt(n) {
			if b.rnti != of[0] && b.rnti != of[1] {
				continue
			}
			if i := f.last[b.process]; i >= 0 && f.sent[i].ndi == b.ndi && n-f.deliveries[i] <= NDIMemory {
				f.deliveries[i] = n // the earlier transmission had errors
				continue
			}
			f.last[b.process] = int32(len(f.sent))
			f.sent, f.deliveries = append(f.sent, b), append(f.deliveries, n)
		}
	}
	clear(f.release[:end-begin+1])
	released := int64(0) // blocks are passed on in order
	for i, b := range f.sent {
		released = max(released, f.deliveries[i])
		if released >= begin && released < end {
			f.release[released-begin+1] += b.bits
		}
	}
	for i := range end - begin {
		f.release[i+1] += f.release[i]
	}
}

// sumArrivals sums up in f.sums what arrived from a subframe on, before another.
func (f *finder) sumArrivals(from, to int64) {
	f.sums[0] = 0
	for i := range to - from {
		f.sums[i+1] = f.sums[i] + f.bytesAt(from+i)
	}
}

// misfitAt returns the part by which f.sums from an index on differ from f.release, over a number of subframes.
func (f *finder) misfitAt(at, length int) float64 {
	sums := f.sums[at : at+length+1]
	arrived, bits := sums[length]-sums[0], f.release[length]
	if arrived < int64(minMatchBytes) || bits == 0 {
		return 1
	}
	// Blocks also carry headers and padding, and the data of other apps.
	scale := min(max(float64(arrived)/float64(bits), 0.4/8), 1.0/8)
	var differ, sum float64
	for i := 0; i+stepLength <= length; i++ {
		x := scale * float64(f.release[i+stepLength]-f.release[i])
		y := float64(sums[i+stepLength] - sums[i])
		differ, sum = differ+math.Abs(x-y), sum+x+y
	}
	return differ / sum
}
