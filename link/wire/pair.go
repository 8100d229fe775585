// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Limits of pairing frames.
const (
	MaxPairStep    = 1024 // one message of the key exchange
	MaxPairServers = 64   // addresses of a primary's servers
)

// Pair, PAIR, opens a connection for pairing, before TLS. Its type byte tells it apart from a
// subflow and from a helper's call.
//
//	"mpbond" (6 bytes) | version (1 byte)
type Pair struct {
	Version uint8
}

// Type implements Frame.
func (Pair) Type() Type { return TypePair }

// AppendPayload implements Frame.
func (f Pair) AppendPayload(b []byte) []byte { return append(append(b, magic...), f.Version) }

// ParsePair parses the payload of a PAIR. Another version is no error, and may add bytes.
func ParsePair(b []byte) (f Pair, err error) {
	p := parser{b: b}
	var m [len(magic)]byte
	p.readFixedBytes(m[:])
	f.Version = p.readByte()
	if p.bad || string(m[:]) != magic {
		return f, fmt.Errorf("%v: %w: this is not mpbond", TypePair, ErrMalformed)
	}
	if f.Version != Version {
		return f, nil
	}
	return f, p.checkFrameEnd(TypePair)
}

// PairStep, PAIR_STEP, is one message of the password-authenticated key exchange (OPAQUE, RFC 9807
// section 6): KE1 from the device where the code was entered, KE2 back, KE3. Package pairing
// defines its contents.
//
//	number (1 byte: 1, 2 or 3) | message, to the end
type PairStep struct {
	Number uint8
	Bytes  []byte
}

// Type implements Frame.
func (PairStep) Type() Type { return TypePairStep }

// AppendPayload implements Frame.
func (f PairStep) AppendPayload(b []byte) []byte { return append(append(b, f.Number), f.Bytes...) }

// ParsePairStep parses the payload of a PAIR_STEP.
func ParsePairStep(b []byte) (f PairStep, err error) {
	p := parser{b: b}
	f.Number = p.readByte()
	p.bad = p.bad || f.Number < 1 || f.Number > 3
	if len(p.b) > MaxPairStep {
		return f, fmt.Errorf("%v: %w", TypePairStep, ErrTooLarge)
	}
	f.Bytes, p.b = slices.Clone(p.b), nil
	return f, p.checkFrameEnd(TypePairStep)
}

// PairRoles is a set of roles that a device may have for the other one.
type PairRoles uint8

// Bits of PairRoles.
const (
	PairServer PairRoles = 1 << iota
	PairHelper
	PairPrimary
	pairRolesEnd
)

// PairIdentity, PAIR_IDENTITY, describes a device. Each end sends one when it knows that the other
// end has the code.
//
//	roles (1 byte) | port of pipes | length of name, name | number of servers,
//	that many: length, "host:port"
type PairIdentity struct {
	Roles PairRoles
	// Port is the TCP port where a primary accepts helpers; 0: none.
	Port uint16
	Name string
	// Servers are the addresses of a primary's servers. Its helpers connect its subflows to them.
	// The helpers do not check the servers' keys; the primary does.
	Servers []string
}

// Type implements Frame.
func (PairIdentity) Type() Type { return TypePairIdentity }

// AppendPayload implements Frame.
func (f PairIdentity) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(append(b, byte(f.Roles)), uint64(f.Port))
	b = appendBytes(b, f.Name)
	return appendServers(b, f.Servers)
}

// ParsePairIdentity parses the payload of a PAIR_IDENTITY.
func ParsePairIdentity(b []byte) (f PairIdentity, err error) {
	p := parser{b: b}
	f.Roles = PairRoles(p.readByte())
	port := p.readUvarint()
	f.Port = uint16(port)
	f.Name = string(p.readSizedBytes(MaxName))
	p.bad = p.bad || f.Roles == 0 || f.Roles >= pairRolesEnd || port > 65535
	f.Servers = p.readServers()
	return f, p.checkFrameEnd(TypePairIdentity)
}

// readBoundedCount reads a number of at most limit.
func (p *parser) readBoundedCount(limit uint64) uint64 {
	n := p.readUvarint()
	if n > limit {
		p.bad, p.b = true, nil
		return 0
	}
	return n
}

// PairDone, PAIR_DONE, reports to the caller that the other device has stored the caller's
// identity.
type PairDone struct{}

// Type implements Frame.
func (PairDone) Type() Type { return TypePairDone }

// AppendPayload implements Frame.
func (PairDone) AppendPayload(b []byte) []byte { return b }

// ParsePairDone parses the payload of a PAIR_DONE.
func ParsePairDone(b []byte) (f PairDone, err error) {
	p := parser{b: b}
	return f, p.checkFrameEnd(TypePairDone)
}
