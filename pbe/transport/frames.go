// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/binary"
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// The frames of a DATA packet follow each other. u is an unsigned varint (LEB128).
//
//	PADDING    0x00
//	PING       0x01                                     elicits an acknowledgement
//	ACK        0x02 largest(u) delay_us(u) oneway_us(4) window_end(u) ranges(u) first(u) { gap(u) length(u) }
//	RADIO      0x03 capacity(u, kbit/s) fair(u, kbit/s) flags(1: bit 0 internet) activated(1)
//	STREAM     0x04 offset(u) length(u) data            elicits an acknowledgement
//	FIN        0x05 offset(u)                           final size of the stream; elicits an acknowledgement
//	CLOSE      0x06 code(u)                             ends the connection; the code is 0 and has no meaning
//	STAMP      0x07 sent_us(4) rtprop_us(u)             when this packet was sent, and the sender's minimum RTT
//	CHALLENGE  0x08 data(8)                             must be answered from where it arrives
//	RESPONSE   0x09 data(8)                             answers a CHALLENGE with the same data
//
// An ACK says that packets largest−first to largest were received. Then, downwards, gap+1 packets
// were not received and length+1 were. oneway_us is the one-way delay of the largest by two
// unsynchronized clocks, modulo 2^32. window_end is the stream offset up to which the peer may
// send. A RADIO frame is PBE-CC's feedback (cc.CellFeedback) and belongs to the ACK that follows.
const (
	framePadding   = 0x00
	framePing      = 0x01
	frameAck       = 0x02
	frameRadio     = 0x03
	frameStream    = 0x04
	frameFin       = 0x05
	frameClose     = 0x06
	frameStamp     = 0x07
	frameChallenge = 0x08
	frameResponse  = 0x09
)

// maxAckRanges bounds the ranges of an ACK. Older ranges are not repeated.
const maxAckRanges = 32

// maxOffset bounds stream offsets and packet numbers.
const maxOffset = 1 << 60

// ackRange is a range of packet numbers from lo to hi, both included.
type ackRange struct{ lo, hi uint64 }

// ackFrame is an ACK frame.
type ackFrame struct {
	delay       time.Duration // between the arrival of the largest packet and this ACK
	oneWayDelay uint32        // µs
	maxData     uint64
	ranges      [maxAckRanges]ackRange // from the largest number downwards
	count       int                    // used elements of ranges, 1 at least
}

// appendEncodedAck appends the encoded frame.
func (a *ackFrame) appendEncodedAck(b []byte) []byte {
	b = append(b, frameAck)
	b = binary.AppendUvarint(b, a.ranges[0].hi)
	b = binary.AppendUvarint(b, uint64(max(0, a.delay.Microseconds())))
	b = binary.BigEndian.AppendUint32(b, a.oneWayDelay)
	b = binary.AppendUvarint(b, a.maxData)
	b = binary.AppendUvarint(b, uint64(a.count-1))
	b = binary.AppendUvarint(b, a.ranges[0].hi-a.ranges[0].lo)
	for i := 1; i < a.count; i++ {
		b = binary.AppendUvarint(b, a.ranges[i-1].lo-a.ranges[i].hi-2)
		b = binary.AppendUvarint(b, a.ranges[i].hi-a.ranges[i].lo)
	}
	return b
}

// Flags of a RADIO frame. Others are ignored.
const (
	radioInternet = 1 << iota
	radioInvalid
	radioInactive
)

// appendRadio appends a RADIO frame.
func appendRadio(b []byte, r cc.CellFeedback) []byte {
	b = append(b, frameRadio)
	b = binary.AppendUvarint(b, uint64(max(0, r.TransportRate/unit.Kbps)))
	b = binary.AppendUvarint(b, uint64(max(0, r.FairRate/unit.Kbps)))
	flags := byte(0)
	if r.Internet {
		flags |= radioInternet
	}
	if r.Invalid {
		flags |= radioInvalid
	}
	if r.Inactive {
		flags |= radioInactive
	}
	return append(b, flags, r.Activated)
}

// appendStamp appends a STAMP frame.
func appendStamp(b []byte, now, rtprop time.Duration) []byte {
	b = append(b, frameStamp)
	b = binary.BigEndian.AppendUint32(b, uint32(now.Microseconds()))
	return binary.AppendUvarint(b, uint64(rtprop.Microseconds()))
}

