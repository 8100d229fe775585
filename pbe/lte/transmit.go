package lte

import (
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"slices"

	"mpbond/base/fault"
	"mpbond/pbe/cell"
)

// Transmitter is a base station with one cell, and the air before who hears it:
// it makes samples of grants. It sends synchronisation, reference and broadcast
// signals, PCFICH and PDCCH; where PHICH and PDSCH are it sends noise of full
// power, as if all were given to somebody. The tables of positions and sequences
// it has in common with the Receiver; all else goes the other way round. The same
// seed and the same grants give the same samples.
type Transmitter struct {
	// Said counts grants that were told, Unsaid those for which there is no message, and
	// Unplaced those for which there was no room, as a real cell would not have given them.
	Said, Unsaid, Unplaced int

	cell    Cell
	size    int // samples of a symbol
	rnd     *rand.Rand
	fft     *fft
	channel *channel
	rate    float64 // of codes, at most
	gain    float64 // of the PDCCH over the reference signals

	ports      [2][perSubframe][]complex128
	row        []complex128
	time       []complex128
	samples    []complex64
	ref        *reference
	pdcch      [4][]reg // single elements, by CFI
	pcfich     []reg
	pbch       []reg
	scramble   [10][]byte // of the PDCCH
	indicators [10][4][]byte
	orders     map[int][]int // of the rate matching, by bits of a stream
	messages   []DCI
	multicast  [10]bool // subframes that have reference signals in symbol 0 only
}

// NewTransmitter sends rate samples a second, as a Receiver takes them, through a
// channel.
func NewTransmitter(c Cell, rate int, ch Channel, seed uint64) (*Transmitter, error) {
	size := rate / spacing
	if _, err := NewReceiver(rate); err != nil || !c.valid() || c.subcarriers() >= size {
		return nil, fault.New(fault.Usage, fmt.Errorf("%+v at %d samples per second: there is no such cell", c, rate), "")
	}
	t := &Transmitter{gain: 1, cell: c, size: size, rnd: rand.New(rand.NewPCG(seed, 7)), fft: newFFT(size), ref: newReference(c), orders: map[int][]int{},
		row: make([]complex128, c.subcarriers()), time: make([]complex128, size), samples: make([]complex64, subframeLen(size))}
	t.channel = newChannel(ch, c, size, t.rnd)
	t.rate = codeRate(ch.SNR)
	for p := range c.Ports {
		for l := range perSubframe {
			t.ports[p][l] = make([]complex128, c.subcarriers())
		}
	}
	for cfi := 1; cfi <= 3; cfi++ {
		t.pdcch[cfi] = c.single(c.pdcch(cfi))
	}
	pcfich := c.pcfich()
	t.pcfich, t.pbch = c.single(pcfich[:]), c.pbchElements()
	for i := range t.pbch {
		t.pbch[i].k += c.subcarriers()/2 - pbchWidth/2
	}
	scramble := make([]byte, cfiLen)
	for sf := range 10 {
		t.scramble[sf] = make([]byte, 2*len(t.pdcch[3]))
		gold(pdcchInit(c.ID, sf), t.scramble[sf])
		gold(pcfichInit(c.ID, sf), scramble)
		for cfi := 1; cfi <= 3; cfi++ {
			for i, s := range scramble {
				t.indicators[sf][cfi] = append(t.indicators[sf][cfi], cfiWord(cfi, i)^s)
			}
		}
	}
	return t, nil
}

// Cell is what it sends.
func (t *Transmitter) Cell() Cell { return t.cell }

// single are the elements of groups, one by one.
func (c Cell) single(groups []reg) (out []reg) {
	for _, r := range groups {
		for _, k := range c.elements(r) {
			out = append(out, reg{k, r.l})
		}
	}
	return out
}

// Subframe makes the samples of the subframe of a number, SFN·10 and its index, or
// one that goes on without wrapping. Its grants are told in as few symbols as there
// is room in. The samples are the Transmitter's again with the next call.
func (t *Transmitter) Subframe(number int64, grants []cell.Grant) []complex64 {
	index := int(number % 10)
	all, unsaid := t.cell.Messages(grants, t.messages[:0])
	t.messages = all
	least := 1
	if t.cell.Extended {
		least = 3
	}
	var placed []DCI
	for cfi := least; ; cfi++ {
		placed = t.cell.place(all, index, 2*len(t.pdcch[cfi])/cceBits, t.rate)
		if len(placed) == len(all) || cfi == 3 {
			t.Said += len(placed)
			t.Unsaid += unsaid
			t.Unplaced += len(all) - len(placed)
			return t.Send(number, cfi, placed)
		}
	}
}

