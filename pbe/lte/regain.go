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
	doubtful    = 4    // subframes in turn without reference signals are no fade yet
	farDelay    = 2e-6 // seconds; a delay of 11 µs looks like none
	mostUnread  = 2    // MIBs in turn
	unreadAgain = 50   // after which it is looked for again because of them
	doubtRest   = 20   // subframes until it is looked for again
	regainFirst = 12   // subframes that are searched: one has the MIB
	sameAfter   = 2    // MIBs in turn that tell of another cell
)

// Counts tell what became of cells since the beginning.
type Counts struct {
	Found    int // cells, also the same one after it was lost
	Lost     int // cells that were given up
	Regained int // times that the cell was somewhere else: samples are missing
	Jumps    int // times that only its SFN was another: whole frames of samples are missing
	MIBs     int // that were read while a cell was followed
	Unread   int // that could not be read
}

// Counts are those since the beginning.
func (r *Receiver) Counts() Counts { return r.counts }

// verdict is what is done about a subframe without reference signals.
type verdict int

const (
	goOn     verdict = iota // as if it had them
	wait                    // for more samples
	regained                // there is another next one
)

// doubt asks whether the next subframe is where it should be, by its reference
// signals, if they were heard, and its delay.
func (r *Receiver) doubt(heard bool, delay float64, end bool) verdict {
	if r.rest > 0 {
		r.rest--
		return goOn
	}
	d, sub, at := r.decoder, subframeLen(r.size), int(r.next-r.at)
	if heard && max(delay, -delay) < farDelay && r.unread < mostUnread {
		return goOn
	}
	w := d.work()
	defer func() { d.spare = append(d.spare, w) }()
	for k := 1; !heard && k < doubtful; k++ {
		from := at + k*sub
		if from+sub > len(r.samples) {
			if end {
				return goOn
			}
			return wait
		}
		w.sub.Index = (r.number + k) % 10
		if w.track(r.samples[from:][:sub], r.cycles()); w.sub.SNR > lostSNR {
			return goOn
		}
	}
	window := r.samples[at:]
	if len(window) < regainFirst*sub && !end {
		return wait
	}
	window = window[:min(len(window), regainFirst*sub)]
	r.rest = doubtRest
	if r.unread >= mostUnread {
		r.unread = -unreadAgain
	}
	factor := r.size / searchSize
	y := decimate(window, factor)
	turn(y, r.offset)
	f, ok := r.search.search(y, d.cell.ID)
	f.offset += r.offset
	if !ok || !f.mib.cell.valid() || f.mib.cell.subcarriers() >= r.size {
		return goOn
	}
	// Subframes from the next one to that of the MIB, as it is thought.
	until := (f.mib.sfn*10-r.number+3*cycle/2)%cycle - cycle/2
	if off := f.start*factor - until*sub; f.mib.cell == d.cell && max(off, -off) < r.size/8 {
		return goOn
	}
	r.counts.Regained++
	r.drop(at)
	r.lock(f, factor)
	return regained
}

// cycle is the number of subframes after which SFN and index come again.
const cycle = 10240

// broadcast reads the MIB in the subframe that w is of. It is false if the cell is
// another now, which is given up.
func (r *Receiver) broadcast(w *Work, samples []complex64) bool {
	d := r.decoder
	m, ok := d.readMIB(w, samples)
	switch {
	case !ok:
		r.counts.Unread++
		r.unread++
		return true
	case m.cell == d.cell:
		r.unread, r.changed = 0, 0
	default:
		if r.changed++; r.changed < sameAfter {
			return true
		}
		r.lose()
		return false
	}
	r.counts.MIBs++
	if m.sfn != w.sub.SFN {
		r.counts.Jumps++
		r.gap = true
		w.sub.SFN = m.sfn
		r.number = m.sfn * 10
	}
	return true
}

// readMIB reads the MIB in the subframe that w is of.
func (d *decoder) readMIB(w *Work, samples []complex64) (mib, bool) {
	if d.mibs == nil {
		d.mibs = newMIBReader(d.cell.ID)
		d.row = make([]complex128, d.cell.subcarriers())
	}
	from := d.cell.subcarriers()/2 - pbchWidth/2
	copy(d.mibs.grid[7], w.grid[7][from:])
	for l := 8; l <= 11; l++ {
		w.demod.symbol(samples, l, d.row)
		copy(d.mibs.grid[l], d.row[from:])
	}
	return d.mibs.read(w.sub.SFN%4, d.cell.Ports)
}
