package wire

import (
	"encoding/binary"
	"fmt"
)

// HopKey authenticates what a helper says to the server about one helped subflow. The
// primary draws it at random and gives it to the helper in INIT_MP_JOIN and to the server
// in MP_JOIN, both inside TLS.
type HopKey [32]byte

// HopAuth, HOP_AUTH, carries a HOP_STATE or HOP_LIMIT from helper to server on an HS-path,
// where TLS protects ciphertext alone. The tag is the first 16 bytes of HMAC-SHA256
// (RFC 2104) by the subflow's HopKey over Signed. The counter rises with each HOP_AUTH of a
// subflow, from 1 on. The server ignores one whose tag is wrong or whose counter has not
// risen, and the subflow goes on.
//
//	counter | type (1 byte) | payload of that type | tag (16 bytes)
type HopAuth struct {
	Counter uint64
	Of      Type   // TypeHopState or TypeHopLimit
	Payload []byte // of a frame of that type
	Tag     [HopTagLen]byte
}

// HopTagLen is the length of a tag, and MaxHopAuth bounds the payload of a HOP_AUTH.
const (
	HopTagLen  = 16
	MaxHopAuth = binary.MaxVarintLen64 + 1 + 4*binary.MaxVarintLen64 + 1 + HopTagLen
)

// hopAuthContext begins what the tag is over, so that it is of no use elsewhere, nor in
// the other direction.
const hopAuthContext = "mpbond helper to server\x00"

// Type implements Frame.
func (HopAuth) Type() Type { return TypeHopAuth }

// AppendSigned appends the bytes that the tag is over.
func (f HopAuth) AppendSigned(b []byte) []byte { return f.appendBody(append(b, hopAuthContext...)) }

func (f HopAuth) appendBody(b []byte) []byte {
	return append(append(binary.AppendUvarint(b, f.Counter), byte(f.Of)), f.Payload...)
}

// AppendPayload implements Frame.
func (f HopAuth) AppendPayload(b []byte) []byte { return append(f.appendBody(b), f.Tag[:]...) }

// ParseHopAuth parses the payload of a HOP_AUTH, but for the frame that it carries. It
// does not check the tag.
func ParseHopAuth(b []byte) (f HopAuth, err error) {
	if len(b) > MaxHopAuth {
		return f, fmt.Errorf("%v: %w", TypeHopAuth, ErrTooLarge)
	}
	p := parser{b: b}
	f.Counter, f.Of = p.readUvarint(), Type(p.readByte())
	p.bad = p.bad || f.Of != TypeHopState && f.Of != TypeHopLimit
	n := max(len(p.b)-HopTagLen, 0)
	f.Payload, p.b = p.b[:n], p.b[n:]
	p.readFixed(f.Tag[:])
	return f, p.checkEnd(TypeHopAuth)
}
