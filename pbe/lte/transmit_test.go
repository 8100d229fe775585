package lte

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/dsp/fourier"

	"mpbond/pbe/cell"
)

// transmitter is a base station: reference, synchronisation and broadcast
// signals, PCFICH, PDCCH, and noise of full power where PHICH and PDSCH are. It
// shares the tables of positions and sequences with the receiver, which the given
// tables hold; all else goes the other way round.
type transmitter struct {
	cell Cell
	size int
	fft  *fourier.CmplxFFT
	rnd  *rand.Rand
	// twoBits says that users ask for channel state with two bits.
	twoBits bool
	// rntis are the users.
	rntis []cell.RNTI
	out   [2][]complex64 // by port, all subframes so far
	sent  []sent
	cfis  []int
}

// sent is one DCI as it was sent.
type sent struct {
	subframe int // since the first
	d        DCI
}

func newTransmitter(c Cell, size int, seed uint64) *transmitter {
	t := &transmitter{cell: c, size: size, fft: fourier.NewCmplxFFT(size), rnd: rand.New(rand.NewPCG(seed, 7))}
	for range 4 {
		t.rntis = append(t.rntis, cell.RNTI(0x100+t.rnd.IntN(0xF000)))
	}
	return t
}

func (t *transmitter) bits(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(t.rnd.IntN(2))
	}
	return b
}

// put sends bits over pairs of elements, with transmit diversity if there are two
// ports.
func (t *transmitter) put(g [2]*grid, at []reg, bits []byte) {
	for i := 0; i < len(at); i += 2 {
		a, b := at[i], at[i+1]
		x, y := qpsk(bits[2*i], bits[2*i+1]), qpsk(bits[2*i+2], bits[2*i+3])
		if t.cell.Ports == 1 {
			g[0][a.l][a.k], g[0][b.l][b.k] = x, y
			continue
		}
		f := complex(math.Sqrt2/2, 0)
		g[0][a.l][a.k], g[0][b.l][b.k] = f*x, f*y
		g[1][a.l][a.k], g[1][b.l][b.k] = -f*cmplx.Conj(y), f*cmplx.Conj(x)
	}
}

// one are the single elements of groups.
func (t *transmitter) one(groups []reg) (out []reg) {
	for _, r := range groups {
		for _, k := range t.cell.elements(r) {
			out = append(out, reg{k, r.l})
		}
	}
	return out
}

// message makes a DCI of random fields that can be sent at a place.
func (t *transmitter) message(at where) (DCI, bool) {
	r := t.rntis[t.rnd.IntN(len(t.rntis))]
	formats := []cell.Format{cell.Format0, cell.Format1A, cell.Format1, cell.Format2, cell.Format2A}[:1+2*t.cell.Ports]
	sizes := t.cell.dciSizes(t.twoBits)
	if t.rnd.IntN(4) == 0 && mayBeCommon(at.level, at.first, at.cces) {
		sizes = t.cell.dciSizes(false)
		formats = formats[:2]
		if t.rnd.IntN(2) == 0 {
			r = []cell.RNTI{rntiSI, rntiP, 3}[t.rnd.IntN(3)]
			formats = []cell.Format{cell.Format1A, cell.Format1C}
		}
	} else if !mayBe(r, at.subframe, at.level, at.first, at.cces) {
		return DCI{}, false
	}
	f := formats[t.rnd.IntN(len(formats))]
	if (sizes[f]+crcBits)*4 > at.level*cceBits*3 {
		return DCI{}, false // a rate over 3/4 needs more than 15 dB
	}
	for range 1000 {
		d := DCI{RNTI: r, Format: f, CCE: at.first, Level: at.level, Payload: t.bits(sizes[f])}
		if f == cell.Format0 {
			d.Payload[0] = 0
		} else if f == cell.Format1A {
			d.Payload[0] = 1
		}
		clear(d.Payload[sizes[f]-4:])
		if t.cell.parse(&d) {
			return d, true
		}
	}
	return DCI{}, false
}

