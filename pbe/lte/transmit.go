// SPDX-License-Identifier: Apache-2.0

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

// Transmitter is a base station with one cell and a channel: it converts grants into samples. It
// sends synchronisation, reference and broadcast signals, PCFICH and PDCCH. In place of PHICH and
// PDSCH it sends noise of full power, as if everything were granted. It shares the tables of
// positions and sequences with the Receiver; all other code is separate. The same seed and grants
// produce the same samples.
type Transmitter struct {
	// Sent counts grants that were sent, Unencodable those that no message can express, and
	// Unplaced those without room, which a real cell would not have granted.
	Sent, Unencodable, Unplaced int

	cell      Cell
	fftSize   int // samples per symbol
	rnd       *rand.Rand
	fft       *fft
	emulator  *channelEmulator
	codeRate  float64 // upper bound
	pdcchGain float64 // relative to the reference signals

	ports     [2][symbolsPerSubframe][]complex128
	row       []complex128
	time      []complex128
	samples   []complex64
	reference *referenceSignals
	pdcch     [4][]reg // single elements, by CFI
	pcfich    []reg
	pbch      []reg
	scramble  [10][]byte // scrambling of the PDCCH
	cfiBits   [10][4][]byte
	orders    map[int][]int // rate matching, by bits of a stream
	messages  []DCI
	multicast [10]bool // subframes with reference signals in symbol 0 only
}

// NewTransmitter returns a transmitter that sends rate samples a second, with the rates of a
// Receiver, through a channel.
func NewTransmitter(c Cell, rate int, ch Channel, seed uint64) (*Transmitter, error) {
	size := rate / subcarrierSpacing
	if _, err := NewReceiver(rate); err != nil || !c.isSupported() || c.subcarrierCount() >= size {
		return nil, fault.New(fault.Usage, fmt.Errorf("unsupported cell %+v at %d samples per second", c, rate), "")
	}
	t := &Transmitter{pdcchGain: 1, cell: c, fftSize: size, rnd: rand.New(rand.NewPCG(seed, 7)), fft: newFFT(size),
		reference: newReferenceSignals(c), orders: map[int][]int{},
		row: make([]complex128, c.subcarrierCount()), time: make([]complex128, size),
		samples: make([]complex64, subframeLen(size))}
	t.emulator = newChannelEmulator(ch, c, size, t.rnd)
	t.codeRate = codeRateForSNR(ch.SNR)
	for p := range c.Ports {
		for l := range symbolsPerSubframe {
			t.ports[p][l] = make([]complex128, c.subcarrierCount())
		}
	}
	for cfi := 1; cfi <= 3; cfi++ {
		t.pdcch[cfi] = c.singleElements(c.pdcchREGs(cfi))
	}
	pcfich := c.pcfichREGs()
	t.pcfich, t.pbch = c.singleElements(pcfich[:]), c.pbchElements()
	for i := range t.pbch {
		t.pbch[i].k += c.subcarrierCount()/2 - pbchWidth/2
	}
	scramble := make([]byte, pcfichBits)
	for sf := range 10 {
		t.scramble[sf] = make([]byte, 2*len(t.pdcch[3]))
		goldSequence(pdcchInitState(c.ID, sf), t.scramble[sf])
		goldSequence(pcfichInitState(c.ID, sf), scramble)
		for cfi := 1; cfi <= 3; cfi++ {
			for i, s := range scramble {
				t.cfiBits[sf][cfi] = append(t.cfiBits[sf][cfi], cfiCodeBit(cfi, i)^s)
			}
		}
	}
	return t, nil
}

// Cell returns the cell that it sends.
func (t *Transmitter) Cell() Cell { return t.cell }

// singleElements returns the data elements of groups, one by one.
func (c Cell) singleElements(groups []reg) (out []reg) {
	for _, r := range groups {
		for _, k := range c.dataSubcarriers(r) {
			out = append(out, reg{k, r.l})
		}
	}
	return out
}

// SendGrants returns the samples of subframe number, SFN·10 + index, which need not wrap. It uses
// as few control symbols as the grants need. The samples are valid until the next call.
func (t *Transmitter) SendGrants(number int64, grants []cell.Grant) []complex64 {
	index := int(number % 10)
	all, unencodable := t.cell.EncodeGrants(grants, t.messages[:0])
	t.messages = all
	minCFI := 1
	if t.cell.ExtendedPHICH {
		minCFI = 3
	}
	var placed []DCI
	for cfi := minCFI; ; cfi++ {
		placed = t.cell.placeMessages(all, index, 2*len(t.pdcch[cfi])/bitsPerCCE, t.codeRate)
		if len(placed) == len(all) || cfi == 3 {
			t.Sent += len(placed)
			t.Unencodable += unencodable
			t.Unplaced += len(all) - len(placed)
			return t.SendMessages(number, cfi, placed)
		}
	}
}

