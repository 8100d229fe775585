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

// The test video is H.264 that real players decode. Each macroblock is stored uncompressed (I_PCM,
// ITU-T H.264 7.3.5), so no encoder is needed. The pictures are noise.
const (
	sideMacroblocks = 7 // width and height in macroblocks: 128 kbit a picture
	fps             = 10
	codec           = "avc1.42c01e" // constrained baseline profile, level 3
	ticksPerPicture = 90_000 / fps  // in units of the 90 kHz MPEG clock
)

// bitString collects the bits of an H.264 syntax structure.
type bitString struct {
	b    []byte
	free int // unused bits of the last byte
}

func (s *bitString) writeBits(n int, v uint32) {
	for n--; n >= 0; n-- {
		if s.free == 0 {
			s.b, s.free = append(s.b, 0), 8
		}
		s.free--
		s.b[len(s.b)-1] |= byte(v>>n&1) << s.free
	}
}

func (s *bitString) writeExpGolomb(vs ...uint32) {
	for _, v := range vs {
		n := bits.Len32(v + 1)
		s.writeBits(n-1, 0)
		s.writeBits(n, v+1)
	}
}

// finishUnit ends a NAL unit and inserts emulation prevention bytes, so that the unit does not
// contain a start code.
func (s *bitString) finishUnit() (out []byte) {
	s.writeBits(1, 1)
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

func parameterSets() (sps, pps []byte) {
	s := &bitString{b: []byte{0x67, 66, 0xc0, 30}}
	s.writeExpGolomb(0, 0, 2, 0) // ID; 4-bit frame_num; pictures in output order; no reference frames
	s.writeBits(1, 0)
	s.writeExpGolomb(sideMacroblocks-1, sideMacroblocks-1)
	s.writeBits(4, 0b1100) // frames only; direct_8x8_inference; no cropping; no VUI
	p := &bitString{b: []byte{0x68}}
	p.writeExpGolomb(0, 0)
	p.writeBits(2, 0)
	p.writeExpGolomb(0, 0, 0)
	p.writeBits(3, 0)
	p.writeExpGolomb(0, 0, 0)
	p.writeBits(3, 0)
	return s.finishUnit(), p.finishUnit()
}

// encodePicture returns picture n as a NAL unit.
func encodePicture(n int) []byte {
	s := &bitString{b: []byte{0x65}}
	s.writeExpGolomb(0, 7, 0) // first macroblock, I slice, parameter set
	s.writeBits(4, 0)
	s.writeExpGolomb(uint32(n % 2))
	s.writeBits(2, 0)
	s.writeExpGolomb(0)
	noise := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	for range sideMacroblocks * sideMacroblocks {
		s.writeExpGolomb(25)
		block := make([]byte, 384)
		_, _ = noise.Read(block)
		for i, c := range block {
			block[i] = 16 + c%200
		}
		s.b, s.free = append(s.b, block...), 0
	}
	return s.finishUnit()
}

func bigEndian(n int, v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v)[8-n:] }

// mp4Box returns a box of ISO 14496-12. A fullBox has version and flags before its content.
func mp4Box(name string, parts ...[]byte) []byte {
	b := slices.Concat(parts...)
	return slices.Concat(bigEndian(4, uint64(8+len(b))), []byte(name), b)
}

func fullBox(name string, flags uint64, parts ...[]byte) []byte {
	return mp4Box(name, append([][]byte{bigEndian(4, flags)}, parts...)...)
}

func zeroBytes(n int) []byte { return make([]byte, n) }

// initSegment returns the initialization segment of a fragmented MP4.
func initSegment() []byte {
	sps, pps := parameterSets()
	matrix := slices.Concat(bigEndian(4, 1<<16), zeroBytes(12), bigEndian(4, 1<<16), zeroBytes(12), bigEndian(4, 1<<30))
	side := bigEndian(2, 16*sideMacroblocks)
	avc := mp4Box("avc1", zeroBytes(6), bigEndian(2, 1), zeroBytes(16), side, side,
		bigEndian(4, 72<<16), bigEndian(4, 72<<16), zeroBytes(4), bigEndian(2, 1), zeroBytes(32),
		bigEndian(2, 24), bigEndian(2, 0xffff),
		mp4Box("avcC", []byte{1, 66, 0xc0, 30, 0xff, 0xe1},
			bigEndian(2, uint64(len(sps))), sps, []byte{1}, bigEndian(2, uint64(len(pps))), pps))
	table := mp4Box("stbl",
		fullBox("stsd", 0, bigEndian(4, 1), avc),
		fullBox("stts", 0, zeroBytes(4)),
		fullBox("stsc", 0, zeroBytes(4)),
		fullBox("stsz", 0, zeroBytes(8)),
		fullBox("stco", 0, zeroBytes(4)))
	media := mp4Box("mdia",
		fullBox("mdhd", 0, zeroBytes(8), bigEndian(4, 90_000), zeroBytes(4), bigEndian(4, 0x55c40000)),
		fullBox("hdlr", 0, zeroBytes(4), []byte("vide"), zeroBytes(12), []byte("v\x00")),
		mp4Box("minf", fullBox("vmhd", 1, zeroBytes(8)),
			mp4Box("dinf", fullBox("dref", 0, bigEndian(4, 1), fullBox("url ", 1))), table))
	track := mp4Box("trak",
		fullBox("tkhd", 3, zeroBytes(8), bigEndian(4, 1), zeroBytes(8), zeroBytes(16), matrix,
			bigEndian(4, 16*sideMacroblocks<<16), bigEndian(4, 16*sideMacroblocks<<16)),
		media)
	movie := mp4Box("moov",
		fullBox("mvhd", 0, zeroBytes(8), bigEndian(4, 90_000), zeroBytes(4), bigEndian(4, 1<<16),
			bigEndian(2, 0x100), zeroBytes(10), matrix, zeroBytes(24), bigEndian(4, 2)),
		track, mp4Box("mvex", fullBox("trex", 0, bigEndian(4, 1), bigEndian(4, 1), zeroBytes(12))))
	return slices.Concat(mp4Box("ftyp", []byte("iso6"), zeroBytes(4), []byte("iso6mp41dash")), movie)
}

