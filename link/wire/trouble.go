// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
)

// Trouble, TROUBLE, reports why the sender cannot use the device at the other end. A primary sends
// it on a pipe that waits, to say why it has no server. Each one replaces the last; one without
// text clears it. It is for people: there is no answer, and it may be skipped.
//
//	code (1 byte) | address that was tried, length first | text, to the end
type Trouble struct {
	Code    Code
	Address string // "host:port", or "" if no address was involved
	Text    string
}

// Type implements Frame.
func (Trouble) Type() Type { return TypeTrouble }

// AppendPayload implements Frame. It cuts an address longer than MaxDest and a text longer than
// MaxText.
func (f Trouble) AppendPayload(b []byte) []byte {
	b = appendBytes(append(b, byte(f.Code)), f.Address[:min(len(f.Address), MaxDest)])
	return append(b, truncateToMaxText(f.Text)...)
}

// ParseTrouble parses the payload of a TROUBLE.
func ParseTrouble(b []byte) (f Trouble, err error) {
	p := parser{b: b}
	f.Code, f.Address = Code(p.readByte()), string(p.readSizedBytes(MaxDest))
	if len(p.b) > MaxText {
		return f, fmt.Errorf("%v: %w", TypeTrouble, ErrTooLarge)
	}
	if !p.bad {
		f.Text, p.b = string(p.b), nil
	}
	return f, p.checkFrameEnd(TypeTrouble)
}

// Report, REPORT, is a helper's report that its calls to an address of a primary fail. The helper
// leaves it at a server for that primary. It follows HELLO on its own connection and ends it. The
// server checks the signature against From, keeps the newest few reports for a trusted device,
// and passes them on to that device. A report proves nothing to the server: only the primary knows
// whether From is one of its helpers.
//
//	to (32 bytes) | from (32 bytes) | seconds since 1970 | code (1 byte) | address, length first | signature (64 bytes)
type Report struct {
	To, From [32]byte // device keys
	Unix     int64    // time of the signature, by the helper's clock
	Code     Code
	Address  string // "host:port" of the primary that the helper called
	Sig      [64]byte
}

// MaxReport bounds the payload of a REPORT.
const MaxReport = 2*32 + binary.MaxVarintLen64 + 1 + 2 + MaxDest + 64

// reportContext is the prefix of the signed bytes. It makes the signature useless elsewhere.
const reportContext = "mpbond report\x00"

// Type implements Frame.
func (Report) Type() Type { return TypeReport }

// Signed returns the bytes that the signature covers.
func (f Report) Signed() []byte { return f.appendSignedFields([]byte(reportContext)) }

func (f Report) appendSignedFields(b []byte) []byte {
	b = append(append(b, f.To[:]...), f.From[:]...)
	b = binary.AppendUvarint(b, uint64(max(f.Unix, 0)))
	return appendBytes(append(b, byte(f.Code)), f.Address[:min(len(f.Address), MaxDest)])
}

// AppendPayload implements Frame.
func (f Report) AppendPayload(b []byte) []byte { return append(f.appendSignedFields(b), f.Sig[:]...) }

// ParseReport parses the payload of a REPORT. It does not check the signature.
func ParseReport(b []byte) (f Report, err error) {
	p := parser{b: b}
	p.readFixedBytes(f.To[:])
	p.readFixedBytes(f.From[:])
	seconds := p.readUvarint()
	f.Unix, f.Code, f.Address = int64(seconds), Code(p.readByte()), string(p.readSizedBytes(MaxDest))
	p.bad = p.bad || seconds > 1<<40
	p.readFixedBytes(f.Sig[:])
	return f, p.checkFrameEnd(TypeReport)
}