// SendMessages returns the samples of a subframe with placed messages: it sends RNTI and Payload at
// CCE and Level. Messages must not overlap.
func (t *Transmitter) SendMessages(number int64, cfi int, messages []DCI) []complex64 {
	index := int(number % 10)
	t.fillWithNoise()
	pdcch := t.pdcch[cfi]
	for p := range t.cell.Ports {
		for _, r := range pdcch {
			t.ports[p][r.l][r.k] = 0
		}
	}
	for i := range messages {
		d := &messages[i]
		coded := encodeTailBiting(appendMaskedCRC(slices.Clone(d.Payload), uint16(d.RNTI)), nil)
		bits, scramble := make([]byte, d.Level*bitsPerCCE), t.scramble[index][d.CCE*bitsPerCCE:]
		order := t.rateMatching(len(coded) / codeStreams)
		for i := range bits {
			bits[i] = coded[order[i%len(order)]] ^ scramble[i]
		}
		t.mapBitsToElements(pdcch[d.CCE*bitsPerCCE/2:][:d.Level*bitsPerCCE/2], bits)
	}
	for p := range t.cell.Ports {
		for _, r := range pdcch {
			t.ports[p][r.l][r.k] *= complex(t.pdcchGain, 0)
		}
	}
	t.mapBitsToElements(t.pcfich, t.cfiBits[index][cfi])
	if index == 0 {
		t.sendMIBPart(int(number / 10 % 1024))
	}
	if index%5 == 0 {
		t.sendSyncSignals(index == 5)
	}
	t.sendReferenceSignals(index)
	t.modulateSubframe()
	return t.samples
}

func (t *Transmitter) rateMatching(bits int) []int {
	if t.orders[bits] == nil {
		t.orders[bits] = rateMatchingOrder(bits)
	}
	return t.orders[bits]
}

// fillWithNoise fills all elements with random symbols.
func (t *Transmitter) fillWithNoise() {
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

// mapBitsToElements maps bits to pairs of elements, with transmit diversity if there are two ports.
func (t *Transmitter) mapBitsToElements(at []reg, bits []byte) {
	g := &t.ports
	for i := 0; i < len(at); i += 2 {
		a, b := at[i], at[i+1]
		x, y := qpskSymbol(bits[2*i], bits[2*i+1]), qpskSymbol(bits[2*i+2], bits[2*i+3])
		if t.cell.Ports == 1 {
			g[0][a.l][a.k], g[0][b.l][b.k] = x, y
			continue
		}
		f := complex(math.Sqrt2/2, 0)
		g[0][a.l][a.k], g[0][b.l][b.k] = f*x, f*y
		g[1][a.l][a.k], g[1][b.l][b.k] = -f*cmplx.Conj(y), f*cmplx.Conj(x)
	}
}

// sendMIBPart sends one of the four parts of the MIB.
func (t *Transmitter) sendMIBPart(sfn int) {
	c := t.cell
	var w bitWriter
	w.writeBits(slices.Index([]int{6, 15, 25, 50, 75, 100}, c.PRB), 3)
	w.writeFlag(c.ExtendedPHICH)
	w.writeBits(slices.Index([]int{1, 3, 6, 12}, c.PHICHSixths), 2)
	w.writeBits(sfn>>2, 8)
	w.writeBits(0, 10)
	coded := encodeTailBiting(appendMaskedCRC(w, mibCRCMasks[c.Ports]), nil)
	order := t.rateMatching(len(coded) / codeStreams)
	scramble := make([]byte, 4*pbchBits)
	goldSequence(uint32(c.ID), scramble)
	part := make([]byte, pbchBits)
	for i := range part {
		part[i] = coded[order[i%len(order)]] ^ scramble[sfn%4*pbchBits+i]
	}
	t.mapBitsToElements(t.pbch, part)
}

// sendSyncSignals sends PSS and SSS from the first port.
func (t *Transmitter) sendSyncSignals(second bool) {
	primary, secondary := pssSequence(t.cell.ID%3), sssSequence(t.cell.ID, second)
	for i := range syncLen {
		k := t.cell.subcarrierCount()/2 - syncLen/2 + i
		for p := range t.cell.Ports {
			t.ports[p][pssSymbol][k], t.ports[p][sssSymbol][k] = 0, 0
		}
		t.ports[0][pssSymbol][k], t.ports[0][sssSymbol][k] = primary[i], complex(secondary[i], 0)
	}
}

// sendReferenceSignals sends the reference signals; the other port is silent there.
func (t *Transmitter) sendReferenceSignals(index int) {
	for _, l := range []int{0, 4, 7, 11} {
		if l > 0 && t.multicast[index] {
			continue
		}
		for port := range t.cell.Ports {
			for m, v := range t.reference[2*index+l/symbolsPerSlot][l%symbolsPerSlot/4] {
				k := t.cell.firstCRSSubcarrier(port, l%symbolsPerSlot) + 6*m
				for p := range t.cell.Ports {
					t.ports[p][l][k] = 0
				}
				t.ports[port][l][k] = v
			}
		}
	}
}

// modulateSubframe computes the samples of all subcarriers after the channel.
func (t *Transmitter) modulateSubframe() {
	n := len(t.row)
	scale := complex(1/math.Sqrt(float64(t.fftSize)), 0)
	for l := range symbolsPerSubframe {
		t.emulator.applyResponse(l, &t.ports, t.row)
		clear(t.time)
		for k, v := range t.row[:n/2] {
			t.time[t.fft.order[t.fftSize-n/2+k]] = v * scale
		}
		for k, v := range t.row[n/2:] {
			t.time[t.fft.order[k+1]] = v * scale
		}
		t.fft.transformInPlace(t.time) // an inverse FFT is a forward one in reverse order
		at := symbolStart(t.fftSize, l)
		guard := prefixLen
		if l%symbolsPerSlot == 0 {
			guard = firstPrefixLen
		}
		guard = guard * t.fftSize / 128
		useful := t.samples[at:][:t.fftSize]
		useful[0] = complex64(t.time[0])
		for i, v := range t.time[1:] {
			useful[t.fftSize-1-i] = complex64(v)
		}
		copy(t.samples[at-guard:at], useful[t.fftSize-guard:])
	}
	t.emulator.addImpairments(t.samples)
}
