// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"time"

	"mpbond/base/unit"
)

// Hello, HELLO, opens a hop. A helper sends it first on a pipe, where TLS identifies the helper,
// and first on an HS-path. There its type byte shows the server that the caller is a helper: the
// TLS record of a primary begins with 0x16.
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

// ParseHello parses the payload of a HELLO. As with MP_JOIN, another version is no error.
func ParseHello(b []byte) (f Hello, err error) {
	p := parser{b: b}
	var m [len(magic)]byte
	p.readFixedBytes(m[:])
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
	return f, p.checkFrameEnd(TypeHello)
}

// Token identifies one helped subflow on its pipes. The primary draws it at random.
type Token [16]byte

// InitJoin, INIT_MP_JOIN, asks a helper to connect the pipe to a server. The helper answers with
// INIT_MP_OK or REFUSE. After INIT_MP_OK both ends of the pipe send HOP_DATA. RESUME later names
// the subflow by Token. When the pipe breaks, both ends wait for a RESUME for ResumeTimeout. Key
// is the subflow's key for HOP_AUTH.
//
//	token (16 bytes) | key (32 bytes) | resume timeout, ms | server "host:port", to the end
type InitJoin struct {
	Token         Token
	Key           HopKey
	ResumeTimeout time.Duration
	Server        string
}

// Type implements Frame.
func (InitJoin) Type() Type { return TypeInitJoin }

// AppendPayload implements Frame.
func (f InitJoin) AppendPayload(b []byte) []byte {
	b = append(append(b, f.Token[:]...), f.Key[:]...)
	b = binary.AppendUvarint(b, uint64(max(f.ResumeTimeout, 0)/time.Millisecond))
	return append(b, f.Server...)
}

// ParseInitJoin parses the payload of an INIT_MP_JOIN.
func ParseInitJoin(b []byte) (f InitJoin, err error) {
	p := parser{b: b}
	p.readFixedBytes(f.Token[:])
	p.readFixedBytes(f.Key[:])
	ms := p.readUvarint()
	p.bad = p.bad || ms > uint64(time.Hour/time.Millisecond)
	f.ResumeTimeout = time.Duration(ms) * time.Millisecond
	if len(p.b) > MaxDest {
		return f, fmt.Errorf("%v: %w", TypeInitJoin, ErrTooLarge)
	}
	f.Server, p.b = string(p.b), nil
	return f, p.checkFrameEnd(TypeInitJoin)
}

// InitOK, INIT_MP_OK, reports to the primary that the HS-path is connected, and the radio of the
// helper's link.
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
	return f, p.checkFrameEnd(TypeInitOK)
}

// HopState, HOP_STATE, is a helper's report about the hop beyond it, as seen by the receiver of the
// report. It describes the helper's other hop: to the server, the pipe; to the primary, the
// HS-path, or the pipe if AboutPipe is set. On an HS-path it travels in a HOP_AUTH only.
//
//	received | forwarded | rate, bit/s | rtt, µs | flags (1 byte: 1 app-limited, 2 about the pipe, 4 for the primary)
type HopState struct {
	// Received counts the bytes of subflow ciphertext that the helper has read from the sender,
	// Forwarded those of them that the far TCP has acknowledged. Their difference is the backlog at
	// the helper, including its kernel's queue.
	Received, Forwarded uint64
	// Rate is the throughput of the far hop. AppLimited reports that it is only a lower bound,
	// because the helper had too little to send.
	Rate       unit.Rate
	RTT        time.Duration
	AppLimited bool
	// AboutPipe marks a report to the primary that describes the pipe. The primary passes it on to
	// the server in a PIPE_STATE. With ForPrimary it keeps the report and uses it to choose between
	// the pipes to this helper.
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
	return append(b, encodeBoolByte(f.AppLimited)|encodeBoolByte(f.AboutPipe)<<1|encodeBoolByte(f.ForPrimary)<<2)
}

// ParseHopState parses the payload of a HOP_STATE.
func ParseHopState(b []byte) (f HopState, err error) {
	p := parser{b: b}
	f = p.readHopState()
	return f, p.checkFrameEnd(TypeHopState)
}

// readHopState reads a HopState.
func (p *parser) readHopState() (f HopState) {
	f.Received, f.Forwarded = p.readUvarint(), p.readUvarint()
	rate, us := p.readUvarint(), p.readUvarint()
	flags := p.readByte()
	f.AppLimited, f.AboutPipe, f.ForPrimary = flags&1 != 0, flags&2 != 0, flags&4 != 0
	p.bad = p.bad || flags > 7 || f.ForPrimary && !f.AboutPipe || rate > uint64(1000*unit.Gbps) ||
		us > uint64(time.Hour/time.Microsecond) || f.Forwarded > f.Received
	f.Rate, f.RTT = unit.Rate(rate), time.Duration(us)*time.Microsecond
	return f
}

// PipeState, PIPE_STATE, carries a HopState that reached the primary over the pipe on to the server
// over a subflow. It is used when the HS-path is idle and must not be woken.
//
//	subflow | HopState
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
	return f, p.checkFrameEnd(TypePipeState)
}
