package wire

import (
	"encoding/binary"
	"fmt"
	"time"

	"mpbond/base/unit"
)

// Hello opens a hop. A helper sends it first on a pipe, where TLS tells who it
// is, and first on an HS-path, where its type byte tells the server that a
// helper calls and not a primary (whose TLS record begins with 0x16).
//
//	"mpbond" (6 bytes) | version (1 byte) | name, to the end
type Hello struct {
	Version uint8
	Name    string
}

const magic = "mpbond"

// Type implements Frame.
func (Hello) Type() Type { return TypeHello }

// AppendPayload implements Frame.
func (f Hello) AppendPayload(b []byte) []byte {
	b = append(append(b, magic...), f.Version)
	return append(b, f.Name[:min(len(f.Name), MaxName)]...)
}

// ParseHello parses the payload of a HELLO. As with MP_JOIN another version is
// no error here.
func ParseHello(b []byte) (f Hello, err error) {
	p := parser{b: b}
	var m [len(magic)]byte
	p.readFixed(m[:])
	f.Version = p.readByte()
	if p.bad || string(m[:]) != magic {
		return f, fmt.Errorf("%v: %w: this is not mpbond", TypeHello, ErrMalformed)
	}
	if f.Version != Version {
		return f, nil
	}
	if len(p.b) > MaxName {
		return f, fmt.Errorf("%v: %w", TypeHello, ErrTooLarge)
	}
	f.Name, p.b = string(p.b), nil
	return f, p.checkEnd(TypeHello)
}

// Token names the session of one helped subflow on its pipes. The primary
// draws it at random.
type Token [16]byte

// InitJoin, INIT_MP_JOIN, asks a helper to connect the pipe to a server. The
// helper answers with INIT_MP_OK or REFUSE; after INIT_MP_OK both ends of the
// pipe send HOP_DATA. Token is how RESUME names this subflow later, and Window
// how long both ends wait for that when the pipe breaks. Key is the subflow's, for
// HOP_AUTH.
//
//	token (16 bytes) | key (32 bytes) | window, ms | server "host:port", to the end
type InitJoin struct {
	Token  Token
	Key    HopKey
	Window time.Duration
	Server string
}

// Type implements Frame.
func (InitJoin) Type() Type { return TypeInitJoin }

// AppendPayload implements Frame.
func (f InitJoin) AppendPayload(b []byte) []byte {
	b = append(append(b, f.Token[:]...), f.Key[:]...)
	b = binary.AppendUvarint(b, uint64(max(f.Window, 0)/time.Millisecond))
	return append(b, f.Server...)
}

// ParseInitJoin parses the payload of an INIT_MP_JOIN.
func ParseInitJoin(b []byte) (f InitJoin, err error) {
	p := parser{b: b}
	p.readFixed(f.Token[:])
	p.readFixed(f.Key[:])
	ms := p.readUvarint()
	p.bad = p.bad || ms > uint64(time.Hour/time.Millisecond)
	f.Window = time.Duration(ms) * time.Millisecond
	if len(p.b) > MaxDest {
		return f, fmt.Errorf("%v: %w", TypeInitJoin, ErrTooLarge)
	}
	f.Server, p.b = string(p.b), nil
	return f, p.checkEnd(TypeInitJoin)
}

// InitOK, INIT_MP_OK, tells the primary that the HS-path is connected, and what
// radio its link has at the helper.
//
//	radio (1 byte)
type InitOK struct {
	Radio Radio
}

// Type implements Frame.
func (InitOK) Type() Type { return TypeInitOK }

// AppendPayload implements Frame.
func (f InitOK) AppendPayload(b []byte) []byte { return append(b, byte(f.Radio)) }

// ParseInitOK parses the payload of an INIT_MP_OK.
func ParseInitOK(b []byte) (f InitOK, err error) {
	p := parser{b: b}
	f.Radio = p.readRadio()
	return f, p.checkEnd(TypeInitOK)
}

// HopState is a helper's report about the hop beyond it, as seen by the sender
// that the report goes to: about the pipe when it goes to the server, about
// the HS-path when it goes to the primary. On an HS-path it travels in a HOP_AUTH only.
//
//	received | forwarded | rate, bit/s | rtt, µs | flags (1 byte: 1 app-limited, 2 of the pipe, 4 it stays)
type HopState struct {
	// Received and Forwarded count bytes of subflow ciphertext: those that the
	// helper has read from the sender, and those of them that the far TCP has
	// acknowledged. Their difference is the backlog at the helper, its kernel's
	// queue included.
	Received, Forwarded uint64
	// Rate is the throughput of the far hop, and AppLimited tells that it is
	// only a lower bound, because the helper had too little to send.
	Rate       unit.Rate
	RTT        time.Duration
	AppLimited bool
	// AboutPipe tells, on its way to the primary, that the report is about the
	// pipe all the same: it is meant for the server and travels on as a
	// PIPE_STATE, unless it Stays: then it is for the primary itself, which
	// chooses between the pipes to this helper.
	AboutPipe, ForPrimary bool
}

// Type implements Frame.
func (HopState) Type() Type { return TypeHopState }

// AppendPayload implements Frame.
func (f HopState) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, f.Received)
	b = binary.AppendUvarint(b, f.Forwarded)
	b = binary.AppendUvarint(b, uint64(max(f.Rate, 0)))
	b = binary.AppendUvarint(b, uint64(max(f.RTT, 0)/time.Microsecond))
	return append(b, boolByte(f.AppLimited)|boolByte(f.AboutPipe)<<1|boolByte(f.ForPrimary)<<2)
}

// ParseHopState parses the payload of a HOP_STATE.
func ParseHopState(b []byte) (f HopState, err error) {
	p := parser{b: b}
	f = p.readHopState()
	return f, p.checkEnd(TypeHopState)
}

func (p *parser) readHopState() (f HopState) {
	f.Received, f.Forwarded = p.readUvarint(), p.readUvarint()
	rate, us := p.readUvarint(), p.readUvarint()
	flags := p.readByte()
	f.AppLimited, f.AboutPipe, f.ForPrimary = flags&1 != 0, flags&2 != 0, flags&4 != 0
	p.bad = p.bad || flags > 7 || f.ForPrimary && !f.AboutPipe || rate > uint64(1000*unit.Gbps) || us > uint64(time.Hour/time.Microsecond) || f.Forwarded > f.Received
	f.Rate, f.RTT = unit.Rate(rate), time.Duration(us)*time.Microsecond
	return f
}

// PipeState is a HopState that reached the primary over the pipe and travels
// on to the server over a subflow, when the HS-path is idle and shall not be
// woken.
//
//	path | HopState
type PipeState struct {
	Subflow SubflowID
	HopState
}

// Type implements Frame.
func (PipeState) Type() Type { return TypePipeState }

// AppendPayload implements Frame.
func (f PipeState) AppendPayload(b []byte) []byte {
	return f.HopState.AppendPayload(binary.AppendUvarint(b, uint64(f.Subflow)))
}

// ParsePipeState parses the payload of a PIPE_STATE.
func ParsePipeState(b []byte) (f PipeState, err error) {
	p := parser{b: b}
	f.Subflow = p.readSubflowID()
	f.HopState = p.readHopState()
	return f, p.checkEnd(TypePipeState)
}
