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
	searchFirst = 21
	searchKeep  = 11
	searchMost  = 63
)

// Tracking: how much of what a subframe says about time and carrier is believed,
// and after how many subframes without reference signals the cell is lost.
const (
	trackGain = 0.1
	lostAfter = 50
	lostSNR   = -3 // dB
)

// Receiver finds a cell in a stream of samples and decodes its subframes, from
// the first whole one on, also of the time before the cell was found.
type Receiver struct {
	// Heard is called with each subframe, which is the Receiver's again when it
	// returns; its DCIs may be kept.
	Heard func(*Subframe)
	// Spread, if set, is handed the work of each subframe, in order, instead of its
	// being done at once. Whoever takes it calls Work.Decode, on any goroutine, and then
	// Done, with one work after the other in the order in which they were handed out, on
	// the goroutine that feeds: in Spread, or between Feeds, or after Close. What is heard
	// is the same, but Cell and Offset of the Receiver are ahead of the Subframe's.
	Spread func(*Work)

	size     int
	samples  []complex64 // not yet used
	at       int64       // number of the first of them
	constant constant
	tried    int // samples at the last search
	search   *searcher
	failed   int // searches in turn
	why      Obstacle

	decoder *decoder // nil while there is no cell
	next    int64    // sample where the next subframe begins
	number  int      // of the next subframe, SFN·10 + index
	offset  float64  // of the carrier, in Hz
	bad     int      // subframes without reference signals, less two for each with
	streak  int      // of them, the last in turn
	rest    int      // subframes until the cell may be looked for where it is thought to be
	unread  int      // MIBs in turn
	gap     bool     // before the next subframe
	changed int      // MIBs in turn that tell of another cell
	counts  Counts
}

