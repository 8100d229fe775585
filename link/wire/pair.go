package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Limits of pairing frames.
const (
	MaxPairStep    = 1024 // a message of the key exchange
	MaxPairServers = 64   // addresses of a primary's servers
)

// Pair opens a connection for pairing, before TLS: its type byte tells the
// device that is called that neither a subflow nor a helper comes.
//
//	"mpbond" (6 bytes) | version (1 byte)
type Pair struct {
	Version uint8
}

// Type implements Frame.
func (Pair) Type() Type { return TypePair }

// AppendPayload implements Frame.
func (f Pair) AppendPayload(b []byte) []byte { return append(append(b, magic...), f.Version) }

// ParsePair parses the payload of a PAIR. Another version is no error here, and
// may have more behind it.
func ParsePair(b []byte) (f Pair, err error) {
	p := parser{b: b}
	var m [len(magic)]byte
	p.readFixed(m[:])
	f.Version = p.readByte()
	if p.bad || string(m[:]) != magic {
		return f, fmt.Errorf("%v: %w: this is not mpbond", TypePair, ErrMalformed)
	}
	if f.Version != Version {
		return f, nil
	}
	return f, p.checkEnd(TypePair)
}

// PairStep is one message of the password-authenticated key exchange (OPAQUE,
// RFC 9807 section 6): KE1 from the device that was told the code, KE2 back,
// KE3. Package pairing knows what is in it.
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
	return f, p.checkEnd(TypePairStep)
}

// PairRoles is what a device may be to the other one: a set of bits.
type PairRoles uint8

// Bits of PairRoles.
const (
	PairServer PairRoles = 1 << iota
	PairHelper
	PairPrimary
	pairRolesEnd
)

// PairIdentity tells who a device is. Both send one, once each knows that the
// other has the code.
//
//	roles (1 byte) | port of pipes | length of name, name | number of servers,
//	that many: length, "host:port"
type PairIdentity struct {
	Roles PairRoles
	// Port is where a primary takes the calls of helpers over TCP; 0: nowhere.
	Port uint16
	Name string
	// Servers are the addresses of a primary's servers, to which its helpers shall
	// carry its subflows. Whose keys they have is between those and the primary.
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
	f.Name = string(p.readBytes(MaxName))
	p.bad = p.bad || f.Roles == 0 || f.Roles >= pairRolesEnd || port > 65535
	f.Servers = p.readServers()
	return f, p.checkEnd(TypePairIdentity)
}

// readCount takes a number of things, at most limit.
func (p *parser) readCount(limit uint64) uint64 {
	n := p.readUvarint()
	if n > limit {
		p.bad, p.b = true, nil
		return 0
	}
	return n
}

// PairDone tells the device that called that the other one has written down
// whom it met.
type PairDone struct{}

// Type implements Frame.
func (PairDone) Type() Type { return TypePairDone }

// AppendPayload implements Frame.
func (PairDone) AppendPayload(b []byte) []byte { return b }

// ParsePairDone parses the payload of a PAIR_DONE.
func ParsePairDone(b []byte) (f PairDone, err error) {
	p := parser{b: b}
	return f, p.checkEnd(TypePairDone)
}
