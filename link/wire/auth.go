// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
)

// HopKey authenticates the helper's own frames to the server about one helped subflow. The primary
// draws it at random. It gives it to the helper in INIT_MP_JOIN and to the server in MP_JOIN, both
// inside TLS.
type HopKey [32]byte

// HopAuth, HOP_AUTH, carries a HOP_STATE or HOP_LIMIT from helper to server on an HS-path, where
// TLS protects only ciphertext. The tag is the first 16 bytes of HMAC-SHA256 (RFC 2104) under the
// subflow's HopKey over the bytes of AppendSigned. The counter rises with each HOP_AUTH of a
// subflow, from 1. The server ignores a HOP_AUTH with a wrong tag or a counter that has not risen;
// the subflow continues.
//
//	counter | type (1 byte) | payload of that type | tag (16 bytes)
type HopAuth struct {
	Counter uint64
	Of      Type   // TypeHopState or TypeHopLimit
	Payload []byte // payload of a frame of that type
	Tag     [HopTagLen]byte
}

// HopTagLen is the length of a tag. MaxHopAuth bounds the payload of a HOP_AUTH.
const (
	HopTagLen  = 16
	MaxHopAuth = binary.MaxVarintLen64 + 1 + 4*binary.MaxVarintLen64 + 1 + HopTagLen
)

// hopAuthContext is the prefix of the bytes under the tag. It makes the tag useless elsewhere and
// in the other direction.
const hopAuthContext = "mpbond helper to server\x00"

// Type implements Frame.
func (HopAuth) Type() Type { return TypeHopAuth }

// AppendSigned appends the bytes that the tag covers.
func (f HopAuth) AppendSigned(b []byte) []byte { return f.appendBody(append(b, hopAuthContext...)) }

// appendBody appends the payload without the tag.
func (f HopAuth) appendBody(b []byte) []byte {
	return append(append(binary.AppendUvarint(b, f.Counter), byte(f.Of)), f.Payload...)
}

// AppendPayload implements Frame.
func (f HopAuth) AppendPayload(b []byte) []byte { return append(f.appendBody(b), f.Tag[:]...) }

// ParseHopAuth parses the payload of a HOP_AUTH. It neither parses the frame inside nor checks the
// tag.
func ParseHopAuth(b []byte) (f HopAuth, err error) {
	if len(b) > MaxHopAuth {
		return f, fmt.Errorf("%v: %w", TypeHopAuth, ErrTooLarge)
	}
	p := parser{b: b}
	f.Counter, f.Of = p.readUvarint(), Type(p.readByte())
	p.bad = p.bad || f.Of != TypeHopState && f.Of != TypeHopLimit
	n := max(len(p.b)-HopTagLen, 0)
	f.Payload, p.b = p.b[:n], p.b[n:]
	p.readFixedBytes(f.Tag[:])
	return f, p.checkFrameEnd(TypeHopAuth)
}
