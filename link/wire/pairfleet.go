// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/hex"
	"slices"
)

// MaxOffer bounds the offer in a PAIR_FLEET.
const MaxOffer = 48 << 10

// PairCode, PAIR_CODE, names the code of a fleet's invitation, which the caller is about to prove. It
// precedes PAIR_STEP 1. Devices that belong to no fleet refuse it.
//
//	ID of the code (12 bytes)
type PairCode struct {
	ID [12]byte // reveals nothing of the code
}

// String returns the ID in hexadecimal.
func (f PairCode) String() string { return hex.EncodeToString(f.ID[:]) }

// Type implements Frame.
func (PairCode) Type() Type { return TypePairCode }

// AppendPayload implements Frame.
func (f PairCode) AppendPayload(b []byte) []byte { return append(b, f.ID[:]...) }

// ParsePairCode parses the payload of a PAIR_CODE.
func ParsePairCode(b []byte) (f PairCode, err error) {
	p := parser{b: b}
	p.readFixedBytes(f.ID[:])
	return f, p.checkFrameEnd(TypePairCode)
}

// PairFleet, PAIR_FLEET, offers a fleet to a device that has proved one of its codes. It follows the
// acceptor's PAIR_IDENTITY.
//
//	key of the fleet (32 bytes) | offer, length first
type PairFleet struct {
	Key   [32]byte
	Offer []byte // the fleet's servers (package control/fleet)
}

// Type implements Frame.
func (PairFleet) Type() Type { return TypePairFleet }

// AppendPayload implements Frame.
func (f PairFleet) AppendPayload(b []byte) []byte {
	return appendBytes(append(b, f.Key[:]...), f.Offer)
}

// ParsePairFleet parses the payload of a PAIR_FLEET.
func ParsePairFleet(b []byte) (f PairFleet, err error) {
	p := parser{b: b}
	p.readFixedBytes(f.Key[:])
	f.Offer = slices.Clone(p.readSizedBytes(MaxOffer))
	return f, p.checkFrameEnd(TypePairFleet)
}

// PairClaim, PAIR_CLAIM, proves to the whole fleet that the caller knew the code. It follows the caller's
// PAIR_IDENTITY.
//
//	signature (64 bytes) by the key that the caller derives from the code
type PairClaim struct {
	Sig [64]byte
}

// Type implements Frame.
func (PairClaim) Type() Type { return TypePairClaim }

// AppendPayload implements Frame.
func (f PairClaim) AppendPayload(b []byte) []byte { return append(b, f.Sig[:]...) }

// ParsePairClaim parses the payload of a PAIR_CLAIM.
func ParsePairClaim(b []byte) (f PairClaim, err error) {
	p := parser{b: b}
	p.readFixedBytes(f.Sig[:])
	return f, p.checkFrameEnd(TypePairClaim)
}
