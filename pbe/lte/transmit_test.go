// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math/rand/v2"
	"slices"
	"testing"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte/tbs"
)

// transmitter sends random messages at random locations.
type transmitter struct {
	cell Cell
	size int
	seed uint64
	rnd  *rand.Rand
	// twoBits means that users have CSI requests of two bits.
	twoBits bool
	// rntis are the users.
	rntis []cell.RNTI
	// gain is the power of the PDCCH over the reference signals, in dB.
	gain float64
	sent []sent
	cfis []int
	// numbers are the numbers of the subframes.
	numbers   []int64
	multicast [10]bool
}

// sent is one transmitted DCI.
type sent struct {
	subframe int // counted from the first
	d        DCI
}

func newTransmitter(c Cell, size int, seed uint64) *transmitter {
	t := &transmitter{cell: c, size: size, seed: seed, rnd: rand.New(rand.NewPCG(seed, 7))}
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

// message returns a DCI of random fields that can be sent at a location.
func (t *transmitter) message(at cceLocation) (DCI, bool) {
	r := t.rntis[t.rnd.IntN(len(t.rntis))]
	formats := []cell.Format{cell.Format0, cell.Format1A, cell.Format1, cell.Format2, cell.Format2A}[:1+2*t.cell.Ports]
	sizes := t.cell.dciFormatSizes(t.twoBits)
	if t.rnd.IntN(4) == 0 && inCommonSpace(at.level, at.first, at.cces) {
		sizes = t.cell.dciFormatSizes(false)
		formats = formats[:2]
		if t.rnd.IntN(2) == 0 {
			r = []cell.RNTI{rntiSI, rntiP, 3}[t.rnd.IntN(3)]
			formats = []cell.Format{cell.Format1A, cell.Format1C}
		}
	} else if !inUserSpace(r, at.subframe, at.level, at.first, at.cces) {
		return DCI{}, false
	}
	f := formats[t.rnd.IntN(len(formats))]
	if (sizes[f]+crcBits)*4 > at.level*bitsPerCCE*3 {
		return DCI{}, false // a code rate over 3/4 needs more than 15 dB
	}
	for range 1000 {
		d := DCI{RNTI: r, Format: f, CCE: at.first, Level: at.level, Payload: t.bits(sizes[f])}
		if f == cell.Format0 {
			d.Payload[0] = 0
		} else if f == cell.Format1A {
			d.Payload[0] = 1
		}
		clear(d.Payload[sizes[f]-4:])
		if t.cell.parseDCI(&d) && (f != cell.Format0 || isUplinkSize(d.PRB)) {
			return d, true
		}
	}
	return DCI{}, false
}

// subframe generates the messages of the next subframe.
func (t *transmitter) subframe(sfn, index, cfi int) {
	cces := len(t.cell.pdcchREGs(cfi)) / regsPerCCE
	used := make([]bool, cces)
	for range 6 {
		level := aggregationLevels[t.rnd.IntN(len(aggregationLevels))]
		if level > cces {
			continue
		}
		first := t.rnd.IntN(cces/level) * level
		d, ok := t.message(cceLocation{first, level, cces, index})
		if !ok || slices.Contains(used[first:first+level], true) {
			continue
		}
		for i := range level {
			used[first+i] = true
		}
		t.sent = append(t.sent, sent{len(t.cfis), d})
	}
	t.cfis, t.numbers = append(t.cfis, cfi), append(t.numbers, int64(sfn*10+index))
}

// air is the channel: a gain and phase of each port, an echo, a carrier offset, and noise.
type air struct {
	gain   [2]complex128
	echo   float64 // amplitude of the echo, relative to the first path
	delay  int     // of the echo, in samples
	offset float64 // Hz
	snr    float64 // dB; of a full element
}

// transmitOver returns the received samples.
func (t *transmitter) transmitOver(a air) (out []complex64) {
	ch := Channel{Offset: a.offset, SNR: a.snr}
	for p, g := range a.gain {
		ch.Taps[p] = []Tap{{Gain: g}, {Gain: g * complex(0, a.echo),
			Delay: float64(a.delay) / float64(t.size*subcarrierSpacing)}}
	}
	tx, err := NewTransmitter(t.cell, t.size*subcarrierSpacing, ch, t.seed)
	if err != nil {
		panic(err)
	}
	for i, number := range t.numbers {
		var messages []DCI
		for _, s := range t.sent {
			if s.subframe == i {
				messages = append(messages, s.d)
			}
		}
		out = append(out, tx.SendMessages(number, t.cfis[i], messages)...)
	}
	return out
}

// clearUnsentFields clears the fields of a payload that a DCI does not keep.
func (c Cell) clearUnsentFields(d *DCI) {
	at, riv := c.headerBits()+c.rbgCount(), rivBitCount(c.PRB)
	zero := func(from, n int) { clear(d.Payload[from:min(from+n, len(d.Payload))]) }
	switch d.Format {
	case cell.Format0:
		zero(1, 1) // hopping
		zero(2+riv+6, 99)
	case cell.Format1A:
		zero(2+riv+5+3+1+2, 1)
		if d.RNTI.IsUser() {
			zero(2+riv+5+3+1+2, 2) // power
			break
		}
		zero(2+riv+5, 3) // HARQ
		if d.Payload[1] == 0 || c.PRB < 50 {
			zero(2+riv+5+3, 1) // the gap
		}
	case cell.Format1:
		zero(at+5+3+1+2, 2)
	case cell.Format2, cell.Format2A:
		zero(at, 2)
		zero(at+5, 1)
		zero(at+6+16, 3)
	}
}

// widths are all widths of LTE cells.
var widths = []int{6, 15, 25, 50, 75, 100}

// TestWrite checks that all messages can be encoded and parse to the same content, and that parsed
// random bits encode to the same bits, except for fields that a DCI does not keep and the few
// allocations with two encodings.
func TestWrite(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, prb := range widths {
		for ports := 1; ports <= 2; ports++ {
			c := Cell{PRB: prb, Ports: ports, PHICHSixths: 6}
			for f := cell.Format0; f <= cell.Format2A; f++ {
				read, same := 0, 0
				for range 800 {
					rnti := []cell.RNTI{0x4601, 0x1234, rntiSI, 5}[rnd.IntN(4)]
					if f == cell.Format1C == rnti.IsUser() || f != cell.Format1A && f != cell.Format1C &&
						!rnti.IsUser() {
						continue
					}
					d := DCI{RNTI: rnti, Format: f, Payload: make([]byte, c.dciFormatSizes(false)[f])}
					for i := range d.Payload {
						d.Payload[i] = byte(rnd.IntN(2))
					}
					d.Payload[0] &^= byte(bitFromNDI(f == cell.Format0))
					d.Payload[0] |= byte(bitFromNDI(f == cell.Format1A))
					clear(d.Payload[len(d.Payload)-4:])
					c.clearUnsentFields(&d)
					if !c.parseDCI(&d) {
						continue
					}
					read++
					again := d
					if !c.encodeDCI(&again, len(d.Payload)) {
						t.Fatalf("%d PRB, format %v: %+v cannot be written", prb, f, d)
					}
					back := DCI{RNTI: rnti, Format: f, Payload: again.Payload}
					if !c.parseDCI(&back) || !equalContent(&back, &d) {
						t.Fatalf("%d PRB: %+v written and read is %+v", prb, d, back)
					}
					third := back
					if !c.encodeDCI(&third, len(d.Payload)) || !slices.Equal(third.Payload, again.Payload) {
						t.Fatalf("%d PRB: %+v written again is %v", prb, again, third.Payload)
					}
					typeOne := f >= cell.Format1 && f != cell.Format1C && c.headerBits() == 1 && d.Payload[0] == 1
					if typeOne || slices.Equal(again.Payload, d.Payload) {
						same++
					}
				}
				if read < 50 || same < read*95/100 {
					t.Errorf("%d PRB, format %v: %d read, %d written as they were", prb, f, read, same)
				}
			}
		}
	}
}

// TestTransmitter checks that grants are decoded, through fading and with a carrier offset too, and
// that those without a message or without room are counted.
func TestTransmitter(t *testing.T) {
	for _, c := range []struct {
		cell Cell
		rate int
		snr  float64
	}{
		{Cell{ID: 7, PRB: 6, Ports: 1, PHICHSixths: 6}, 1_920_000, 20},
		{Cell{ID: 301, PRB: 25, Ports: 2, PHICHSixths: 6}, 7_680_000, 10},
		{Cell{ID: 18, PRB: 50, Ports: 2, PHICHSixths: 3, ExtendedPHICH: true}, 15_360_000, 20},
	} {
		tx, err := NewTransmitter(c.cell, c.rate, NewEPAChannel(5, 1200, c.snr, 1), 1)
		r, err2 := NewReceiver(c.rate)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		rnd := rand.New(rand.NewPCG(9, 9))
		want := map[int][]cell.Grant{}
		matched, sent, wrong := 0, 0, 0
		r.OnSubframe = func(s *Subframe) {
			for i := range s.DCIs {
				g := s.DCIs[i].Grant()
				k := slices.Index(want[s.SFN*10+s.Index], g)
				if k < 0 {
					wrong++
					continue
				}
				matched++
			}
		}
		p := c.cell.rbgSize()
		for n := range 40 {
			var all []cell.Grant
			control, user := 1+rnd.IntN(3), cell.RNTI(0x100+rnd.IntN(0xF000))
			all = append(all, cell.Grant{RNTI: user, Format: cell.Format1A, PRB: uint8(control), N: 1, HARQ: 1,
				Blocks: [2]cell.Block{{MCS: 4, Size: cell.Bits(tbs.Size(4, control))}}})
			prb := c.cell.PRB - (control+p-1)/p*p
			g := cell.Grant{RNTI: 0x4601, Format: cell.Format1, PRB: uint8(prb), HARQ: uint8(n % 8), N: 1,
				Blocks: [2]cell.Block{{MCS: 20, NDI: n%16 > 7, Size: cell.Bits(tbs.Size(18, prb))}}}
			if c.cell.Ports == 2 {
				g.Format, g.N = cell.Format2, 2
				g.Blocks[1] = cell.Block{MCS: 30, RV: 2}
				if n%5 == 0 {
					g.Blocks[0] = disabledBlock
				}
			}
			all = append(all, g)
			want[n] = all
			r.Feed(tx.SendGrants(int64(n), all))
		}
		r.Close()
		sent = 80
		if tx.Sent != sent || matched < sent*95/100 || wrong > 0 {
			t.Errorf("%+v: %d sent, %d not, %d matched, %d wrong", c, tx.Sent, tx.Unencodable, matched, wrong)
		}
		// Part of a group, a wrong size, no room, too many blocks.
		odd := cell.Grant{RNTI: 0x4601, Format: cell.Format1, PRB: 1, N: 1, Blocks: [2]cell.Block{{MCS: 3, Size: 1}}}
		wide := odd
		wide.Format, wide.PRB = cell.Format1A, 110
		many := []cell.Grant{odd, wide}
		for i := range cell.MaxGrants {
			many = append(many, cell.Grant{RNTI: cell.RNTI(0x4000 + i), Format: cell.Format0, PRB: 1, N: 1,
				Blocks: [2]cell.Block{{MCS: 29, RV: 1}}})
		}
		before := tx.Sent
		tx.SendGrants(40, many)
		if tx.Unencodable < 2 || tx.Sent == before || tx.Unplaced == 0 && c.cell.PRB > 6 ||
			tx.Sent-before+tx.Unencodable+tx.Unplaced != len(many) {
			t.Errorf("%+v: %d sent of %d, %d not, %d without a place", c, tx.Sent-before, len(many), tx.Unencodable,
				tx.Unplaced)
		}
	}
}
