package wire

import (
	"encoding/binary"
	"fmt"
)

// Trouble, TROUBLE, reports what keeps the sender from using the device at the other
// end. A primary sends it on a pipe that waits: why it has no server. The newest one
// counts; one without a text ends it. It is a hint for people: there is no answer, and
// it may be skipped.
//
//	code (1 byte) | address that was tried, length first | text, to the end
type Trouble struct {
	Code    Code
	Address string // "host:port", "" if it is about none
	Text    string
}

// Type implements Frame.
func (Trouble) Type() Type { return TypeTrouble }

// AppendPayload implements Frame. It cuts an address over MaxDest and a text over
// MaxText.
func (f Trouble) AppendPayload(b []byte) []byte {
	b = appendBytes(append(b, byte(f.Code)), f.Address[:min(len(f.Address), MaxDest)])
	return append(b, truncateText(f.Text)...)
}

// ParseTrouble parses the payload of a TROUBLE.
func ParseTrouble(b []byte) (f Trouble, err error) {
	p := parser{b: b}
	f.Code, f.Address = Code(p.readByte()), string(p.readBytes(MaxDest))
	if len(p.b) > MaxText {
		return f, fmt.Errorf("%v: %w", TypeTrouble, ErrTooLarge)
	}
	if !p.bad {
		f.Text, p.b = string(p.b), nil
	}
	return f, p.checkEnd(TypeTrouble)
}

// Report, REPORT, is what a helper leaves at a server for a primary that it cannot reach:
// that its calls to an address of that primary fail. It comes behind HELLO on a connection
// of its own, which ends with it. The server proves nothing by it: it checks the signature
// against From alone, keeps the newest few for a device that is enrolled, and hands them
// to that device, which knows whether From is a helper of its own.
//
//	to (32 bytes) | from (32 bytes) | seconds since 1970 | code (1 byte) | address, length first | signature (64 bytes)
type Report struct {
	To, From [32]byte // device keys
	Unix     int64    // when it was signed, by the helper's clock
	Code     Code
	Address  string // "host:port" of the primary that was called
	Sig      [64]byte
}

// MaxReport bounds the payload of a REPORT.
const MaxReport = 2*32 + binary.MaxVarintLen64 + 1 + 2 + MaxDest + 64

// reportContext begins what is signed, so that it is of no use elsewhere.
const reportContext = "mpbond report\x00"

// Type implements Frame.
func (Report) Type() Type { return TypeReport }

// Signed returns the bytes that the signature is over.
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
	p.readFixed(f.To[:])
	p.readFixed(f.From[:])
	seconds := p.readUvarint()
	f.Unix, f.Code, f.Address = int64(seconds), Code(p.readByte()), string(p.readBytes(MaxDest))
	p.bad = p.bad || seconds > 1<<40
	p.readFixed(f.Sig[:])
	return f, p.checkEnd(TypeReport)
}