// subframe sends the next one.
func (t *transmitter) subframe(sfn, index, cfi int) {
	c := t.cell
	n := c.subcarriers()
	var g [2]*grid
	for p := range g {
		g[p] = newGrid(n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
	}
	// Everywhere something, as if all were given to somebody.
	for l := range perSubframe {
		var all []reg
		for k := range n {
			all = append(all, reg{k, l})
		}
		t.put(g, all, t.bits(2*len(all)))
	}
	groups := c.pdcch(cfi)
	cces := len(groups) / cceREGs
	for _, r := range t.one(groups) {
		g[0][r.l][r.k], g[1][r.l][r.k] = 0, 0
	}
	used := make([]bool, cces)
	for range 6 {
		level := levels[t.rnd.IntN(len(levels))]
		if level > cces {
			continue
		}
		first := t.rnd.IntN(cces/level) * level
		d, ok := t.message(where{first, level, cces, index})
		if !ok || slices.Contains(used[first:first+level], true) {
			continue
		}
		for i := range level {
			used[first+i] = true
		}
		coded := encode(addCRC(slices.Clone(d.Payload), uint16(d.RNTI)), nil)
		order := matching(len(coded) / streams)
		scramble := make([]byte, cces*cceBits)
		gold(pdcchInit(c.ID, index), scramble)
		bits := make([]byte, level*cceBits)
		for i := range bits {
			bits[i] = coded[order[i%len(order)]] ^ scramble[first*cceBits+i]
		}
		t.put(g, t.one(groups[first*cceREGs:(first+level)*cceREGs]), bits)
		t.sent = append(t.sent, sent{len(t.cfis), d})
	}
	t.cfis = append(t.cfis, cfi)
	word, scramble := make([]byte, cfiLen), make([]byte, cfiLen)
	gold(pcfichInit(c.ID, index), scramble)
	for i := range word {
		word[i] = cfiWord(cfi, i) ^ scramble[i]
	}
	pcfich := c.pcfich()
	t.put(g, t.one(pcfich[:]), word)
	if index == 0 {
		t.broadcast(g, sfn)
	}
	if index%5 == 0 {
		primary, secondary := pss(c.ID%3), sss(c.ID, index == 5)
		for i := range syncLen {
			k := n/2 - 31 + i
			g[0][pssSymbol][k], g[0][sssSymbol][k] = primary[i], complex(secondary[i], 0)
			g[1][pssSymbol][k], g[1][sssSymbol][k] = 0, 0
		}
	}
	ref := newReference(c)
	for _, l := range []int{0, 4, 7, 11} {
		for port := range c.Ports {
			for m, v := range ref[2*index+l/perSlot][l%perSlot/4] {
				k := c.crsAt(port, l%perSlot) + 6*m
				g[0][l][k], g[1][l][k] = 0, 0
				g[port][l][k] = v
			}
		}
	}
	for p := range g {
		t.modulate(p, g[p])
	}
}

// broadcast sends a part of the MIB.
func (t *transmitter) broadcast(g [2]*grid, sfn int) {
	c := t.cell
	var bits []byte
	put := func(v, n int) {
		for i := n - 1; i >= 0; i-- {
			bits = append(bits, byte(v>>i&1))
		}
	}
	put(slices.Index([]int{6, 15, 25, 50, 75, 100}, c.PRB), 3)
	if c.Extended {
		put(1, 1)
	} else {
		put(0, 1)
	}
	put(slices.Index([]int{1, 3, 6, 12}, c.Sixths), 2)
	put(sfn>>2, 8)
	put(0, 10)
	coded := encode(addCRC(bits, mibMasks[c.Ports]), nil)
	order := matching(len(coded) / streams)
	scramble := make([]byte, 4*pbchBits)
	gold(uint32(c.ID), scramble)
	part := make([]byte, pbchBits)
	for i := range part {
		part[i] = coded[order[i%len(order)]] ^ scramble[sfn%4*pbchBits+i]
	}
	at := c.pbchElements()
	for i := range at {
		at[i].k += c.subcarriers()/2 - pbchWidth/2
	}
	t.put(g, at, part)
}

// modulate makes samples of the subcarriers.
func (t *transmitter) modulate(port int, g *grid) {
	n := t.cell.subcarriers()
	samples := make([]complex64, subframeLen(t.size))
	freq, time := make([]complex128, t.size), make([]complex128, t.size)
	scale := complex(1/math.Sqrt(float64(t.size)), 0)
	for l, row := range g {
		clear(freq)
		for k, v := range row {
			if k < n/2 {
				freq[t.size-n/2+k] = v * scale
			} else {
				freq[k-n/2+1] = v * scale
			}
		}
		t.fft.Sequence(time, freq)
		at := symbolAt(t.size, l)
		guard := prefix
		if l%perSlot == 0 {
			guard = firstPrefix
		}
		for i := -guard * t.size / 128; i < t.size; i++ {
			samples[at+i] = complex64(time[(i+t.size)%t.size])
		}
	}
	t.out[port] = append(t.out[port], samples...)
}

// air is what stands between: a gain and phase of each port, an echo, a turning
// carrier, and noise.
type air struct {
	gain   [2]complex128
	echo   float64 // of the second path, as part of the first
	delay  int     // of that, in samples
	offset float64 // Hz
	snr    float64 // dB; of a full element
}

// over is what a receiver gets.
func (t *transmitter) over(a air) []complex64 {
	out := make([]complex64, len(t.out[0]))
	noise := math.Pow(10, -a.snr/20) * math.Sqrt2 / 2
	for i := range out {
		var s complex128
		for p := range t.cell.Ports {
			s += a.gain[p] * complex128(t.out[p][i])
			if i >= a.delay {
				s += a.gain[p] * complex(0, a.echo) * complex128(t.out[p][i-a.delay])
			}
		}
		s *= cmplx.Rect(1, 2*math.Pi*a.offset*float64(i)/float64(t.size*spacing))
		out[i] = complex64(s + complex(t.rnd.NormFloat64()*noise, t.rnd.NormFloat64()*noise))
	}
	return out
}
