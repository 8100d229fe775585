// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"

	"mpbond/base/unit"
)

// Facts, FACTS, describe a device and its link to the server, as far as policy needs it. A zero
// field is unknown.
//
// A helper sends them to its primary on a pipe that waits and on one that carries a subflow: when
// the pipe is up, and when a fact changes. The primary may skip them and never answers. On any
// other hop they are skipped.
//
//	battery (1 byte) | power (1 byte) | temperature, 0.1 K | radio (1 byte) | metered (1 byte) | signal (1 byte)
//	| link, length first | refusal reason, to the end
//
// Battery and signal are 1 + percent, 0 if unknown.
type Facts struct {
	Battery     unit.Level // charge level
	Power       Power
	Temperature unit.Temperature // of the battery or, if unknown, of the hottest part
	Link        string           // network interface, for display
	Radio       Radio            // RadioNone also if unknown
	Metered     Metered
	Signal      unit.Level
	// RefusalReason says, for people, why the device's own settings let it carry nothing now; "" if
	// they allow it.
	RefusalReason string
}

// Power is a device's source of energy.
type Power uint8

// Powers. PowerExternal also means that the device charges, is full and plugged in, or has no
// battery.
const (
	PowerUnknown Power = iota
	PowerBattery
	PowerExternal
	powerCount
)

// Metered says whether a link's data costs money.
type Metered uint8

// Values of Metered.
const (
	MeteredUnknown Metered = iota
	MeteredNo
	MeteredYes
	meteredCount
)

// Type implements Frame.
func (Facts) Type() Type { return TypeFacts }

// AppendPayload implements Frame. It cuts a link longer than MaxName and a reason longer than
// MaxText.
func (f Facts) AppendPayload(b []byte) []byte {
	b = append(b, byte(f.Battery), byte(f.Power))
	b = binary.AppendUvarint(b, uint64(f.Temperature))
	b = append(b, byte(f.Radio), byte(f.Metered), byte(f.Signal))
	b = appendBytes(b, f.Link[:min(len(f.Link), MaxName)])
	return append(b, truncateToMaxText(f.RefusalReason)...)
}

// ParseFacts parses the payload of a FACTS.
func ParseFacts(b []byte) (f Facts, err error) {
	p := parser{b: b}
	f.Battery, f.Power = p.readPercentLevel(), Power(p.readByte())
	tenths := p.readUvarint()
	f.Temperature, f.Radio, f.Metered, f.Signal = unit.Temperature(tenths), p.readRadio(), Metered(p.readByte()),
		p.readPercentLevel()
	f.Link = string(p.readSizedBytes(MaxName))
	p.bad = p.bad || f.Power >= powerCount || f.Metered >= meteredCount || tenths > uint64(unit.Celsius(200))
	if len(p.b) > MaxText {
		return f, fmt.Errorf("%v: %w", TypeFacts, ErrTooLarge)
	}
	if !p.bad {
		f.RefusalReason, p.b = string(p.b), nil
	}
	return f, p.checkFrameEnd(TypeFacts)
}

// readPercentLevel reads a unit.Level of at most 100 %.
func (p *parser) readPercentLevel() unit.Level {
	l := unit.Level(p.readByte())
	p.bad = p.bad || l > unit.Percent(100)
	return l
}
