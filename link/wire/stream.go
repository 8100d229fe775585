package wire

import (
	"encoding/binary"
	"fmt"

	"mpbond/base/unit"
)

// StreamID names a stream within its bond. The primary counts from 1; an
// identifier opens all lower ones too, so that frames may arrive in any order
// over several subflows.
type StreamID uint64

// DataSeq is a position in one direction of a stream: the stream's first byte
// has DataSeq 0.
type DataSeq uint64

// MaxSeq is the largest position, so that positions plus lengths never wrap.
const MaxSeq = 1<<62 - 1

// InitialWindow and InitialDownWindow are how far a stream may be sent before the
// first WINDOW for it arrives: by the end that opens it, and by the other one. It
// is the least that a stream is granted, however short memory is. The opening end
// sends a WINDOW together with OPEN where it grants more, which costs no time; the
// other one could do so only a round trip later, and so begins with more.
const (
	InitialWindow     = 512 * unit.KB
	InitialDownWindow = 64 * unit.KB
)

// Mode is how both ends treat the bytes of a stream.
type Mode uint8

// Modes.
const (
	Bond      Mode = iota // over all subflows, as the scheduler says
	Latency               // over the one of least delay, before all that is not urgent
	Redundant             // every byte over every subflow; the first copy counts
	modeCount
)

var modeNames = [modeCount]string{Bond: "bond", Latency: "latency", Redundant: "redundant"}

func (m Mode) String() string {
	if m < modeCount {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// Open asks the server to connect a new stream to a destination. Data may
// follow at once.
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
	return f, p.checkEnd(TypeOpen)
}

// Opened tells that the destination of a stream is connected.
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
	return f, p.checkEnd(TypeOpened)
}

// Data carries bytes of a stream.
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

// AppendData appends a DATA frame up to its bytes, of which n must follow.
func AppendData(b []byte, s StreamID, at DataSeq, n int) []byte {
	h := len(b)
	b = AppendHeader(b, TypeData, 0)
	b = binary.AppendUvarint(b, uint64(s))
	b = binary.AppendUvarint(b, uint64(at))
	putLength(b[h:], len(b)-h-HeaderLen+n)
	return b
}

// MaxDataHeader bounds what AppendData appends.
const MaxDataHeader = HeaderLen + 2*binary.MaxVarintLen64

// ParseData parses the payload of a DATA. Bytes aliases b and is never empty.
func ParseData(b []byte) (f Data, err error) {
	p := parser{b: b}
	f.Stream, f.Seq = p.readStreamID(), p.readSeq()
	p.bad = p.bad || len(p.b) == 0
	f.Bytes, p.b = p.b, nil
	return f, p.checkEnd(TypeData)
}

// Fin tells where a direction of a stream ends.
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
	f.Stream, f.Seq = p.readStreamID(), p.readSeq()
	return f, p.checkEnd(TypeFin)
}

// Reset ends a stream at once, both directions.
//
//	stream | code (1 byte) | text for people, to the end
type Reset struct {
	Stream StreamID
	Code   Code
	Text   string
}

// Type implements Frame.
func (Reset) Type() Type { return TypeReset }

// AppendPayload implements Frame. A text over MaxText is cut.
func (f Reset) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.Stream))
	return append(append(b, byte(f.Code)), truncateText(f.Text)...)
}

// Error makes a reset usable as an error.
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
	return f, p.checkEnd(TypeReset)
}

// Window lets the peer send a stream up to a position. A lower value than one
// sent before is ignored.
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
	f.Stream, f.Limit = p.readStreamID(), p.readSeq()
	return f, p.checkEnd(TypeWindow)
}

func appendStreamSeq(b []byte, s StreamID, at DataSeq) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(s)), uint64(at))
}

func (p *parser) readStreamID() StreamID {
	v := p.readUvarint()
	p.bad = p.bad || v == 0 || v > MaxSeq
	return StreamID(v)
}

func (p *parser) readSeq() DataSeq {
	v := p.readUvarint()
	p.bad = p.bad || v > MaxSeq
	return DataSeq(v)
}

// Chunk tells the end of what the receiver of a stream waits for at present:
// its sender shall schedule so that the bytes up to there are complete as early
// as possible (MPBond, MobiSys 2020, section 4.3). It takes effect while those
// bytes are not all delivered.
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
	f.Stream, f.End = p.readStreamID(), p.readSeq()
	return f, p.checkEnd(TypeChunk)
}
