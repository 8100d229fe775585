package wire

import (
	"encoding/binary"
	"fmt"

	"mpbond/base/unit"
)

// Facts are what a device knows of itself and of the link by which it reaches
// the server, as far as policy asks for it. What is zero is not known.
//
// A helper tells its primary, on a pipe that waits and on one that carries a
// subflow: when the pipe is there, and when something has changed. It is a hint
// and may be skipped; nothing is ever answered. On any other hop it is skipped.
//
//	battery (1 byte) | power (1 byte) | temperature, 0.1 K | radio (1 byte) | metered (1 byte) | signal (1 byte)
//	| link, length first | refuses, to the end
//
// Battery and signal are 1 + percent, 0 where they are not known.
type Facts struct {
	Battery     unit.Level // how full it is
	Power       Power
	Temperature unit.Temperature // of the battery or, where that tells none, of the hottest part
	Link        string           // the interface, for display
	Radio       Radio            // RadioNone where it is not known, too
	Metered     Metered
	Signal      unit.Level
	// RefusalReason says, to people, why the device carries nothing at present by its
	// own owner's word; "" while it does.
	RefusalReason string
}

// Power is where a device's energy comes from.
type Power uint8

// Powers.
const (
	PowerUnknown Power = iota
	PowerBattery
	PowerExternal // it charges, or is full and plugged in, or has no battery
	powerCount
)

// Metered tells whether a link's data costs money.
type Metered uint8

// Answers.
const (
	MeteredUnknown Metered = iota
	MeteredNo
	MeteredYes
	meteredCount
)

// Type implements Frame.
func (Facts) Type() Type { return TypeFacts }

// AppendPayload implements Frame. A link over MaxName and a text over MaxText
// are cut.
func (f Facts) AppendPayload(b []byte) []byte {
	b = append(b, byte(f.Battery), byte(f.Power))
	b = binary.AppendUvarint(b, uint64(f.Temperature))
	b = append(b, byte(f.Radio), byte(f.Metered), byte(f.Signal))
	b = appendBytes(b, f.Link[:min(len(f.Link), MaxName)])
	return append(b, truncateText(f.RefusalReason)...)
}

// ParseFacts parses the payload of a FACTS.
func ParseFacts(b []byte) (f Facts, err error) {
	p := parser{b: b}
	f.Battery, f.Power = p.readLevel(), Power(p.readByte())
	tenths := p.readUvarint()
	f.Temperature, f.Radio, f.Metered, f.Signal = unit.Temperature(tenths), p.readRadio(), Metered(p.readByte()), p.readLevel()
	f.Link = string(p.readBytes(MaxName))
	p.bad = p.bad || f.Power >= powerCount || f.Metered >= meteredCount || tenths > uint64(unit.Celsius(200))
	if len(p.b) > MaxText {
		return f, fmt.Errorf("%v: %w", TypeFacts, ErrTooLarge)
	}
	if !p.bad {
		f.RefusalReason, p.b = string(p.b), nil
	}
	return f, p.checkEnd(TypeFacts)
}

// readLevel takes a share off a payload.
func (p *parser) readLevel() unit.Level {
	l := unit.Level(p.readByte())
	p.bad = p.bad || l > unit.Percent(100)
	return l
}
