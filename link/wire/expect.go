// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Expect, EXPECT, reports to the server where in a stream the primary expects the message to end that
// the server sends. It may get lost, may come late or before OPEN, and may be wrong.
//
//	stream | bytes that the app has read | position after the last byte; 0: unknown
type Expect struct {
	Stream  StreamID
	At, End DataSeq
}

// Type implements Frame.
func (Expect) Type() Type { return TypeExpect }

// AppendPayload implements Frame. It bounds the positions.
func (f Expect) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.Stream))
	b = binary.AppendUvarint(b, uint64(min(f.At, MaxSeq)))
	return binary.AppendUvarint(b, uint64(min(f.End, MaxSeq)))
}

// ParseExpect parses the payload of an EXPECT.
func ParseExpect(b []byte) (f Expect, err error) {
	p := parser{b: b}
	f.Stream = p.readStreamID()
	at, end := p.readUvarint(), p.readUvarint()
	p.bad = p.bad || max(at, end) > uint64(MaxSeq)
	f.At, f.End = DataSeq(at), DataSeq(end)
	return f, p.checkFrameEnd(TypeExpect)
}
