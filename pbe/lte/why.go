package lte

import "fmt"

// Reason is why no cell is heard.
type Reason uint8

// Reasons.
const (
	Unsearched     Reason = iota // not enough was heard yet
	NoSignal                     // there is no PSS
	Unread                       // a cell's broadcast channel cannot be read
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
	case Unsearched:
		return "not enough was heard to look for a cell"
	case NoSignal:
		return "no cell's synchronisation signal is heard"
	case Unread:
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

// Why tells why no cell is heard, by the last searches.
func (r *Receiver) Why() Obstacle { return r.why }

// leastPSS is the fit from which on there is a PSS, leastSSS that of an SSS. The best
// of all places of noise have .05 and .3; a cell as strong as the noise has .25 and .5. A
// tone has one of 62 subcarriers of PSS, and a MIB of zeros now and then.
const (
	leastPSS = 0.12
	leastSSS = 0.42
	tonePSS  = 0.03
)

// layouts are where SSS stands before PSS (36.211 sections 6.11.1.2 and 6.11.2.2), in
// samples at searchSize; an extended prefix is a quarter of a symbol.
var layouts = []struct {
	back   int
	reason Reason
}{
	{searchSize + prefix, Unread},
	{searchSize + searchSize/4, ExtendedPrefix},
	{3*searchSize + 2*prefix + firstPrefix, TDD},
	{3 * (searchSize + searchSize/4), TDD},
}

// why looks for what is no cell that can be heard, in samples that were searched.
func (s *searcher) why(y []complex128) Obstacle {
	at, id2 := s.anywhere(y)
	if id2 < 0 {
		return Obstacle{Reason: NoSignal}
	}
	best, o, start := leastSSS, Obstacle{Reason: NoSignal}, 0
	for _, l := range layouts {
		id, second, fit := s.secondary(y, at, id2, anyCell, l.back)
		if fit > best {
			best, o = fit, Obstacle{Reason: l.reason, Cell: Cell{ID: id}}
			start = at - symbolAt(searchSize, pssSymbol)
			if second {
				start -= halfFrame
			}
		}
	}
	if o.Reason == Unread {
		if m, _, ok := readMIB(y, start, o.Cell.ID, 4); ok {
			return Obstacle{Reason: FourPorts, Cell: m.cell}
		}
	}
	return o
}

// anywhere finds PSS wherever symbols may begin; −1 if there is none.
func (s *searcher) anywhere(y []complex128) (at, id2 int) {
	best := leastPSS
	id2 = -1
	for begin := range min(halfFrame, len(y)-halfFrame-searchSize) {
		for root, time := range s.time {
			var fit, energy float64
			for _, n := range [...]int{begin, begin + halfFrame} {
				var sum complex128
				for i, v := range y[n : n+searchSize] {
					sum += v * time[i]
					energy += norm(v)
				}
				fit += norm(sum)
			}
			if fit /= energy * searchSize * syncLen; fit > best {
				best, at, id2 = fit, begin, root
			}
		}
	}
	return at, id2
}

// readFour reads the MIB of a cell of four ports: the pairs of elements are sent by
// ports 0 and 2 and by ports 1 and 3 in turn (36.211 section 6.3.4.3).
func (r *mibReader) readFour() (mib, bool) {
	c := r.soft.cell
	c.Ports, r.soft.cell.Ports = 2, 2
	var h [4][]complex128
	for port := range h {
		h[port] = make([]complex128, pbchWidth)
		if port < 2 {
			r.est.estimate(r.grid, port, 7, 1, h[port])
			continue
		}
		// Ports 2 and 3 have reference signals in the second symbol of a slot only (section
		// 6.10.1.2); the nearest of them is taken.
		for k := range h[port] {
			m := min(max((k-c.lateAt(port)+3)/6, 0), pbchWidth/6-1)
			h[port][k] = r.grid[8][c.lateAt(port)+6*m] * conj(r.late(m))
		}
	}
	r.soft.mean = 1
	r.bits = r.bits[:0]
	for i := 0; i < len(r.elements); i += 2 {
		a, b := r.elements[i], r.elements[i+1]
		r.soft.channel = [2][]complex128{h[i/2%2], h[i/2%2+2]}
		r.bits = r.soft.pair(r.grid[a.l], a.k, b.k, r.bits)
	}
	r.soft.channel = [2][]complex128{h[0], h[1]}
	return r.code.decode(r.bits, c.ID, 4, 0)
}

// lateAt is the first subcarrier with a reference signal of port 2 or 3 in the second
// slot of a subframe.
func (c Cell) lateAt(port int) int {
	if port == 2 {
		return (3 + c.shift()) % 6
	}
	return c.shift()
}

// late is reference signal m of ports 2 and 3 in the first slot of subframe 0 but one,
// in the middle of the cell.
func (r *mibReader) late(m int) complex128 {
	if r.second == nil {
		bits := make([]byte, 4*maxReference)
		gold(crsInit(r.soft.cell.ID, 1, 1), bits)
		for m := range pbchWidth / 6 {
			at := 2 * (m + maxReference - pbchWidth/perPRB)
			r.second = append(r.second, qpsk(bits[at], bits[at+1]))
		}
	}
	return r.second[m]
}
