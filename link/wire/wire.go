// SPDX-License-Identifier: Apache-2.0

// Package wire defines every byte that mpbond sends over a network. docs/reference/wire.md
// describes the same for people. Each file holds one group of frames with its layout. The package
// opens no socket and keeps no state.
//
// Three protocols share one frame format:
//
//   - Subflow frames (types 0x01–0x3f, 0x80, 0x81 and 0x85 to 0x88) travel inside the
//     TLS 1.3 connection that runs end to end between primary and server.
//   - Hop frames (types 0x40–0x5f and 0x82–0x84) travel on a pipe (inside the TLS
//     connection between primary and helper) and on an HS-path (plain TCP between
//     helper and server). They carry subflow ciphertext, which the helper cannot
//     read. On an HS-path the helper's own frames have a tag (HOP_AUTH).
//   - Pairing frames (types 0x60–0x7f) travel inside a separate TLS connection
//     between two devices that pair. Only PAIR precedes that connection.
//
// Every frame is
//
//	 0        1        2        3
//	+--------+--------+--------+--------+----------------
//	|  type  |      length, big endian  |  payload …
//	+--------+--------+--------+--------+----------------
//
// The length counts the payload only and is at most MaxPayload. Integers in payloads are unsigned
// LEB128 varints of at most 64 bits (encoding/binary's Uvarint) unless a layout says otherwise. The
// length of a string or byte field precedes it unless the field is the last one. Leftover bytes in
// a payload are an error, so that both ends read a frame alike. An unknown type from 0x80 up is
// skipped; any other unknown type ends the connection. So later versions may add optional frames.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is the protocol version of this code. MP_JOIN, HELLO and PAIR carry it. Ends of different
// versions refuse each other by REFUSE with CodeVersion. Each change of a layout raises it, and
// each new frame that an older end would not skip. Version 1 had no groups in OPEN and DATAGRAM, no
// tier in MP_JOIN, and neither CLASS_TABLE nor SERVERS; version 2 had group numbers of one byte;
// version 3 had no CLASS_UPDATE; version 4 had no HOP_AUTH, nor its key in INIT_MP_JOIN and
// MP_JOIN.
const Version = 5

// ALPN is the TLS application protocol (RFC 7301) of an end-to-end subflow, PipeALPN of a pipe, and
// PairALPN of pairing. They keep one kind of connection from being taken for another.
const (
	ALPN     = "mpbond"
	PipeALPN = "mpbond-pipe"
	PairALPN = "mpbond-pair"
)

// Limits. A frame that breaks one is refused before memory is allocated for it.
const (
	HeaderLen  = 4
	MaxPayload = 64<<10 + 64 // a segment of 64 KiB and its own header
	MaxDest    = 300         // "host:port" with a name of at most 253 bytes (RFC 1035 2.3.4)
	MaxText    = 1000        // an error text for people
	MaxName    = 64          // a device name or ID
	MaxAcks    = 64          // subflows in one ACK
)

// Type identifies the kind of a frame.
type Type uint8

// Subflow frames.
const (
	TypeJoin        Type = 0x01 // MP_JOIN
	TypeOK          Type = 0x02 // MP_OK
	TypeRefuse      Type = 0x03
	TypeOpen        Type = 0x10
	TypeOpened      Type = 0x11
	TypeData        Type = 0x12
	TypeFin         Type = 0x13
	TypeReset       Type = 0x14
	TypeWindow      Type = 0x15
	TypeChunk       Type = 0x16
	TypeClassTable  Type = 0x17
	TypeDatagram    Type = 0x18
	TypeFlowEnd     Type = 0x19
	TypeFlowRefused Type = 0x1a
	TypeClassUpdate Type = 0x1b
	TypeAck         Type = 0x20
	TypePipeState   Type = 0x21
	TypeBye         Type = 0x22
	TypePing        Type = 0x80 // skipped if unknown
	TypeChoice      Type = 0x81 // skipped if unknown
	TypeTrain       Type = 0x85 // skipped if unknown
	TypeRate        Type = 0x86 // skipped if unknown
	TypeExpect      Type = 0x87 // skipped if unknown
	TypeHint        Type = 0x88 // skipped if unknown
)

