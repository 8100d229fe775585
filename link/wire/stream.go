// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"

	"mpbond/base/unit"
)

// StreamID names a stream within its bond. The primary counts from 1. An ID opens all lower ones
// too, so that frames may arrive in any order over several subflows.
type StreamID uint64

// DataSeq is a position in one direction of a stream. The first byte has DataSeq 0.
type DataSeq uint64

// MaxSeq is the largest position. It keeps position plus length from wrapping.
const MaxSeq = 1<<62 - 1

// InitialWindow and InitialDownWindow bound the bytes of a stream that the opening end and the
// accepting end may send before the first WINDOW arrives. They are the least that a stream gets,
// however short memory is. The opening end can grant more by a WINDOW beside OPEN, at no cost in
// time. The accepting end could grant more only a round trip later, so it starts with a larger
// window.
const (
	InitialWindow     = 512 * unit.KB
	InitialDownWindow = 64 * unit.KB
)

// Mode says how both ends send the bytes of a stream.
type Mode uint8

// Modes.
const (
	ModeBond      Mode = iota // over all subflows, as the scheduler decides
	ModeLatency               // over the subflow of least delay, before bulk data
	ModeRedundant             // every byte over every subflow; the first copy counts
	modeCount
)

var modeNames = [modeCount]string{ModeBond: "bond", ModeLatency: "latency", ModeRedundant: "redundant"}

func (m Mode) String() string {
	if m < modeCount {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// Open, OPEN, asks the server to connect a new stream to a destination. Data may follow at once.
//
//	stream | mode (1 byte) | group | destination "host:port", to the end
type Open struct {
	Stream StreamID
	Mode   Mode
	Group  GroupID
	Dest   string
}

// Type implements Frame.
func (Open) Type() Type { return TypeOpen }

// AppendPayload implements Frame.
func (f Open) AppendPayload(b []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(f.Stream)), byte(f.Mode))
	return append(binary.AppendUvarint(b, uint64(f.Group)), f.Dest...)
}

// ParseOpen parses the payload of an OPEN.
func ParseOpen(b []byte) (f Open, err error) {
	p := parser{b: b}
	f.Stream, f.Mode, f.Group = p.readStreamID(), Mode(p.readByte()), p.readGroupID()
	p.bad = p.bad || f.Mode >= modeCount
	if len(p.b) > MaxDest {
		return f, fmt.Errorf("%v: %w", TypeOpen, ErrTooLarge)
	}
	f.Dest, p.b = string(p.b), nil
	return f, p.checkFrameEnd(TypeOpen)
}

// Opened, OPENED, reports that the destination of a stream is connected.
//
//	stream
type Opened struct {
	Stream StreamID
}

// Type implements Frame.
func (Opened) Type() Type { return TypeOpened }

// AppendPayload implements Frame.
func (f Opened) AppendPayload(b []byte) []byte { return binary.AppendUvarint(b, uint64(f.Stream)) }

// ParseOpened parses the payload of an OPENED.
func ParseOpened(b []byte) (f Opened, err error) {
	p := parser{b: b}
	f.Stream = p.readStreamID()
	return f, p.checkFrameEnd(TypeOpened)
}

// Data, DATA, carries bytes of a stream.
//
//	stream | position | bytes, to the end
type Data struct {
	Stream StreamID
	Seq    DataSeq
	Bytes  []byte
}

// Type implements Frame.
func (Data) Type() Type { return TypeData }

// AppendPayload implements Frame.
func (f Data) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.Stream))
	b = binary.AppendUvarint(b, uint64(f.Seq))
	return append(b, f.Bytes...)
}

// AppendData appends a DATA frame without its bytes. The caller must append n bytes.
func AppendData(b []byte, s StreamID, at DataSeq, n int) []byte {
	h := len(b)
	b = AppendHeader(b, TypeData, 0)
	b = binary.AppendUvarint(b, uint64(s))
	b = binary.AppendUvarint(b, uint64(at))
	putHeaderLength(b[h:], len(b)-h-HeaderLen+n)
	return b
}

// MaxDataHeader bounds the bytes that AppendData appends.
const MaxDataHeader = HeaderLen + 2*binary.MaxVarintLen64

