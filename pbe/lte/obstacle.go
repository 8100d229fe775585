package lte

import "fmt"

// Reason is why no cell is heard.
type Reason uint8

// Reasons.
const (
	NotSearched    Reason = iota // not enough was heard yet
	NoSignal                     // there is no PSS
	UnreadableMIB                // a cell's broadcast channel cannot be read
	TooWide                      // the cell is wider than the samples
	FourPorts                    // the cell has four antenna ports
	ExtendedPrefix               // its cyclic prefix is the extended one
	TDD                          // it takes turns with its users
)

// Obstacle is a reason, and what is known of the cell that it is of.
type Obstacle struct {
	Reason Reason
	// Cell has an ID, of TooWide and FourPorts all else too; no meaning with Unsearched
	// and NoSignal.
	Cell Cell
}

// String says it for people.
func (o Obstacle) String() string {
	switch o.Reason {
	case NotSearched:
		return "not enough was heard to look for a cell"
	case NoSignal:
		return "no cell's synchronisation signal is heard"
	case UnreadableMIB:
		return fmt.Sprintf("cell %d is heard, but not well enough to read its broadcast channel", o.Cell.ID)
	case TooWide:
		return fmt.Sprintf("cell %d has %d resource blocks, too many for this rate of samples", o.Cell.ID, o.Cell.PRB)
	case FourPorts:
		return fmt.Sprintf("cell %d has four antenna ports; one or two are understood", o.Cell.ID)
	case ExtendedPrefix:
		return fmt.Sprintf("cell %d has the extended cyclic prefix; the normal one is understood", o.Cell.ID)
	case TDD:
		return fmt.Sprintf("cell %d is TDD; FDD is understood", o.Cell.ID)
	}
	return fmt.Sprint("reason ", o.Reason)
}

// Obstacle tells why no cell is heard, by the last searches.
func (r *Receiver) Obstacle() Obstacle { return r.obstacle }

// minPSSFit is the fit from which on there is a PSS, minSSSFit that of an SSS. The best
// of all places of noise have .05 and .3; a cell as strong as the noise has .25 and .5. A
// tone has one of 62 subcarriers of PSS, and a MIB of zeros now and then.
const (
	minPSSFit  = 0.12
	minSSSFit  = 0.42
	tonePSSFit = 0.03
)

// syncLayouts are where SSS stands before PSS (36.211 sections 6.11.1.2 and 6.11.2.2), in
// samples at searchSize; an extended prefix is a quarter of a symbol.
var syncLayouts = []struct {
	back   int
	reason Reason
}{
	{searchSize + prefixLen, UnreadableMIB},
	{searchSize + searchSize/4, ExtendedPrefix},
	{3*searchSize + 2*prefixLen + firstPrefixLen, TDD},
	{3 * (searchSize + searchSize/4), TDD},
}

// diagnose looks for what is no cell that can be heard, in samples that were searched.
func (s *searcher) diagnose(y []complex128) Obstacle {
	at, id2 := s.findPSSAnywhere(y)
	if id2 < 0 {
		return Obstacle{Reason: NoSignal}
	}
	best, o, start := minSSSFit, Obstacle{Reason: NoSignal}, 0
	for _, l := range syncLayouts {
		id, second, fit := s.findSSS(y, at, id2, anyCell, l.back)
		if fit > best {
			best, o = fit, Obstacle{Reason: l.reason, Cell: Cell{ID: id}}
			start = at - symbolStart(searchSize, pssSymbol)
			if second {
				start -= halfFrame
			}
		}
	}
	if o.Reason == UnreadableMIB {
		if m, _, ok := readFirstMIB(y, start, o.Cell.ID, 4); ok {
			return Obstacle{Reason: FourPorts, Cell: m.cell}
		}
	}
	return o
}

// findPSSAnywhere finds PSS wherever symbols may begin; −1 if there is none.
func (s *searcher) findPSSAnywhere(y []complex128) (at, id2 int) {
	best := minPSSFit
	id2 = -1
	for begin := range min(halfFrame, len(y)-halfFrame-searchSize) {
		for root, time := range s.pssSignals {
			var fit, energy float64
			for _, n := range [...]int{begin, begin + halfFrame} {
				var sum complex128
				for i, v := range y[n : n+searchSize] {
					sum += v * time[i]
					energy += squaredNorm(v)
				}
				fit += squaredNorm(sum)
			}
			if fit /= energy * searchSize * syncLen; fit > best {
				best, at, id2 = fit, begin, root
			}
		}
	}
	return at, id2
}

// readFourPorts reads the MIB of a cell of four ports: the pairs of elements are sent by
// ports 0 and 2 and by ports 1 and 3 in turn (36.211 section 6.3.4.3).
func (r *mibReader) readFourPorts() (mib, bool) {
	c := r.softener.cell
	c.Ports, r.softener.cell.Ports = 2, 2
	var h [4][]complex128
	for port := range h {
		h[port] = make([]complex128, pbchWidth)
		if port < 2 {
			r.estimator.estimateChannel(r.grid, port, 7, 1, h[port])
			continue
		}
		// Ports 2 and 3 have reference signals in the second symbol of a slot only (section
		// 6.10.1.2); the nearest of them is taken.
		for k := range h[port] {
			m := min(max((k-c.firstLateCRS(port)+3)/6, 0), pbchWidth/6-1)
			h[port][k] = r.grid[8][c.firstLateCRS(port)+6*m] * conj(r.lateSignal(m))
		}
	}
	r.softener.meanPower = 1
	r.bits = r.bits[:0]
	for i := 0; i < len(r.elements); i += 2 {
		a, b := r.elements[i], r.elements[i+1]
		r.softener.channel = [2][]complex128{h[i/2%2], h[i/2%2+2]}
		r.bits = r.softener.appendPairBits(r.grid[a.l], a.k, b.k, r.bits)
	}
	r.softener.channel = [2][]complex128{h[0], h[1]}
	return r.pbch.decodeMIB(r.bits, c.ID, 4, 0)
}

// firstLateCRS is the first subcarrier with a reference signal of port 2 or 3 in the second
// slot of a subframe.
func (c Cell) firstLateCRS(port int) int {
	if port == 2 {
		return (3 + c.crsShift()) % 6
	}
	return c.crsShift()
}

// lateSignal is reference signal m of ports 2 and 3 in the first slot of subframe 0 but one,
// in the middle of the cell.
func (r *mibReader) lateSignal(m int) complex128 {
	if r.lateSignals == nil {
		bits := make([]byte, 4*maxReferencePRB)
		goldSequence(crsInit(r.softener.cell.ID, 1, 1), bits)
		for m := range pbchWidth / 6 {
			at := 2 * (m + maxReferencePRB - pbchWidth/subcarriersPerPRB)
			r.lateSignals = append(r.lateSignals, qpskSymbol(bits[at], bits[at+1]))
		}
	}
	return r.lateSignals[m]
}
