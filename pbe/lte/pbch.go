// SPDX-License-Identifier: Apache-2.0

package lte

import "math"

// The broadcast channel (36.211 section 6.6): the middle 72 subcarriers in the first four symbols
// of slot 1, without the elements of the reference signals of four ports, whether these are sent or
// not.
const (
	mibBits     = 24
	pbchBits    = 480 // in each of four frames
	pbchSymbols = 4
	pbchWidth   = 72
)

// minMIBAgreement is the part of the soft bits' weight that a MIB must explain. It rejects silence,
// which decodes to zeros.
const minMIBAgreement = 0.6

// mibCRCMasks are the CRC masks of the MIB, by number of ports (36.212 table 5.3.1.1-1).
var mibCRCMasks = map[int]uint16{1: 0x0000, 2: 0xFFFF, 4: 0x5555}

// mib is the content of the broadcast channel (36.331 section 6.2.2).
type mib struct {
	cell Cell
	sfn  int
}

// pbchElements returns the elements of the broadcast channel in the order of its symbols, as if the
// cell were 6 PRB wide.
func (c Cell) pbchElements() []reg {
	var out []reg
	for l := range pbchSymbols {
		for k := range pbchWidth {
			if l > 1 || k%3 != c.ID%3 {
				out = append(out, reg{k, symbolsPerSlot + l})
			}
		}
	}
	return out
}

// pbchDecoder decodes the MIB from soft bits.
type pbchDecoder struct {
	viterbi  viterbiDecoder
	scramble []byte
	order    []int
	word     [mibBits + crcBits]byte
}

func newPBCHDecoder(id int) *pbchDecoder {
	b := &pbchDecoder{scramble: make([]byte, 4*pbchBits), order: rateMatchingOrder(mibBits + crcBits)}
	goldSequence(uint32(id), b.scramble)
	return b
}

// decodeMIB decodes the MIB from the soft bits of one frame, with the given number of ports. It
// tries each of the four frames that it could be (36.211 section 6.6.1), beginning with first.
func (b *pbchDecoder) decodeMIB(soft []float32, id, ports, first int) (mib, bool) {
	for i := range 4 {
		part := (first + i) % 4
		var sum [codeStreams * (mibBits + crcBits)]float32
		for i, s := range soft {
			// 480 bits fill the circular buffer of 120 four times.
			at := b.order[i%len(b.order)]
			if b.scramble[part*pbchBits+i] == 1 {
				s = -s
			}
			sum[at] += s
		}
		var quantised [len(sum)]int32
		quantiseSoftBits(sum[:], quantised[:])
		b.viterbi.decodeBits(quantised[:], b.word[:], math.MinInt32)
		if uint16(recoverCRCMask(b.word[:])) != mibCRCMasks[ports] ||
			explainedWeight(sum[:], encodeTailBiting(b.word[:], nil)) < minMIBAgreement {
			continue
		}
		f := bitReader(b.word[:mibBits])
		m := mib{cell: Cell{ID: id, Ports: ports}}
		width := f.readBits(3)
		if width > 5 {
			continue
		}
		m.cell.PRB = [...]int{6, 15, 25, 50, 75, 100}[width]
		m.cell.ExtendedPHICH = f.readBits(1) == 1
		m.cell.PHICHSixths = [...]int{1, 3, 6, 12}[f.readBits(2)]
		m.sfn = f.readBits(8)<<2 | part
		return m, true
	}
	return mib{}, false
}

// quantiseSoftBits scales soft bits to integers. It returns the scale, and the rounding loss in
// scaled units.
func quantiseSoftBits(soft []float32, out []int32) (scale, lost float32) {
	var sum float32
	for _, s := range soft {
		sum += max(s, -s)
	}
	if sum == 0 {
		clear(out)
		return 0, 0
	}
	scale = 64 * float32(len(soft)) / sum
	for i, s := range soft {
		s *= scale
		out[i] = int32(min(max(s, -255), 255))
		lost += max(s-float32(out[i]), float32(out[i])-s)
	}
	return scale, lost
}

// explainedWeight returns the part of the weight of soft that coded explains.
func explainedWeight(soft []float32, coded []byte) float32 {
	var fit, all float32
	for i, s := range soft {
		all += max(s, -s)
		if coded[i] == 1 {
			s = -s
		}
		fit += s
	}
	return fit / max(all, 1e-30)
}

// mibReader reads the MIBs of one cell.
type mibReader struct {
	// grid has the middle subcarriers of symbols 7 to 11 of subframe 0.
	grid        *grid
	estimator   *channelEstimator
	softener    softener
	pbch        *pbchDecoder
	elements    []reg
	bits        []float32
	lateSignals []complex128 // reference signals of ports 2 and 3
}

func newMIBReader(id int) *mibReader {
	view := Cell{ID: id, PRB: 6, Ports: 2, PHICHSixths: 1}
	return &mibReader{grid: newResourceGrid(pbchWidth, 7, 8, 9, 10, 11), estimator: newChannelEstimator(view),
		pbch: newPBCHDecoder(id), elements: view.pbchElements(),
		softener: softener{cell: view, channel: [2][]complex128{make([]complex128, pbchWidth),
			make([]complex128, pbchWidth)}}}
}

// readGridMIB reads the MIB in the grid, for each of the given numbers of ports. It tries one of
// the four possible frames first.
func (r *mibReader) readGridMIB(first int, ports ...int) (mib, bool) {
	for port := range r.softener.channel {
		r.estimator.estimateChannel(r.grid, port, 7, 1, r.softener.channel[port])
	}
	for _, n := range ports {
		if n == 4 {
			return r.readFourPorts()
		}
		r.softener.cell.Ports = n
		r.softener.measurePower()
		r.bits = r.bits[:0]
		for i := 0; i < len(r.elements); i += 2 {
			a, b := r.elements[i], r.elements[i+1]
			r.bits = r.softener.appendPairBits(r.grid[a.l], a.k, b.k, r.bits)
		}
		if m, ok := r.pbch.decodeMIB(r.bits, r.softener.cell.ID, n, first); ok {
			return m, true
		}
	}
	return mib{}, false
}