// NewReceiver takes rate samples per second: 1.92, 3.84, 7.68, 15.36, 23.04 or
// 30.72 million, as many as the cell's width needs or more.
func NewReceiver(rate int) (*Receiver, error) {
	switch rate / spacing {
	case 128, 256, 512, 1024, 1536, 2048:
		if rate%spacing == 0 {
			return &Receiver{size: rate / spacing, search: newSearcher()}, nil
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
func (r *Receiver) Offset() float64 { return r.offset }

// Feed takes the next samples, which it copies, without their mean. One that is no
// number is taken for silence.
func (r *Receiver) Feed(samples []complex64) {
	for len(samples) > 0 {
		n := min(len(samples), searchMost*subframeLen(r.size)-len(r.samples))
		r.samples = append(r.samples, samples[:n]...)
		r.constant.takeOut(r.samples, len(r.samples)-n, subframeLen(r.size))
		samples = samples[n:]
		r.work(false)
	}
}

// Close says that there are no more samples. It does not wait for works that were handed
// to Spread: what is not Done is not heard. Of the last subframe the end may be
// missing, which is not looked at.
func (r *Receiver) Close() {
	r.work(true)
	sub := subframeLen(r.size)
	if n := len(r.samples); r.decoder != nil && n > sub*3/4 && n < sub {
		r.samples = append(r.samples, make([]complex64, sub-n)...)
		r.work(true)
	}
}

func (r *Receiver) work(end bool) {
	sub := subframeLen(r.size)
	for {
		if r.decoder == nil && !r.acquire(end) {
			return
		}
		for r.decoder != nil && r.next-r.at+int64(sub) <= int64(len(r.samples)) && r.subframe(end) {
		}
		if r.decoder != nil {
			r.drop(int(r.next - r.at))
			return
		}
	}
}

// drop forgets the first n samples.
func (r *Receiver) drop(n int) {
	n = min(max(n, 0), len(r.samples))
	r.samples = r.samples[:copy(r.samples, r.samples[n:])]
	r.at += int64(n)
	r.tried = max(r.tried-n, 0)
}

// acquire looks for a cell if there is enough that was not yet searched.
func (r *Receiver) acquire(end bool) bool {
	sub := subframeLen(r.size)
	if len(r.samples) == r.tried || !end && len(r.samples) < r.tried+searchFirst*sub {
		return false
	}
	r.tried = len(r.samples)
	factor := r.size / searchSize
	y := decimate(r.samples, factor)
	seldom := r.failed&(r.failed-1) == 0 // for what takes as long as the search, or twice
	f, ok := r.search.search(y, anyCell)
	if !ok && seldom {
		f, ok = r.search.beyond(y, f.offset)
	}
	switch c := f.mib.cell; {
	case ok && c.valid() && c.subcarriers() < r.size:
		r.counts.Found++
		r.failed = 0
		r.lock(f, factor)
		return true
	case ok:
		r.why = Obstacle{Reason: TooWide, Cell: c}
	case seldom:
		r.why = r.search.why(y)
	}
	r.failed++
	// What is left goes together with what comes.
	r.drop(len(r.samples) - searchKeep*sub)
	return false
}

// lock begins to follow the cell that was found, at the first whole subframe.
func (r *Receiver) lock(f found, factor int) {
	sub := subframeLen(r.size)
	if r.decoder == nil || r.decoder.cell != f.mib.cell {
		r.decoder = newDecoder(f.mib.cell, r.size)
	}
	r.offset, r.gap = f.offset, true
	start := f.start * factor
	number := f.mib.sfn * 10
	w := r.decoder.work()
	// Time to a sample, and the carrier to some Hz, from all subframes there are.
	for range 2 {
		var delay, offset, noise float64
		n, carriers := 0, 0
		for at, k := start%sub+sub, number-start/sub+1+10240; at+2*sub <= len(r.samples); at, k = at+sub, k+1 {
			w.sub.Index = k % 10
			t := w.track(r.samples[at:at+sub], r.cycles())
			delay += t.delay
			noise += t.noise
			n++
			if !w.est.short {
				offset += t.offset
				carriers++
			}
		}
		if n == 0 {
			break
		}
		r.offset += offset / float64(max(carriers, 1))
		r.decoder.noise = noise / float64(n)
		if shift := delay / float64(n) * float64(r.size*spacing); math.Abs(shift) < float64(r.size) {
			start += int(math.Round(shift))
		}
	}
	r.decoder.spare = append(r.decoder.spare, w)
	// What is missing of the first subframe may be its first prefix, which is not
	// looked at.
	if spare := firstPrefix * r.size / 256; start < 0 && start >= -spare {
		r.samples = append(make([]complex64, -start, len(r.samples)-start), r.samples...)
		r.at += int64(start)
		start = 0
	}
	back := start / sub
	if start < 0 {
		back = -1
	}
	r.next = r.at + int64(max(start-back*sub, 0))
	r.number = ((number-back)%10240 + 10240) % 10240
	r.bad, r.streak, r.unread, r.changed = 0, 0, 0, 0
}

// cycles is the carrier's offset in cycles per sample.
func (r *Receiver) cycles() float64 { return r.offset / float64(r.size*spacing) }

// subframe begins the work of the next one. It is false if more must be heard first.
func (r *Receiver) subframe(end bool) bool {
	d, samples := r.decoder, r.samples[r.next-r.at:][:subframeLen(r.size)]
	w := d.work()
	w.sub = Subframe{Cell: d.cell, SFN: r.number / 10, Index: r.number % 10, Start: r.next, Offset: r.offset}
	t := w.track(samples, r.cycles())
	// Of noise alone one in ten looks like a weak signal.
	heard := w.sub.SNR > lostSNR
	if v := r.doubt(heard, t.delay, end); v != goOn {
		d.spare = append(d.spare, w)
		return v == regained
	}
	if !heard {
		r.bad++
		r.streak++
	} else {
		r.bad, r.streak = max(r.bad-2, 0), 0
		if w.sub.Index == 0 && !r.broadcast(w, samples) {
			d.spare = append(d.spare, w)
			return true
		}
	}
	w.sub.Gap, r.gap = r.gap, false
	d.follow(w, t)
	r.next += int64(len(samples))
	if heard {
		r.offset += trackGain * t.offset
		r.next += r.shift(t.delay)
	}
	r.number = (r.number + 1) % 10240
	if r.bad >= lostAfter {
		r.lose()
		return true
	}
	if r.Spread != nil {
		r.Spread(w)
		return true
	}
	w.Decode()
	r.Done(w)
	return true
}

// shift is by how many samples the next subframe begins later if this one did so by
// delay: none while the clock is less than half of one off, all but half of many.
func (r *Receiver) shift(delay float64) int64 {
	shift := delay * float64(r.size*spacing)
	if !(math.Abs(shift) > 1.5) {
		return 0
	}
	return int64(math.Copysign(max(1, math.Abs(shift)/2), shift))
}

// lose gives the cell up.
func (r *Receiver) lose() {
	r.counts.Lost++
	r.decoder = nil
	r.drop(int(r.next - r.at))
	r.tried = 0
}

// Done ends the work of a subframe that was handed to Spread and decoded.
func (r *Receiver) Done(w *Work) {
	w.decoder.done(w)
	if r.Heard != nil {
		r.Heard(&w.sub)
	}
	w.decoder.spare = append(w.decoder.spare, w)
}
