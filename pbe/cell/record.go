// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"mpbond/base/fault"
)

// A recording holds the subframes of one or more cells in the order in which they were decoded.
// Numbers are unsigned varints (LEB128) where no size is given; bit fields are written most
// significant first.
//
//	recording:  "mpbcell" version(1 byte, 2) count(1 byte) cell… (subframe or self)…
//	cell:       id(1) prb(1)
//	self:       0xF0 rnti(2, big-endian)
//	subframe:   cell(4 bits) grants(low 4 bits; 15: more follow) [grants−15] step grant…
//	grant:      rnti(2, big-endian) format(3 bits) harq(4) N≥1(1)
//	            prb(7 bits) N=2(1) block… (N of them)
//	block:      mcs(5 bits) ndi(1) rv(2) size
//
// step is the zig-zag difference between this number and the last one of the same cell (the first:
// from 0). A subframe without grants is 2 bytes. One of a busy cell with 4 users is about 30: 30 KB
// a second, and half of that compressed.
//
// self is the RNTI of the listening device in all cells from the next subframe on, as its modem
// reports it with each connection to the network; rnti 0 means not connected. Version 1 has no
// self.

// recordMagic begins every recording; the last byte is the version.
const recordMagic = "mpbcell\x02"

// recordSelf begins a self entry: no cell has the number 15.
const recordSelf = 0xF0

// Writer writes a recording. It is not safe for concurrent use.
type Writer struct {
	w    *bufio.Writer
	last [MaxCells]int64
	prb  [MaxCells]uint8
	buf  []byte
}

// NewWriter writes the head: prb[c] is the width of cell c, 0 if there is none. The caller calls
// Flush at the end and closes w.
func NewWriter(w io.Writer, prb [MaxCells]uint8) (*Writer, error) {
	o := &Writer{w: bufio.NewWriter(w), prb: prb}
	b := []byte(recordMagic)
	count := 0
	for c, n := range prb {
		if n > MaxPRB {
			return nil, fmt.Errorf("cell %d is %d resource blocks wide; LTE cells have at most %d", c, n, MaxPRB)
		}
		if n > 0 {
			count++
		}
	}
	b = append(b, byte(count))
	for c, n := range prb {
		if n > 0 {
			b = append(b, byte(c), n)
		}
	}
	_, err := o.w.Write(b)
	return o, err
}

// Write adds one subframe of a cell that the head names.
func (o *Writer) Write(s Subframe) error {
	if !s.hasValidFields() || o.prb[s.Cell] != s.PRB {
		return fmt.Errorf("subframe %d of cell %d cannot be recorded: "+
			"a value is out of range, or the cell is not in the head", s.Number, s.Cell)
	}
	n := len(s.Grants)
	b := append(o.buf[:0], byte(s.Cell)<<4|byte(min(n, 15)))
	if n >= 15 {
		b = binary.AppendUvarint(b, uint64(n-15))
	}
	b = binary.AppendVarint(b, s.Number-o.last[s.Cell])
	o.last[s.Cell] = s.Number
	for _, g := range s.Grants {
		b = binary.BigEndian.AppendUint16(b, uint16(g.RNTI))
		b = append(b, byte(g.Format)<<5|g.HARQ<<1|bitFromBool(g.N > 0), g.PRB<<1|bitFromBool(g.N > 1))
		for _, t := range g.Blocks[:g.N] {
			b = append(b, t.MCS<<3|bitFromBool(t.NDI)<<2|t.RV)
			b = binary.AppendUvarint(b, uint64(t.Size))
		}
	}
	o.buf = b
	_, err := o.w.Write(b)
	return err
}

// WriteSelf records the listening device's RNTI from the next subframe on, 0 for not connected.
func (o *Writer) WriteSelf(r RNTI) error {
	_, err := o.w.Write([]byte{recordSelf, byte(r >> 8), byte(r)})
	return err
}

// Flush writes buffered data.
func (o *Writer) Flush() error { return o.w.Flush() }

