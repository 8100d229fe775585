// SPDX-License-Identifier: Apache-2.0

package console

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// The video that real players decode: H.264 in which each macroblock is told as it is
// (I_PCM, ITU-T H.264 7.3.5), so that no encoder is needed. Pictures are noise.
const (
	wide    = 7 // macroblocks, as many high: 128 kbit a picture
	fps     = 10
	codec   = "avc1.42c01e" // constrained baseline, level 3
	perTick = 90_000 / fps  // of MPEG's clock
)

// bitString writes numbers as H.264 has them.
type bitString struct {
	b    []byte
	free int // bits of the last byte
}

func (s *bitString) u(n int, v uint32) {
	for n--; n >= 0; n-- {
		if s.free == 0 {
			s.b, s.free = append(s.b, 0), 8
		}
		s.free--
		s.b[len(s.b)-1] |= byte(v>>n&1) << s.free
	}
}

func (s *bitString) ue(vs ...uint32) {
	for _, v := range vs {
		n := bits.Len32(v + 1)
		s.u(n-1, 0)
		s.u(n, v+1)
	}
}

// nal ends a unit, in which no three bytes may look like its beginning.
func (s *bitString) nal() (out []byte) {
	s.u(1, 1)
	zeros := 0
	for _, c := range s.b {
		if zeros >= 2 && c <= 3 {
			out, zeros = append(out, 3), 0
		}
		if out = append(out, c); c == 0 {
			zeros++
		} else {
			zeros = 0
		}
	}
	return out
}

func parameters() (sps, pps []byte) {
	s := &bitString{b: []byte{0x67, 66, 0xc0, 30}}
	s.ue(0, 0, 2, 0) // id; frame_num of 4 bits; pictures in order; no references
	s.u(1, 0)
	s.ue(wide-1, wide-1)
	s.u(4, 0b1100) // frames; direct_8x8_inference; no cropping; no VUI
	p := &bitString{b: []byte{0x68}}
	p.ue(0, 0)
	p.u(2, 0)
	p.ue(0, 0, 0)
	p.u(3, 0)
	p.ue(0, 0, 0)
	p.u(3, 0)
	return s.nal(), p.nal()
}

// picture is the n-th one.
func picture(n int) []byte {
	s := &bitString{b: []byte{0x65}}
	s.ue(0, 7, 0) // first macroblock, I, parameters
	s.u(4, 0)
	s.ue(uint32(n % 2))
	s.u(2, 0)
	s.ue(0)
	noise := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	for range wide * wide {
		s.ue(25)
		block := make([]byte, 384)
		_, _ = noise.Read(block)
		for i, c := range block {
			block[i] = 16 + c%200
		}
		s.b, s.free = append(s.b, block...), 0
	}
	return s.nal()
}

func be(n int, v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v)[8-n:] }

// box is one of ISO 14496-12; full has version and flags before the rest.
func box(name string, parts ...[]byte) []byte {
	b := slices.Concat(parts...)
	return slices.Concat(be(4, uint64(8+len(b))), []byte(name), b)
}

func full(name string, flags uint64, parts ...[]byte) []byte {
	return box(name, append([][]byte{be(4, flags)}, parts...)...)
}

func zeros(n int) []byte { return make([]byte, n) }

// initial is the beginning of a fragmented MP4.
func initial() []byte {
	sps, pps := parameters()
	matrix := slices.Concat(be(4, 1<<16), zeros(12), be(4, 1<<16), zeros(12), be(4, 1<<30))
	side := be(2, 16*wide)
	avc := box("avc1", zeros(6), be(2, 1), zeros(16), side, side, be(4, 72<<16), be(4, 72<<16), zeros(4), be(2, 1), zeros(32), be(2, 24), be(2, 0xffff),
		box("avcC", []byte{1, 66, 0xc0, 30, 0xff, 0xe1}, be(2, uint64(len(sps))), sps, []byte{1}, be(2, uint64(len(pps))), pps))
	table := box("stbl", full("stsd", 0, be(4, 1), avc), full("stts", 0, zeros(4)), full("stsc", 0, zeros(4)), full("stsz", 0, zeros(8)), full("stco", 0, zeros(4)))
	media := box("mdia", full("mdhd", 0, zeros(8), be(4, 90_000), zeros(4), be(4, 0x55c40000)), full("hdlr", 0, zeros(4), []byte("vide"), zeros(12), []byte("v\x00")),
		box("minf", full("vmhd", 1, zeros(8)), box("dinf", full("dref", 0, be(4, 1), full("url ", 1))), table))
	track := box("trak", full("tkhd", 3, zeros(8), be(4, 1), zeros(8), zeros(16), matrix, be(4, 16*wide<<16), be(4, 16*wide<<16)), media)
	movie := box("moov", full("mvhd", 0, zeros(8), be(4, 90_000), zeros(4), be(4, 1<<16), be(2, 0x100), zeros(10), matrix, zeros(24), be(4, 2)),
		track, box("mvex", full("trex", 0, be(4, 1), be(4, 1), zeros(12))))
	return slices.Concat(box("ftyp", []byte("iso6"), zeros(4), []byte("iso6mp41dash")), movie)
}

