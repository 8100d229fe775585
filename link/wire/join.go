// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"time"

	"mpbond/base/unit"
)

// BondID names a bond. The primary draws it at random when it starts.
type BondID [16]byte

func (id BondID) String() string { return fmt.Sprintf("%x", id[:4]) }

// SubflowID names a subflow within its bond. The primary gives a new number to each subflow it
// opens and never reuses one.
type SubflowID uint32

// Join, MP_JOIN, is the primary's first frame on a subflow. TLS identifies the sender.
//
//	version (1 byte) | bond (16 bytes) | subflow | instance | helped (1 byte) | key (32 bytes, if helped)
//	| terms | device, length first
//
// Instance is the instance of the server's bond that the primary knows, or 0 if it knows none.
// Device is the name of the device that carries the subflow, for display. Key is the subflow's key
// for HOP_AUTH.
type Join struct {
	Version  uint8
	Bond     BondID
	Subflow  SubflowID
	Instance uint64
	Helped   bool
	Key      HopKey // zero unless Helped
	Terms    Terms
	Device   string
}

// Terms are the costs of a subflow and its performance seen at the primary's present location. Both
// ends weigh them when they choose subflows for a stream.
//
//	radio (1 byte) | metered (1 byte) | tier (1 byte) | rate, bit/s | rtt, µs
type Terms struct {
	Radio   Radio // of the device's link for the HS-path or PS-path
	Metered bool  // the link's data costs money; for display
	Tier    Tier
	// Rate (towards the primary) and RTT were seen here before; 0: unknown.
	Rate unit.Rate
	RTT  time.Duration
}

func (t Terms) appendTerms(b []byte) []byte {
	b = append(b, byte(t.Radio), encodeBoolByte(t.Metered), byte(t.Tier))
	b = binary.AppendUvarint(b, uint64(max(t.Rate, 0)))
	return binary.AppendUvarint(b, uint64(max(t.RTT, 0)/time.Microsecond))
}

// readSubflowTerms reads Terms.
func (p *parser) readSubflowTerms() (t Terms) {
	t.Radio, t.Metered, t.Tier = p.readRadio(), p.readBool(), p.readTier()
	rate, us := p.readUvarint(), p.readUvarint()
	p.bad = p.bad || rate > uint64(1000*unit.Gbps) || us > uint64(time.Hour/time.Microsecond)
	t.Rate, t.RTT = unit.Rate(rate), time.Duration(us)*time.Microsecond
	return t
}

// Type implements Frame.
func (Join) Type() Type { return TypeJoin }

// AppendPayload implements Frame.
func (f Join) AppendPayload(b []byte) []byte {
	b = append(b, f.Version)
	b = append(b, f.Bond[:]...)
	b = binary.AppendUvarint(b, uint64(f.Subflow))
	b = binary.AppendUvarint(b, f.Instance)
	b = append(b, encodeBoolByte(f.Helped))
	if f.Helped {
		b = append(b, f.Key[:]...)
	}
	return appendBytes(f.Terms.appendTerms(b), f.Device)
}

// ParseJoin parses the payload of an MP_JOIN. Another version is no error: the remaining fields are
// then not parsed, since they may differ.
func ParseJoin(b []byte) (f Join, err error) {
	p := parser{b: b}
	if f.Version = p.readByte(); f.Version != Version && !p.bad {
		return f, nil
	}
	p.readFixedBytes(f.Bond[:])
	f.Subflow = p.readSubflowID()
	f.Instance = p.readUvarint()
	if f.Helped = p.readBool(); f.Helped {
		p.readFixedBytes(f.Key[:])
	}
	f.Terms = p.readSubflowTerms()
	f.Device = string(p.readSizedBytes(MaxName))
	return f, p.checkFrameEnd(TypeJoin)
}

// OK, MP_OK, is the server's answer to MP_JOIN: the subflow has joined the bond.
//
//	instance
//
// Instance is a random number that the server draws with the bond's state. If the primary knew
// another one, the server has lost that state and all its streams.
type OK struct {
	Instance uint64
}

// Type implements Frame.
func (OK) Type() Type { return TypeOK }