func bitFromBool(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// Reader reads a recording. It holds one subframe, however large the input.
type Reader struct {
	// PRB is the width of each cell, 0 where there is none.
	PRB [MaxCells]uint8
	// Self is the listening device's RNTI at the last subframe read. SelfKnown reports whether the
	// recording has named it so far; until then Self is 0.
	Self      RNTI
	SelfKnown bool

	r      *bufio.Reader
	last   [MaxCells]int64
	grants []Grant
}

// NewReader reads the head.
func NewReader(r io.Reader) (*Reader, error) {
	i := &Reader{r: bufio.NewReader(r)}
	head := make([]byte, len(recordMagic)+1)
	if _, err := io.ReadFull(i.r, head); err != nil ||
		string(head[:len(recordMagic)-1]) != recordMagic[:len(recordMagic)-1] {
		if err != nil && !isTruncated(err) {
			return nil, err
		}
		return nil, fault.New(fault.Integrity, errors.New("this is not a recording of control messages"),
			"check the path; `cellwatch watch --record` makes a recording from samples")
	}
	if v, newest := head[len(recordMagic)-1], recordMagic[len(recordMagic)-1]; v == 0 || v > newest {
		return nil, fault.New(fault.Unsupported,
			fmt.Errorf("the recording has version %d; this program reads 1 to %d", v, newest),
			"use a newer version of this program")
	}
	count := head[len(recordMagic)]
	if count > MaxCells {
		return nil, damagedError("%d cells", count)
	}
	for range count {
		var c [2]byte
		if _, err := io.ReadFull(i.r, c[:]); err != nil {
			return nil, explainTruncation(err)
		}
		if c[0] >= MaxCells || c[1] == 0 || c[1] > MaxPRB || i.PRB[c[0]] != 0 {
			return nil, damagedError("cell %d of %d resource blocks", c[0], c[1])
		}
		i.PRB[c[0]] = c[1]
	}
	return i, nil
}

// Read returns the next subframe. At the end it returns io.EOF; if the input is truncated, a fault
// that wraps io.ErrUnexpectedEOF. Grants are valid until the next Read.
func (i *Reader) Read() (Subframe, error) {
	first, err := i.r.ReadByte()
	for err == nil && first == recordSelf {
		var r [2]byte
		if _, err := io.ReadFull(i.r, r[:]); err != nil {
			return Subframe{}, explainTruncation(err)
		}
		i.Self, i.SelfKnown = RNTI(binary.BigEndian.Uint16(r[:])), true
		first, err = i.r.ReadByte()
	}
	if err != nil {
		return Subframe{}, err
	}
	s := Subframe{Cell: ID(first >> 4)}
	if s.Cell >= MaxCells || i.PRB[s.Cell] == 0 {
		return Subframe{}, damagedError("cell %d, which its head does not name", s.Cell)
	}
	s.PRB = i.PRB[s.Cell]
	n := uint64(first & 15)
	if n == 15 {
		more, err := binary.ReadUvarint(i.r)
		if err != nil {
			return Subframe{}, explainTruncation(err)
		}
		n += min(more, MaxGrants+1)
	}
	if n > MaxGrants {
		return Subframe{}, damagedError("more than %d grants in one subframe", MaxGrants)
	}
	step, err := binary.ReadVarint(i.r)
	if err != nil {
		return Subframe{}, explainTruncation(err)
	}
	s.Number = i.last[s.Cell] + step
	if s.Number < 0 || s.Number > maxNumber {
		return Subframe{}, damagedError("subframe number %d", s.Number)
	}
	i.last[s.Cell] = s.Number
	i.grants = i.grants[:0]
	for range n {
		g, err := i.readGrantEntry()
		if err != nil {
			return Subframe{}, err
		}
		i.grants = append(i.grants, g)
	}
	s.Grants = i.grants
	if !s.hasValidFields() {
		return Subframe{}, damagedError("a grant that is invalid in a cell of %d resource blocks", s.PRB)
	}
	return s, nil
}

// readGrantEntry reads a grant and checks its values.
func (i *Reader) readGrantEntry() (Grant, error) {
	var h [4]byte
	if _, err := io.ReadFull(i.r, h[:]); err != nil {
		return Grant{}, explainTruncation(err)
	}
	g := Grant{RNTI: RNTI(binary.BigEndian.Uint16(h[:])), Format: Format(h[2] >> 5), HARQ: h[2] >> 1 & 15,
		PRB: h[3] >> 1,
		N:   h[2]&1 + h[2]&1*(h[3]&1)}
	if h[2]&1 == 0 && h[3]&1 == 1 {
		return Grant{}, damagedError("a second block without a first")
	}
	for b := range g.N {
		c, err := i.r.ReadByte()
		if err != nil {
			return Grant{}, explainTruncation(err)
		}
		size, err := binary.ReadUvarint(i.r)
		if err != nil {
			return Grant{}, explainTruncation(err)
		}
		if size > uint64(maxTBS) {
			return Grant{}, damagedError("a block of %d bits", size)
		}
		g.Blocks[b] = Block{MCS: c >> 3, NDI: c>>2&1 == 1, RV: c & 3, Size: Bits(size)}
	}
	return g, nil
}

func isTruncated(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// explainTruncation returns the error for a recording that ends within an entry.
func explainTruncation(err error) error {
	if !isTruncated(err) {
		return fmt.Errorf("read the recording: %w", err)
	}
	return fault.New(fault.Integrity, fmt.Errorf("the recording is truncated: %w", io.ErrUnexpectedEOF),
		"everything before the end is valid")
}

func damagedError(format string, args ...any) error {
	return fault.New(fault.Integrity, fmt.Errorf("the recording is damaged: it has "+format, args...),
		"everything before this point is valid")
}