// Hop frames. TypeRefuse appears on hops too.
const (
	TypeHello    Type = 0x40
	TypeInitJoin Type = 0x41 // INIT_MP_JOIN
	TypeInitOK   Type = 0x42
	TypeHopData  Type = 0x43
	TypeHopState Type = 0x44
	TypeHopEnd   Type = 0x45
	TypeResume   Type = 0x46
	TypeResumed  Type = 0x47
	TypeReceived Type = 0x48
	TypeStalled  Type = 0x49
	TypeHopLimit Type = 0x4a
	TypeServers  Type = 0x4b
	TypeHopAuth  Type = 0x4c
	TypeFacts    Type = 0x82 // skipped if unknown
	TypeTrouble  Type = 0x83 // skipped if unknown
	TypeReport   Type = 0x84 // skipped if unknown
)

// Pairing frames. TypeRefuse appears here too.
const (
	TypePair         Type = 0x60
	TypePairStep     Type = 0x61
	TypePairIdentity Type = 0x62
	TypePairDone     Type = 0x63
	TypePairCode     Type = 0x64
	TypePairFleet    Type = 0x65
	TypePairClaim    Type = 0x66
)

var typeNames = map[Type]string{
	TypeJoin: "MP_JOIN", TypeOK: "MP_OK", TypeRefuse: "REFUSE", TypeOpen: "OPEN", TypeOpened: "OPENED",
	TypeData: "DATA", TypeFin: "FIN", TypeReset: "RESET", TypeWindow: "WINDOW", TypeChunk: "CHUNK",
	TypeClassTable: "CLASS_TABLE", TypeClassUpdate: "CLASS_UPDATE", TypeAck: "ACK",
	TypeDatagram: "DATAGRAM", TypeFlowEnd: "FLOW_END", TypeFlowRefused: "FLOW_REFUSED",
	TypePipeState: "PIPE_STATE", TypeBye: "BYE", TypePing: "PING", TypeChoice: "CHOICE", TypeTrain: "TRAIN",
	TypeRate: "RATE", TypeExpect: "EXPECT", TypeHint: "HINT", TypeHello: "HELLO",
	TypeInitJoin: "INIT_MP_JOIN",
	TypeInitOK:   "INIT_MP_OK", TypeHopData: "HOP_DATA", TypeHopState: "HOP_STATE",
	TypeHopEnd: "HOP_END", TypeResume: "RESUME", TypeResumed: "RESUMED", TypeReceived: "RECEIVED", TypeStalled: "STALLED",
	TypeHopLimit: "HOP_LIMIT", TypeHopAuth: "HOP_AUTH", TypeServers: "SERVERS", TypeFacts: "FACTS",
	TypeTrouble: "TROUBLE", TypeReport: "REPORT",
	TypePair: "PAIR", TypePairStep: "PAIR_STEP", TypePairIdentity: "PAIR_IDENTITY", TypePairDone: "PAIR_DONE",
	TypePairCode: "PAIR_CODE", TypePairFleet: "PAIR_FLEET", TypePairClaim: "PAIR_CLAIM",
}

func (t Type) String() string {
	if s, ok := typeNames[t]; ok {
		return s
	}
	return fmt.Sprintf("type 0x%02x", uint8(t))
}

// Skippable reports whether an unknown frame of this type may be ignored.
func (t Type) Skippable() bool { return t >= 0x80 }

// Errors of the codec. Every parse error wraps ErrMalformed.
var (
	ErrMalformed = errors.New("malformed frame")
	ErrTooLarge  = fmt.Errorf("%w: longer than the protocol allows", ErrMalformed)
)

// Frame is a frame that can be encoded. The Parse function of each type decodes its payload; the
// result may alias the input.
type Frame interface {
	// Type returns the frame's type.
	Type() Type
	// AppendPayload appends the payload, without the header, to b.
	AppendPayload(b []byte) []byte
}

// Append appends the header and payload of f to b.
func Append(b []byte, f Frame) []byte {
	at := len(b)
	b = append(b, byte(f.Type()), 0, 0, 0)
	b = f.AppendPayload(b)
	putHeaderLength(b[at:], len(b)-at-HeaderLen)
	return b
}

// AppendHeader appends the header of a frame. Its payload of n bytes must follow.
func AppendHeader(b []byte, t Type, n int) []byte {
	return append(b, byte(t), byte(n>>16), byte(n>>8), byte(n))
}