// mediaFragment returns a movie fragment with n pictures, beginning with picture from.
func mediaFragment(from, n int) []byte {
	var sizes, data []byte
	for i := from; i < from+n; i++ {
		p := encodePicture(i)
		sizes = append(sizes, bigEndian(4, uint64(len(p)+4))...)
		data = slices.Concat(data, bigEndian(4, uint64(len(p))), p)
	}
	moof := func(at int) []byte {
		return mp4Box("moof", fullBox("mfhd", 0, bigEndian(4, uint64(from+1))), mp4Box("traf",
			fullBox("tfhd", 0x020028, bigEndian(4, 1), bigEndian(4, ticksPerPicture), bigEndian(4, 0x02000000)),
			fullBox("tfdt", 1<<24, bigEndian(8, uint64(from)*ticksPerPicture)),
			fullBox("trun", 0x201, bigEndian(4, uint64(n)), bigEndian(4, uint64(at)), sizes)))
	}
	return append(moof(len(moof(0))+8), mp4Box("mdat", data)...)
}

// segmentIndex returns the index by which DASH players find segments in one file. Each fragment has
// each pictures.
func segmentIndex(fragments [][]byte, each int) []byte {
	var list []byte
	for _, f := range fragments {
		list = slices.Concat(list, bigEndian(4, uint64(len(f))), bigEndian(4, uint64(each*ticksPerPicture)),
			bigEndian(4, 1<<31|1<<28))
	}
	return fullBox("sidx", 0, bigEndian(4, 1), bigEndian(4, 90_000), zeroBytes(10),
		bigEndian(2, uint64(len(fragments))), list)
}

// transportStream returns n pictures, beginning with picture from, as an MPEG transport stream
// (ISO 13818-1).
func transportStream(from, n int) (out []byte) {
	count := map[uint16]byte{}
	packets := func(pid uint16, data []byte, clock uint64, random bool) {
		for first := true; len(data) > 0; first = false {
			var extra []byte // adaptation field
			if first && random {
				extra = slices.Concat([]byte{0x50}, bigEndian(4, clock>>1), bigEndian(2, clock&1<<15|0x7e00))
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
		b = append(b, bigEndian(4, uint64(crcMPEG(b)))...)
		packets(pid, slices.Concat([]byte{0}, b, slices.Repeat([]byte{0xff}, 183-len(b))), 0, false)
	}
	section(0, []byte{0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xf0, 0})
	section(0x1000, []byte{2, 0xb0, 18, 0, 1, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0, 0x1b, 0xe1, 0, 0xf0, 0})
	sps, pps := parameterSets()
	for i := from; i < from+n; i++ {
		t := uint64(i)*ticksPerPicture + 90_000
		stamp := []byte{0x21 | byte(t>>30)<<1, byte(t >> 22), byte(t>>14) | 1, byte(t >> 7), byte(t<<1) | 1}
		pes := slices.Concat([]byte{0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5}, stamp, []byte{0, 0, 0, 1, 9, 0x10})
		for _, unit := range [][]byte{sps, pps, encodePicture(i)} {
			pes = slices.Concat(pes, []byte{0, 0, 0, 1}, unit)
		}
		packets(0x100, pes, t, true)
	}
	return out
}

// crcMPEG returns the CRC-32 of MPEG sections, which processes the highest bit first.
func crcMPEG(b []byte) uint32 {
	turned := make([]byte, len(b))
	for i, c := range b {
		turned[i] = bits.Reverse8(c)
	}
	return bits.Reverse32(^crc32.ChecksumIEEE(turned))
}

// encryptAES encrypts segment number as HLS does with METHOD=AES-128.
func encryptAES(data, key []byte, number int) []byte {
	pad := 16 - len(data)%16
	data = append(slices.Clone(data), slices.Repeat([]byte{byte(pad)}, pad)...)
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	cipher.NewCBCEncrypter(block, append(zeroBytes(8), bigEndian(8, uint64(number))...)).CryptBlocks(data, data)
	return data
}
