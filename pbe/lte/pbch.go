package lte

import "math"

// The broadcast channel (36.211 section 6.6): the middle 72 subcarriers in the
// first four symbols of slot 1, without the elements of reference signals of four
// ports, of which each may be there or not.
const (
	mibBits     = 24
	pbchBits    = 480 // of each of four frames
	pbchSymbols = 4
	pbchWidth   = 72
)

// mibAgreement is what part of the soft bits' weight a MIB must explain, so that
// silence, which decodes to zeros, is none.
const mibAgreement = 0.6

// mibMasks are what the CRC of the MIB is turned by, for each number of ports
// (36.212 table 5.3.1.1-1).
var mibMasks = map[int]uint16{1: 0x0000, 2: 0xFFFF, 4: 0x5555}

// mib is what the broadcast channel says (36.331 section 6.2.2).
type mib struct {
	cell Cell
	sfn  int
}

// pbchElements are the elements of the broadcast channel in the order of its
// symbols, from the cell's middle on, as if it were 6 PRB wide.
func (c Cell) pbchElements() []reg {
	var out []reg
	for l := range pbchSymbols {
		for k := range pbchWidth {
			if l > 1 || k%3 != c.ID%3 {
				out = append(out, reg{k, perSlot + l})
			}
		}
	}
	return out
}

// broadcast decodes the MIB.
type broadcast struct {
	viterbi  viterbi
	scramble []byte
	order    []int
	word     [mibBits + crcBits]byte
}

func newBroadcast(id int) *broadcast {
	b := &broadcast{scramble: make([]byte, 4*pbchBits), order: matching(mibBits + crcBits)}
	gold(uint32(id), b.scramble)
	return b
}

// decode reads the MIB from the soft bits of one frame, made for ports. It tries
// each of the four frames that it could be (36.211 section 6.6.1).
func (b *broadcast) decode(soft []float32, id, ports int) (mib, bool) {
	for part := range 4 {
		var sum [streams * (mibBits + crcBits)]float32
		for i, s := range soft {
			// 480 bits are four times round the circular buffer of 120.
			at := b.order[i%len(b.order)]
			if b.scramble[part*pbchBits+i] == 1 {
				s = -s
			}
			sum[at] += s
		}
		var whole [len(sum)]int32
		quantise(sum[:], whole[:])
		b.viterbi.decode(whole[:], b.word[:], math.MinInt32)
		if uint16(crcMask(b.word[:])) != mibMasks[ports] || explained(sum[:], encode(b.word[:], nil)) < mibAgreement {
			continue
		}
		f := fields(b.word[:mibBits])
		m := mib{cell: Cell{ID: id, Ports: ports}}
		width := f.take(3)
		if width > 5 {
			continue
		}
		m.cell.PRB = [...]int{6, 15, 25, 50, 75, 100}[width]
		m.cell.Extended = f.take(1) == 1
		m.cell.Sixths = [...]int{1, 3, 6, 12}[f.take(2)]
		m.sfn = f.take(8)<<2 | part
		return m, true
	}
	return mib{}, false
}

// quantise scales soft bits to whole numbers. It returns the scale, and how much
// of what was scaled was lost.
func quantise(soft []float32, out []int32) (scale, lost float32) {
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

// explained is the part of the weight of soft that coded explains.
func explained(soft []float32, coded []byte) float32 {
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
