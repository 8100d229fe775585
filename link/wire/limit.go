// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"mpbond/base/unit"
)

// HopLimit, HOP_LIMIT, asks the server to send at most Rate on the HS-path that it arrived on: the
// link owner needs the rest of that link. It travels in a HOP_AUTH only and holds until the next
// one. A false limit harms only the helper's own subflow, which the helper could drop anyway.
// MinHopLimit keeps that subflow alive.
//
//	rate, bit/s; 0: no limit
type HopLimit struct {
	Rate unit.Rate
}

// MinHopLimit is the lowest limit: two packets each 1.5 s. Bytes already under way then arrive
// before TCP or a user gives up.
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
	return f, p.checkFrameEnd(TypeHopLimit)
}
