// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Choice, CHOICE, reports to the primary which subflows the server now uses for a stream, and why.
// It is for display only and may get lost. A second line of the reason is the forecast that it
// rests on.
//
//	stream | number of subflows | subflows | reason for people, to the end
type Choice struct {
	Stream   StreamID
	Subflows []SubflowID // at most MaxAcks
	Reason   string
}

// Type implements Frame.
func (Choice) Type() Type { return TypeChoice }

// AppendPayload implements Frame. It cuts a reason longer than MaxText.
func (f Choice) AppendPayload(b []byte) []byte {
	paths := f.Subflows[:min(len(f.Subflows), MaxAcks)]
	b = binary.AppendUvarint(b, uint64(f.Stream))
	b = binary.AppendUvarint(b, uint64(len(paths)))
	for _, p := range paths {
		b = binary.AppendUvarint(b, uint64(p))
	}
	return append(b, truncateToMaxText(f.Reason)...)
}

// ParseChoice parses the payload of a CHOICE.
func ParseChoice(b []byte) (f Choice, err error) {
	p := parser{b: b}
	f.Stream = p.readStreamID()
	n := p.readUvarint()
	p.bad = p.bad || n > MaxAcks
	for range n {
		if p.bad {
			break
		}
		f.Subflows = append(f.Subflows, p.readSubflowID())
	}
	p.bad = p.bad || len(p.b) > MaxText
	if !p.bad {
		f.Reason, p.b = string(p.b), nil
	}
	return f, p.checkFrameEnd(TypeChoice)
}