// Send makes the samples of a subframe whose messages have their places: CCE and
// Level, of which none may overlap, RNTI and Payload are what is sent of each.
func (t *Transmitter) Send(number int64, cfi int, messages []DCI) []complex64 {
	index := int(number % 10)
	t.fill()
	pdcch := t.pdcch[cfi]
	for p := range t.cell.Ports {
		for _, r := range pdcch {
			t.ports[p][r.l][r.k] = 0
		}
	}
	for i := range messages {
		d := &messages[i]
		coded := encode(addCRC(slices.Clone(d.Payload), uint16(d.RNTI)), nil)
		bits, scramble := make([]byte, d.Level*cceBits), t.scramble[index][d.CCE*cceBits:]
		order := t.order(len(coded) / streams)
		for i := range bits {
			bits[i] = coded[order[i%len(order)]] ^ scramble[i]
		}
		t.put(pdcch[d.CCE*cceBits/2:][:d.Level*cceBits/2], bits)
	}
	for p := range t.cell.Ports {
		for _, r := range pdcch {
			t.ports[p][r.l][r.k] *= complex(t.gain, 0)
		}
	}
	t.put(t.pcfich, t.indicators[index][cfi])
	if index == 0 {
		t.broadcast(int(number / 10 % 1024))
	}
	if index%5 == 0 {
		t.synchronise(index == 5)
	}
	t.reference(index)
	t.modulate()
	return t.samples
}

func (t *Transmitter) order(bits int) []int {
	if t.orders[bits] == nil {
		t.orders[bits] = matching(bits)
	}
	return t.orders[bits]
}

// fill sends something everywhere.
func (t *Transmitter) fill() {
	f := math.Sqrt(0.5 / float64(t.cell.Ports))
	points := [4]complex128{complex(f, f), complex(f, -f), complex(-f, f), complex(-f, -f)}
	for p := range t.cell.Ports {
		for _, row := range t.ports[p] {
			var bits uint64
			for k := range row {
				if k%32 == 0 {
					bits = t.rnd.Uint64()
				}
				row[k] = points[bits&3]
				bits >>= 2
			}
		}
	}
}

// put sends bits over pairs of elements, with transmit diversity if there are two
// ports.
func (t *Transmitter) put(at []reg, bits []byte) {
	g := &t.ports
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

// broadcast sends a part of the MIB.
func (t *Transmitter) broadcast(sfn int) {
	c := t.cell
	var w bitWriter
	w.put(slices.Index([]int{6, 15, 25, 50, 75, 100}, c.PRB), 3)
	w.flag(c.Extended)
	w.put(slices.Index([]int{1, 3, 6, 12}, c.Sixths), 2)
	w.put(sfn>>2, 8)
	w.put(0, 10)
	coded := encode(addCRC(w, mibMasks[c.Ports]), nil)
	order := t.order(len(coded) / streams)
	scramble := make([]byte, 4*pbchBits)
	gold(uint32(c.ID), scramble)
	part := make([]byte, pbchBits)
	for i := range part {
		part[i] = coded[order[i%len(order)]] ^ scramble[sfn%4*pbchBits+i]
	}
	t.put(t.pbch, part)
}

// synchronise sends PSS and SSS, of the first port only.
func (t *Transmitter) synchronise(second bool) {
	primary, secondary := pss(t.cell.ID%3), sss(t.cell.ID, second)
	for i := range syncLen {
		k := t.cell.subcarriers()/2 - syncLen/2 + i
		for p := range t.cell.Ports {
			t.ports[p][pssSymbol][k], t.ports[p][sssSymbol][k] = 0, 0
		}
		t.ports[0][pssSymbol][k], t.ports[0][sssSymbol][k] = primary[i], complex(secondary[i], 0)
	}
}

// reference sends the reference signals: where one port does the other is silent.
func (t *Transmitter) reference(index int) {
	for _, l := range []int{0, 4, 7, 11} {
		if l > 0 && t.multicast[index] {
			continue
		}
		for port := range t.cell.Ports {
			for m, v := range t.ref[2*index+l/perSlot][l%perSlot/4] {
				k := t.cell.crsAt(port, l%perSlot) + 6*m
				for p := range t.cell.Ports {
					t.ports[p][l][k] = 0
				}
				t.ports[port][l][k] = v
			}
		}
	}
}

// modulate makes samples of all subcarriers, as they are heard.
func (t *Transmitter) modulate() {
	n := len(t.row)
	scale := complex(1/math.Sqrt(float64(t.size)), 0)
	for l := range perSubframe {
		t.channel.pass(l, &t.ports, t.row)
		clear(t.time)
		for k, v := range t.row[:n/2] {
			t.time[t.fft.order[t.size-n/2+k]] = v * scale
		}
		for k, v := range t.row[n/2:] {
			t.time[t.fft.order[k+1]] = v * scale
		}
		t.fft.transform(t.time) // the other way round is the same backwards
		at := symbolAt(t.size, l)
		guard := prefix
		if l%perSlot == 0 {
			guard = firstPrefix
		}
		guard = guard * t.size / 128
		useful := t.samples[at:][:t.size]
		useful[0] = complex64(t.time[0])
		for i, v := range t.time[1:] {
			useful[t.size-1-i] = complex64(v)
		}
		copy(t.samples[at-guard:at], useful[t.size-guard:])
	}
	t.channel.disturb(t.samples)
}