// frame is a decoded frame. kind determines which fields are valid.
type frame struct {
	kind  byte
	value uint64 // offset, code, or minimum RTT in µs
	sent  uint32 // µs
	data  []byte // refers to the packet's memory
	ack   ackFrame
	radio cc.CellFeedback
}

// isAckEliciting reports whether the peer must acknowledge the packet that contains f.
func (f *frame) isAckEliciting() bool {
	return f.kind == framePing || f.kind == frameStream || f.kind == frameFin
}

// frameReader decodes frames. After the first error it reads only zeros.
type frameReader struct {
	buf    []byte
	failed bool
}

// readNextFrame decodes the next frame into f. r.buf must not be empty. No decoded value exceeds
// maxOffset.
func (r *frameReader) readNextFrame(f *frame) error {
	f.kind = r.readFrameByte()
	switch f.kind {
	case framePadding, framePing:
	case frameAck:
		r.readAckFields(&f.ack)
	case frameRadio:
		f.radio = r.readRadioFields()
	case frameStream:
		f.value = r.readFrameUvarint()
		f.data = r.readFrameBytes(r.readFrameUvarint())
	case frameFin, frameClose:
		f.value = r.readFrameUvarint()
	case frameStamp:
		f.sent, f.value = r.readUint32(), r.readFrameUvarint()
	case frameChallenge, frameResponse:
		f.data = r.readFrameBytes(8)
	default:
		return fmt.Errorf("%w: frame %#x", errMalformed, f.kind)
	}
	if r.failed {
		return fmt.Errorf("%w: in frame %#x", errMalformed, f.kind)
	}
	return nil
}

// rejectPacket records an error and drops the rest of the packet.
func (r *frameReader) rejectPacket() { r.failed, r.buf = true, nil }

// readFrameUvarint reads an unsigned varint of at most maxOffset.
func (r *frameReader) readFrameUvarint() uint64 {
	v, n := binary.Uvarint(r.buf)
	if n <= 0 || v > maxOffset {
		r.rejectPacket()
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

// readFrameBytes reads n bytes. They refer to the packet's memory.
func (r *frameReader) readFrameBytes(n uint64) []byte {
	if n > uint64(len(r.buf)) {
		r.rejectPacket()
		return nil
	}
	p := r.buf[:n]
	r.buf = r.buf[n:]
	return p
}

func (r *frameReader) readUint32() uint32 {
	if p := r.readFrameBytes(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (r *frameReader) readFrameByte() byte {
	if p := r.readFrameBytes(1); p != nil {
		return p[0]
	}
	return 0
}

// readAckFields reads the fields of an ACK frame. Its ranges are in descending order and do not
// overlap.
func (r *frameReader) readAckFields(a *ackFrame) {
	hi := r.readFrameUvarint()
	a.delay = time.Duration(min(r.readFrameUvarint(), 1e9)) * time.Microsecond
	a.oneWayDelay, a.maxData = r.readUint32(), r.readFrameUvarint()
	more, first := r.readFrameUvarint(), r.readFrameUvarint()
	if r.failed || more >= maxAckRanges || first > hi {
		r.rejectPacket()
		return
	}
	a.ranges[0], a.count = ackRange{hi - first, hi}, 1
	for range more {
		gap, length := r.readFrameUvarint(), r.readFrameUvarint()
		lo := a.ranges[a.count-1].lo
		if r.failed || gap+2 > lo || length > lo-gap-2 {
			r.rejectPacket()
			return
		}
		hi := lo - gap - 2
		a.ranges[a.count] = ackRange{hi - length, hi}
		a.count++
	}
}

// readRadioFields reads the fields of a RADIO frame.
func (r *frameReader) readRadioFields() cc.CellFeedback {
	const most = 1e9 // kbit/s: a terabit
	transport, fair := min(r.readFrameUvarint(), most), min(r.readFrameUvarint(), most)
	flags, activated := r.readFrameByte(), r.readFrameByte()
	return cc.CellFeedback{
		TransportRate: unit.Rate(transport) * unit.Kbps,
		FairRate:      unit.Rate(fair) * unit.Kbps,
		Internet:      flags&radioInternet != 0,
		Invalid:       flags&radioInvalid != 0,
		Inactive:      flags&radioInactive != 0,
		Activated:     activated,
	}
}