// ParseData parses the payload of a DATA. Bytes aliases b and is never empty.
func ParseData(b []byte) (f Data, err error) {
	p := parser{b: b}
	f.Stream, f.Seq = p.readStreamID(), p.readDataSeq()
	p.bad = p.bad || len(p.b) == 0
	f.Bytes, p.b = p.b, nil
	return f, p.checkFrameEnd(TypeData)
}

// Fin, FIN, gives the end of one direction of a stream.
//
//	stream | position after the last byte
type Fin struct {
	Stream StreamID
	Seq    DataSeq
}

// Type implements Frame.
func (Fin) Type() Type { return TypeFin }

// AppendPayload implements Frame.
func (f Fin) AppendPayload(b []byte) []byte { return appendStreamSeq(b, f.Stream, f.Seq) }

// ParseFin parses the payload of a FIN.
func ParseFin(b []byte) (f Fin, err error) {
	p := parser{b: b}
	f.Stream, f.Seq = p.readStreamID(), p.readDataSeq()
	return f, p.checkFrameEnd(TypeFin)
}

// Reset, RESET, ends both directions of a stream at once.
//
//	stream | code (1 byte) | text for people, to the end
type Reset struct {
	Stream StreamID
	Code   Code
	Text   string
}

// Type implements Frame.
func (Reset) Type() Type { return TypeReset }

// AppendPayload implements Frame. It cuts a text longer than MaxText.
func (f Reset) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.Stream))
	return append(append(b, byte(f.Code)), truncateToMaxText(f.Text)...)
}

// Error implements error. It returns the text, or the code if there is none.
func (f Reset) Error() string {
	if f.Text == "" {
		return f.Code.String()
	}
	return f.Text
}

// ParseReset parses the payload of a RESET.
func ParseReset(b []byte) (f Reset, err error) {
	p := parser{b: b}
	f.Stream, f.Code = p.readStreamID(), Code(p.readByte())
	if len(p.b) > MaxText {
		return f, fmt.Errorf("%v: %w", TypeReset, ErrTooLarge)
	}
	f.Text, p.b = string(p.b), nil
	return f, p.checkFrameEnd(TypeReset)
}

// Window, WINDOW, lets the peer send a stream up to a position. A value lower than an earlier one
// is ignored.
//
//	stream | position
type Window struct {
	Stream StreamID
	Limit  DataSeq
}

// Type implements Frame.
func (Window) Type() Type { return TypeWindow }

// AppendPayload implements Frame.
func (f Window) AppendPayload(b []byte) []byte { return appendStreamSeq(b, f.Stream, f.Limit) }

// ParseWindow parses the payload of a WINDOW.
func ParseWindow(b []byte) (f Window, err error) {
	p := parser{b: b}
	f.Stream, f.Limit = p.readStreamID(), p.readDataSeq()
	return f, p.checkFrameEnd(TypeWindow)
}

func appendStreamSeq(b []byte, s StreamID, at DataSeq) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(s)), uint64(at))
}

func (p *parser) readStreamID() StreamID {
	v := p.readUvarint()
	p.bad = p.bad || v == 0 || v > MaxSeq
	return StreamID(v)
}

func (p *parser) readDataSeq() DataSeq {
	v := p.readUvarint()
	p.bad = p.bad || v > MaxSeq
	return DataSeq(v)
}

// Chunk, CHUNK, gives the end of the bytes that the receiver of a stream waits for now. The sender
// schedules the bytes up to there so that they are complete as early as possible (MPBond, MobiSys
// 2020, section 4.3). It applies until all of them are delivered.
//
//	stream | position
type Chunk struct {
	Stream StreamID
	End    DataSeq
}

// Type implements Frame.
func (Chunk) Type() Type { return TypeChunk }

// AppendPayload implements Frame.
func (f Chunk) AppendPayload(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(f.Stream)), uint64(f.End))
}

// ParseChunk parses the payload of a CHUNK.
func ParseChunk(b []byte) (f Chunk, err error) {
	p := parser{b: b}
	f.Stream, f.End = p.readStreamID(), p.readDataSeq()
	return f, p.checkFrameEnd(TypeChunk)
}
