// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Resume, RESUME, moves the subflow of that token to this pipe, because its pipe broke or this one
// is better. A primary sends it on a pipe that waits, instead of INIT_MP_JOIN. The helper answers
// with RESUMED, after which both ends send HOP_DATA, or with REFUSE.
//
//	token (16 bytes) | attempt | received
//
// Attempt counts from 1 and grows with each RESUME of a subflow. A helper refuses one that is not
// higher than all before. Received is how many bytes of ciphertext the primary has; the helper
// continues from there.
type Resume struct {
	Token    Token
	Attempt  uint64
	Received uint64
}

// Type implements Frame.
func (Resume) Type() Type { return TypeResume }

// AppendPayload implements Frame.
func (f Resume) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(append(b, f.Token[:]...), f.Attempt)
	return binary.AppendUvarint(b, f.Received)
}

// ParseResume parses the payload of a RESUME.
func ParseResume(b []byte) (f Resume, err error) {
	p := parser{b: b}
	p.readFixedBytes(f.Token[:])
	f.Attempt, f.Received = p.readUvarint(), p.readUvarint()
	return f, p.checkFrameEnd(TypeResume)
}

// Resumed, RESUMED, accepts a RESUME. Received is how many bytes of ciphertext the helper has; the
// primary continues from there. From is where the helper continues. Bytes that the primary got over
// the old pipe meanwhile arrive again.
//
//	received | from
type Resumed struct {
	Received, From uint64
}

// Type implements Frame.
func (Resumed) Type() Type { return TypeResumed }

// AppendPayload implements Frame.
func (f Resumed) AppendPayload(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, f.Received), f.From)
}

// ParseResumed parses the payload of a RESUMED.
func ParseResumed(b []byte) (f Resumed, err error) {
	p := parser{b: b}
	f.Received, f.From = p.readUvarint(), p.readUvarint()
	return f, p.checkFrameEnd(TypeResumed)
}

// Received, RECEIVED, acknowledges ciphertext on a pipe. Its sender has received that many bytes of
// the subflow over all its pipes. The other end no longer needs to keep them for a RESUME. The
// count never falls.
//
//	count
type Received struct {
	Count uint64
}

// Type implements Frame.
func (Received) Type() Type { return TypeReceived }

// AppendPayload implements Frame.
func (f Received) AppendPayload(b []byte) []byte { return binary.AppendUvarint(b, f.Count) }

// ParseReceived parses the payload of a RECEIVED.
func ParseReceived(b []byte) (f Received, err error) {
	p := parser{b: b}
	f.Count = p.readUvarint()
	return f, p.checkFrameEnd(TypeReceived)
}

// Stalled, STALLED, reports that the pipe of that subflow broke or carries nothing, while this pipe
// works. A helper sends it on a pipe that waits. The primary may answer with RESUME, at any time or
// never.
//
//	token (16 bytes)
type Stalled struct {
	Token Token
}

// Type implements Frame.
func (Stalled) Type() Type { return TypeStalled }

// AppendPayload implements Frame.
func (f Stalled) AppendPayload(b []byte) []byte { return append(b, f.Token[:]...) }

// ParseStalled parses the payload of a STALLED.
func ParseStalled(b []byte) (f Stalled, err error) {
	p := parser{b: b}
	p.readFixedBytes(f.Token[:])
	return f, p.checkFrameEnd(TypeStalled)
}

// HopEnd, HOP_END, ends one direction of a subflow on its pipe, in order. A connection that ends
// without it broke. It has no payload.
type HopEnd struct{}

// Type implements Frame.
func (HopEnd) Type() Type { return TypeHopEnd }

// AppendPayload implements Frame.
func (HopEnd) AppendPayload(b []byte) []byte { return b }
