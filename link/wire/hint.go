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
//	subflow | serial | probability in 1/255 (1 byte) | valid for (ms) | 1 if the cell has just changed (1 byte)
type Hint struct {
	Subflow     SubflowID
	Serial      uint64        // rises with each HINT of the bond, since they may overtake each other
	Probability float64       // 0 to 1
	ValidFor    time.Duration // from the arrival on, up to maxHintTime
	HandedOff   bool
}

// maxHintTime bounds Hint.ValidFor.
const maxHintTime = 10 * time.Second

// Type implements Frame.
func (Hint) Type() Type { return TypeHint }

// AppendPayload implements Frame. It bounds the fields.
func (f Hint) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.Subflow))
	b = binary.AppendUvarint(b, f.Serial)
	b = append(b, byte(math.Round(255*min(max(f.Probability, 0), 1))))
	b = binary.AppendUvarint(b, uint64(min(max(f.ValidFor, 0), maxHintTime).Milliseconds()))
	return append(b, encodeBoolByte(f.HandedOff))
}

// ParseHint parses the payload of a HINT.
func ParseHint(b []byte) (f Hint, err error) {
	p := parser{b: b}
	f.Subflow, f.Serial = p.readSubflowID(), p.readUvarint()
	f.Probability = float64(p.readByte()) / 255
	validFor := p.readUvarint()
	f.HandedOff = p.readBool()
	p.bad = p.bad || validFor > uint64(maxHintTime.Milliseconds())
	if !p.bad {
		f.ValidFor = time.Duration(validFor) * time.Millisecond
	}
	return f, p.checkFrameEnd(TypeHint)
}
