// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"time"
)

// SubflowAck acknowledges the bytes received on one subflow.
type SubflowAck struct {
	Subflow SubflowID
	// Received counts the bytes of all whole frames received on this subflow after its MP_JOIN or
	// MP_OK, headers included. A subflow is ordered and reliable, so this number acknowledges every
	// frame before it.
	Received uint64
}

// Ack acknowledges data on all subflows at once. So it may travel on any of them, and the next one
// makes up for a lost one. An end sends no ACK for frames that are only ACK or PIPE_STATE.
//
//	delay, µs | then for each subflow: subflow | received
//
// Delay is the time from the arrival of the newest acknowledged byte to the sending of this frame.
type Ack struct {
	Delay    time.Duration
	Subflows []SubflowAck
}

// Type implements Frame.
func (Ack) Type() Type { return TypeAck }

// AppendPayload implements Frame.
func (f Ack) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(max(f.Delay, 0)/time.Microsecond))
	for _, a := range f.Subflows {
		b = binary.AppendUvarint(b, uint64(a.Subflow))
		b = binary.AppendUvarint(b, a.Received)
	}
	return b
}

// ParseAck parses the payload of an ACK into subflows[:0].
func ParseAck(b []byte, subflows []SubflowAck) (f Ack, err error) {
	p := parser{b: b}
	us := p.readUvarint()
	p.bad = p.bad || us > uint64(time.Hour/time.Microsecond)
	f.Delay = time.Duration(us) * time.Microsecond
	f.Subflows = subflows[:0]
	for len(p.b) > 0 && !p.bad && len(f.Subflows) < MaxAcks {
		f.Subflows = append(f.Subflows, SubflowAck{Subflow: p.readSubflowID(), Received: p.readUvarint()})
	}
	return f, p.checkFrameEnd(TypeAck)
}
