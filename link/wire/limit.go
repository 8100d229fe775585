package wire

import (
	"encoding/binary"

	"mpbond/base/unit"
)

// HopLimit asks the server to send no faster than Rate on the HS-path that it
// came on: the helper's owner needs the rest of that link. It travels in a HOP_AUTH only, and
// holds until the next one. A helper that lies harms nobody but the subflow that it carries,
// which it could as well not carry; MinHopLimit keeps that subflow alive.
//
//	rate, bit/s; 0: no limit any more
type HopLimit struct {
	Rate unit.Rate
}

// MinHopLimit is the lowest limit there is: two packets each 1.5 s, so that what
// was under way when it came ends before TCP or a user gives up.
const MinHopLimit = 16 * unit.Kbps

// Type implements Frame.
func (HopLimit) Type() Type { return TypeHopLimit }

// AppendPayload implements Frame.
func (f HopLimit) AppendPayload(b []byte) []byte {
	return binary.AppendUvarint(b, uint64(max(f.Rate, 0)))
}

// ParseHopLimit parses the payload of a HOP_LIMIT.
func ParseHopLimit(b []byte) (f HopLimit, err error) {
	p := parser{b: b}
	rate := p.readUvarint()
	p.bad = p.bad || rate > uint64(1000*unit.Gbps) || rate > 0 && rate < uint64(MinHopLimit)
	f.Rate = unit.Rate(rate)
	return f, p.checkEnd(TypeHopLimit)
}
