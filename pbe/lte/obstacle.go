// SPDX-License-Identifier: Apache-2.0

package lte

import "fmt"

// Reason is why no cell is decoded.
type Reason uint8

// Reasons.
const (
	NotSearched    Reason = iota // not enough samples yet
	NoSignal                     // no PSS was found
	UnreadableMIB                // a cell's broadcast channel cannot be decoded
	TooWide                      // the cell is wider than the samples
	FourPorts                    // the cell has four antenna ports
	ExtendedPrefix               // its cyclic prefix is the extended one
	TDD                          // the cell uses time division duplex
)

// Obstacle is the reason why no cell is decoded, with the known parameters of the cell in question.
type Obstacle struct {
	Reason Reason
	// Cell has the ID; with TooWide and FourPorts all other fields too. It has no meaning with
	// NotSearched and NoSignal.
	Cell Cell
}

// String returns a text for people.
func (o Obstacle) String() string {
	switch o.Reason {
	case NotSearched:
		return "too few samples to search for a cell"
	case NoSignal:
		return "no synchronisation signal of a cell was found"
	case UnreadableMIB:
		return fmt.Sprintf("the signal of cell %d is too weak to decode its broadcast channel", o.Cell.ID)
	case TooWide:
		return fmt.Sprintf("cell %d has %d resource blocks, too many for this sample rate", o.Cell.ID, o.Cell.PRB)
	case FourPorts:
		return fmt.Sprintf("cell %d has four antenna ports; only one or two are supported", o.Cell.ID)
	case ExtendedPrefix:
		return fmt.Sprintf("cell %d uses the extended cyclic prefix; only the normal one is supported", o.Cell.ID)
	case TDD:
		return fmt.Sprintf("cell %d uses TDD; only FDD is supported", o.Cell.ID)
	}
	return fmt.Sprint("reason ", o.Reason)
}

// Obstacle returns why no cell is decoded, according to the last searches.
func (r *Receiver) Obstacle() Obstacle { return r.obstacle }

// minPSSFit is the least fit of a PSS, minSSSFit that of an SSS. The best fit in noise is 0.05 and
// 0.3; a cell as strong as the noise has 0.25 and 0.5. A tone matches one of the 62 subcarriers of
// the PSS, and now and then decodes to a MIB of zeros.
const (
	minPSSFit  = 0.12
	minSSSFit  = 0.42
	tonePSSFit = 0.03
	farPSSFit  = 0.06 // for an attempt at a carrier far off, one of many
)

// syncLayouts are the distances from SSS to PSS (36.211 sections 6.11.1.2 and 6.11.2.2), in samples
// at searchSize; an extended prefix is a quarter of a symbol.
var syncLayouts = []struct {
	back   int
	reason Reason
}{
	{searchSize + prefixLen, UnreadableMIB},
	{searchSize + searchSize/4, ExtendedPrefix},
	{3*searchSize + 2*prefixLen + firstPrefixLen, TDD},
	{3 * (searchSize + searchSize/4), TDD},
}

// diagnoseObstacle looks for unsupported cells in samples in which the search found nothing.
func (s *searcher) diagnoseObstacle(y []complex128) Obstacle {
	at, id2 := s.findPSSAnywhere(y)
	if id2 < 0 {
		return Obstacle{Reason: NoSignal}
	}
	bestFit, o, start := minSSSFit, Obstacle{Reason: NoSignal}, 0
	for _, l := range syncLayouts {
		id, second, fit := s.findSSS(y, at, id2, anyCell, l.back)
		if fit > bestFit {
			bestFit, o = fit, Obstacle{Reason: l.reason, Cell: Cell{ID: id}}
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

// findPSSAnywhere finds a PSS at any sample. It returns id2 −1 if there is none.
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

// readFourPorts reads the MIB of a cell with four ports: ports 0 and 2, and ports 1 and 3, send the
// pairs of elements in turn (36.211 section 6.3.4.3).
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
		// 6.10.1.2); the nearest one is used.
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

// firstLateCRS returns the first subcarrier with a reference signal of port 2 or 3 in the second
// slot of a subframe.
func (c Cell) firstLateCRS(port int) int {
	if port == 2 {
		return (3 + c.crsFrequencyShift()) % 6
	}
	return c.crsFrequencyShift()
}

// lateSignal returns reference signal m of ports 2 and 3 in the second slot of subframe 0, counted
// from the first one in the middle of the cell.
func (r *mibReader) lateSignal(m int) complex128 {
	if r.lateSignals == nil {
		bits := make([]byte, 4*maxReferencePRB)
		goldSequence(crsInitState(r.softener.cell.ID, 1, 1), bits)
		for m := range pbchWidth / 6 {
			at := 2 * (m + maxReferencePRB - pbchWidth/subcarriersPerPRB)
			r.lateSignals = append(r.lateSignals, qpskSymbol(bits[at], bits[at+1]))
		}
	}
	return r.lateSignals[m]
}
