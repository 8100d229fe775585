// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"time"
)

// Expect, EXPECT, reports to the server where in a stream the primary expects the message to end that
// the server sends, and when the app needs it. It may get lost, may come late or before OPEN, and may
// be wrong.
//
//	stream | bytes that the app has read | position after the last byte; 0: unknown |
//	needed in (µs); 0: as soon as possible
type Expect struct {
	Stream   StreamID
	At, End  DataSeq
	NeededIn time.Duration // up to maxNeededIn
}

// maxNeededIn bounds Expect.NeededIn.
const maxNeededIn = time.Hour

// Type implements Frame.
func (Expect) Type() Type { return TypeExpect }

// AppendPayload implements Frame. It bounds the fields.
func (f Expect) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.Stream))
	b = binary.AppendUvarint(b, uint64(min(f.At, MaxSeq)))
	b = binary.AppendUvarint(b, uint64(min(f.End, MaxSeq)))
	return binary.AppendUvarint(b, uint64(min(max(f.NeededIn, 0), maxNeededIn).Microseconds()))
}

// ParseExpect parses the payload of an EXPECT.
func ParseExpect(b []byte) (f Expect, err error) {
	p := parser{b: b}
	f.Stream = p.readStreamID()
	at, end, in := p.readUvarint(), p.readUvarint(), p.readUvarint()
	p.bad = p.bad || max(at, end) > uint64(MaxSeq) || in > uint64(maxNeededIn.Microseconds())
	f.At, f.End = DataSeq(at), DataSeq(end)
	if !p.bad {
		f.NeededIn = time.Duration(in) * time.Microsecond
	}
	return f, p.checkFrameEnd(TypeExpect)
}