// fragment is n pictures of it from one on.
func fragment(from, n int) []byte {
	var sizes, data []byte
	for i := from; i < from+n; i++ {
		p := picture(i)
		sizes = append(sizes, be(4, uint64(len(p)+4))...)
		data = slices.Concat(data, be(4, uint64(len(p))), p)
	}
	moof := func(at int) []byte {
		return box("moof", full("mfhd", 0, be(4, uint64(from+1))), box("traf", full("tfhd", 0x020028, be(4, 1), be(4, perTick), be(4, 0x02000000)),
			full("tfdt", 1<<24, be(8, uint64(from)*perTick)), full("trun", 0x201, be(4, uint64(n)), be(4, uint64(at)), sizes)))
	}
	return append(moof(len(moof(0))+8), box("mdat", data)...)
}

// index is what a player of DASH finds segments by in one file.
func index(fragments [][]byte, each int) []byte {
	var list []byte
	for _, f := range fragments {
		list = slices.Concat(list, be(4, uint64(len(f))), be(4, uint64(each*perTick)), be(4, 1<<31|1<<28))
	}
	return full("sidx", 0, be(4, 1), be(4, 90_000), zeros(10), be(2, uint64(len(fragments))), list)
}

// transport is n pictures from one on as an MPEG transport stream (ISO 13818-1).
func transport(from, n int) (out []byte) {
	count := map[uint16]byte{}
	packets := func(pid uint16, data []byte, clock uint64, random bool) {
		for first := true; len(data) > 0; first = false {
			var extra []byte // adaptation field
			if first && random {
				extra = slices.Concat([]byte{0x50}, be(4, clock>>1), be(2, clock&1<<15|0x7e00))
			}
			room := 184 - len(extra)
			if extra != nil {
				room--
			}
			if k := room - len(data); k > 0 {
				if extra == nil {
					if k--; k > 0 {
						extra, k = []byte{0}, k-1
					} else {
						extra = []byte{}
					}
				}
				for ; k > 0; k-- {
					extra = append(extra, 0xff)
				}
				room = len(data)
			}
			head := []byte{0x47, byte(pid >> 8), byte(pid), 0x10 | count[pid]&15}
			if first {
				head[1] |= 0x40
			}
			if count[pid]++; extra != nil {
				head[3] |= 0x20
				head = append(head, byte(len(extra)))
			}
			out = slices.Concat(out, head, extra, data[:room])
			data = data[room:]
		}
	}
	section := func(pid uint16, b []byte) {
		b = append(b, be(4, uint64(crcMPEG(b)))...)
		packets(pid, slices.Concat([]byte{0}, b, slices.Repeat([]byte{0xff}, 183-len(b))), 0, false)
	}
	section(0, []byte{0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xf0, 0})
	section(0x1000, []byte{2, 0xb0, 18, 0, 1, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0, 0x1b, 0xe1, 0, 0xf0, 0})
	sps, pps := parameters()
	for i := from; i < from+n; i++ {
		t := uint64(i)*perTick + 90_000
		stamp := []byte{0x21 | byte(t>>30)<<1, byte(t >> 22), byte(t>>14) | 1, byte(t >> 7), byte(t<<1) | 1}
		pes := slices.Concat([]byte{0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5}, stamp, []byte{0, 0, 0, 1, 9, 0x10})
		for _, unit := range [][]byte{sps, pps, picture(i)} {
			pes = slices.Concat(pes, []byte{0, 0, 0, 1}, unit)
		}
		packets(0x100, pes, t, true)
	}
	return out
}

// crcMPEG is that of MPEG sections: CRC-32 from the highest bit on.
func crcMPEG(b []byte) uint32 {
	turned := make([]byte, len(b))
	for i, c := range b {
		turned[i] = bits.Reverse8(c)
	}
	return bits.Reverse32(^crc32.ChecksumIEEE(turned))
}

// encrypted is a segment as AES-128 of HLS has it.
func encrypted(data, key []byte, number int) []byte {
	pad := 16 - len(data)%16
	data = append(slices.Clone(data), slices.Repeat([]byte{byte(pad)}, pad)...)
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	cipher.NewCBCEncrypter(block, append(zeros(8), be(8, uint64(number))...)).CryptBlocks(data, data)
	return data
}