// AppendPayload implements Frame.
func (f OK) AppendPayload(b []byte) []byte { return binary.AppendUvarint(b, f.Instance) }

// ParseOK parses the payload of an MP_OK.
func ParseOK(b []byte) (f OK, err error) {
	p := parser{b: b}
	f.Instance = p.readUvarint()
	return f, p.checkFrameEnd(TypeOK)
}

// Code is the reason of a refusal or reset. Codes cross the network: the list is append-only.
type Code uint8

// Codes.
const (
	CodeInternal     Code = 0  // failure of the sender
	CodeVersion      Code = 1  // unsupported protocol version
	CodeUnknown      Code = 2  // device or server not trusted
	CodeUnreachable  Code = 3  // unreachable destination or server
	CodeForbidden    Code = 4  // forbidden destination
	CodeTimeout      Code = 5  // no answer in time
	CodeLimit        Code = 6  // too many streams, subflows or bytes
	CodeMalformed    Code = 7  // the peer broke the protocol
	CodeClosed       Code = 8  // orderly shutdown
	CodeConnRefused  Code = 9  // the destination refused the connection
	CodeConnReset    Code = 10 // the destination or the app reset the connection
	CodeNameNotFound Code = 11 // the destination's name does not resolve
	CodeTooBig       Code = 12 // longer than the path to the destination carries
)

var codeNames = []string{"internal error", "unsupported version", "unknown device", "unreachable", "forbidden",
	"timed out", "limit reached", "protocol error", "closed", "connection refused", "connection reset", "name not found",
	"too big"}

func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint8(c))
}

// Refuse, REFUSE, ends the handshake of a subflow, a pipe, or an HS-path.
//
//	code (1 byte) | version (1 byte) | text, to the end
//
// Version is the sender's, for CodeVersion. Text is for people.
type Refuse struct {
	Code    Code
	Version uint8
	Text    string
}

// Type implements Frame.
func (Refuse) Type() Type { return TypeRefuse }

// AppendPayload implements Frame. It cuts a text longer than MaxText.
func (f Refuse) AppendPayload(b []byte) []byte {
	return append(append(b, byte(f.Code), f.Version), truncateToMaxText(f.Text)...)
}

// Error implements error.
func (f Refuse) Error() string {
	if f.Text == "" {
		return "refused: " + f.Code.String()
	}
	return "refused: " + f.Text
}

// VersionMismatch is the error that both ends of a connection speak different protocol versions.
type VersionMismatch struct {
	Peer        string // the other end, such as "helper"
	Here, There uint8
}

// Error implements error.
func (e VersionMismatch) Error() string {
	return fmt.Sprintf("the %s speaks protocol version %d, this device version %d", e.Peer, e.There, e.Here)
}

// ParseRefuse parses the payload of a REFUSE.
func ParseRefuse(b []byte) (f Refuse, err error) {
	p := parser{b: b}
	f.Code, f.Version = Code(p.readByte()), p.readByte()
	if len(p.b) > MaxText {
		return f, fmt.Errorf("%v: %w", TypeRefuse, ErrTooLarge)
	}
	f.Text, p.b = string(p.b), nil
	return f, p.checkFrameEnd(TypeRefuse)
}

// Bye, BYE, ends the whole bond. It has no payload.
type Bye struct{}

// Type implements Frame.
func (Bye) Type() Type { return TypeBye }

// AppendPayload implements Frame.
func (Bye) AppendPayload(b []byte) []byte { return b }

func encodeBoolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func (p *parser) readBool() bool {
	v := p.readByte()
	p.bad = p.bad || v > 1
	return v == 1
}

func (p *parser) readSubflowID() SubflowID {
	v := p.readUvarint()
	p.bad = p.bad || v > 1<<32-1
	return SubflowID(v)
}

// truncateToMaxText cuts a text to MaxText bytes.
func truncateToMaxText(s string) string {
	if len(s) > MaxText {
		return s[:MaxText]
	}
	return s
}

// Ping, PING, only asks for an acknowledgement, as every reliable frame does. The payload is empty.
type Ping struct{}

// Type implements Frame.
func (Ping) Type() Type { return TypePing }

// AppendPayload implements Frame.
func (Ping) AppendPayload(b []byte) []byte { return b }