// putHeaderLength sets the length in the header h.
func putHeaderLength(h []byte, n int) { h[1], h[2], h[3] = byte(n>>16), byte(n>>8), byte(n) }

// Reader splits a byte stream into frames. It reads many frames at once. Not safe for concurrent
// use.
type Reader struct {
	r        io.Reader
	buf      []byte
	from, to int
	read     uint64
}

// A Reader's buffer starts at minBuffer and grows to maxBuffer as needed, so that an idle
// connection uses little memory.
const minBuffer, maxBuffer = 4 << 10, 2 * MaxPayload

// NewReader returns a Reader of frames from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r, buf: make([]byte, minBuffer)} }

// Next returns the next frame. The payload is valid until the following call. The error is io.EOF
// at a frame boundary, io.ErrUnexpectedEOF within a frame, ErrTooLarge, or the error of the stream.
func (r *Reader) Next() (Type, []byte, error) {
	if err := r.fillBuffer(HeaderLen); err != nil {
		return 0, nil, err
	}
	h := r.buf[r.from:]
	n := int(h[1])<<16 | int(h[2])<<8 | int(h[3])
	if n > MaxPayload {
		return 0, nil, fmt.Errorf("%v of %d bytes: %w", Type(h[0]), n, ErrTooLarge)
	}
	if err := r.fillBuffer(HeaderLen + n); err != nil {
		return 0, nil, err
	}
	f := r.buf[r.from : r.from+HeaderLen+n]
	r.from += len(f)
	r.read += uint64(len(f))
	return Type(f[0]), f[HeaderLen:], nil
}

// BytesRead returns the number of bytes of all frames returned so far, headers included.
func (r *Reader) BytesRead() uint64 { return r.read }

// Buffered reports whether Next can return a frame without reading the stream. Callers use it to
// batch work.
func (r *Reader) Buffered() bool {
	h := r.buf[r.from:r.to]
	return len(h) >= HeaderLen && len(h) >= HeaderLen+int(h[1])<<16+int(h[2])<<8+int(h[3])
}

// fillBuffer reads until n bytes are available at r.from.
func (r *Reader) fillBuffer(n int) error {
	for r.to-r.from < n {
		if r.from == r.to {
			r.from, r.to = 0, 0
		} else if r.from+n > len(r.buf) {
			buf := r.buf
			if len(buf) < maxBuffer {
				buf = make([]byte, min(max(n, 2*len(buf)), maxBuffer))
			}
			r.to = copy(buf, r.buf[r.from:r.to])
			r.from, r.buf = 0, buf
		}
		m, err := r.r.Read(r.buf[r.to:])
		r.to += m
		if err != nil && r.to-r.from < n {
			if err == io.EOF && r.to > r.from {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// parser reads fields from a payload. After the first failure, bad is set and all fields are zero.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) readUvarint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.bad, p.b = true, nil
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) readByte() uint8 {
	if len(p.b) == 0 {
		p.bad = true
		return 0
	}
	v := p.b[0]
	p.b = p.b[1:]
	return v
}

// readSizedBytes reads a length, at most limit, and that many bytes.
func (p *parser) readSizedBytes(limit int) []byte {
	n := p.readUvarint()
	if n > uint64(limit) || n > uint64(len(p.b)) {
		p.bad, p.b = true, nil
		return nil
	}
	v := p.b[:n]
	p.b = p.b[n:]
	return v
}

// readFixedBytes reads len(dst) bytes into dst.
func (p *parser) readFixedBytes(dst []byte) {
	if copy(dst, p.b) < len(dst) {
		p.bad, p.b = true, nil
		return
	}
	p.b = p.b[len(dst):]
}

// checkFrameEnd returns an error if parsing a frame of type t failed or bytes are left over.
func (p *parser) checkFrameEnd(t Type) error {
	if p.bad {
		return fmt.Errorf("%v: %w: truncated or out of range", t, ErrMalformed)
	}
	if len(p.b) > 0 {
		return fmt.Errorf("%v: %w: %d bytes too many", t, ErrMalformed, len(p.b))
	}
	return nil
}

// appendBytes appends the length of s and s.
func appendBytes[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
