// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"math"
	"time"
)

// Hint, HINT, reports to the server how likely the primary's link of a subflow changes its mobile cell
// soon, and that it just has. It may get lost, and may be wrong. The next one of the subflow replaces
// it.
//
//	subflow | probability in 1/255 (1 byte) | it holds for (ms) | 1 if the cell has just changed (1 byte)
type Hint struct {
	Subflow     SubflowID
	Probability float64       // 0 to 1
	Holds       time.Duration // from the arrival on, up to maxHintTime
	HandedOff   bool
}

// maxHintTime bounds Hint.Holds.
const maxHintTime = 10 * time.Second

// Type implements Frame.
func (Hint) Type() Type { return TypeHint }

// AppendPayload implements Frame. It bounds the fields.
func (f Hint) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.Subflow))
	b = append(b, byte(math.Round(255*min(max(f.Probability, 0), 1))))
	b = binary.AppendUvarint(b, uint64(min(max(f.Holds, 0), maxHintTime).Milliseconds()))
	return append(b, encodeBoolByte(f.HandedOff))
}

// ParseHint parses the payload of a HINT.
func ParseHint(b []byte) (f Hint, err error) {
	p := parser{b: b}
	f.Subflow = p.readSubflowID()
	f.Probability = float64(p.readByte()) / 255
	holds := p.readUvarint()
	f.HandedOff = p.readBool()
	p.bad = p.bad || holds > uint64(maxHintTime.Milliseconds())
	if !p.bad {
		f.Holds = time.Duration(holds) * time.Millisecond
	}
	return f, p.checkFrameEnd(TypeHint)
}
