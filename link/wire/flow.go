// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// FlowID names a datagram flow within its bond: one UDP socket of an app, and one of the server.
// The primary counts from 1 and uses each number once.
type FlowID uint64

// MaxDatagram is the largest payload that UDP carries (RFC 768, over IPv6).
const MaxDatagram = 65535 - 8

// MaxHost is the longest name in an Addr (RFC 1928 section 5).
const MaxHost = 255

// Address types of Addr, as in SOCKS5 (RFC 1928 section 5).
const (
	addrIPv4 = 1
	addrName = 3
	addrIPv6 = 4
)

// Addr is the destination or source of a datagram: an address, or a name that the server resolves.
//
//	1 | 4 bytes | port    3 | length | name | port    4 | 16 bytes | port
//
// The address type and the length of the name are one byte, the port is two bytes, big endian, as
// in SOCKS5. An IPv4-mapped address is encoded as IPv4. Zones are not encoded.
type Addr struct {
	IP   netip.Addr // invalid if there is a name
	Name string
	Port uint16
}

// AddrFrom returns the Addr of a, without a zone.
func AddrFrom(a netip.AddrPort) Addr {
	return Addr{IP: a.Addr().Unmap().WithZone(""), Port: a.Port()}
}

// AddrOf parses "host:port".
func AddrOf(dest string) (Addr, error) {
	if a, err := netip.ParseAddrPort(dest); err == nil {
		if a.Addr().Zone() != "" {
			return Addr{}, fmt.Errorf("%q: an address with a zone is valid on one link only", dest)
		}
		return AddrFrom(a), nil
	}
	host, p, ok := cutAtLastByte(dest, ':')
	port, err := strconv.ParseUint(p, 10, 16)
	if !ok || err != nil {
		return Addr{}, fmt.Errorf("%q is not host:port with a port from 0 to 65535", dest)
	}
	if host == "" || len(host) > MaxHost || strings.ContainsAny(host, ":[]") {
		return Addr{}, fmt.Errorf("%q is not a host name of 1 to %d bytes", host, MaxHost)
	}
	return Addr{Name: host, Port: uint16(port)}, nil
}

// cutAtLastByte is strings.Cut at the last sep.
func cutAtLastByte(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// AddrPort returns the address; it is invalid for a name.
func (a Addr) AddrPort() netip.AddrPort { return netip.AddrPortFrom(a.IP, a.Port) }

// String returns "host:port".
func (a Addr) String() string {
	if a.IP.IsValid() {
		return a.AddrPort().String()
	}
	return a.Name + ":" + strconv.Itoa(int(a.Port))
}

// Append appends the address to b.
func (a Addr) Append(b []byte) []byte {
	switch {
	case a.IP.Is4():
		v := a.IP.As4()
		b = append(append(b, addrIPv4), v[:]...)
	case a.IP.Is6():
		v := a.IP.As16()
		b = append(append(b, addrIPv6), v[:]...)
	default:
		b = append(append(b, addrName, byte(len(a.Name))), a.Name...)
	}
	return binary.BigEndian.AppendUint16(b, a.Port)
}

// CutAddr parses the address at the front of b and returns the bytes after it.
func CutAddr(b []byte) (a Addr, rest []byte, err error) {
	p := parser{b: b}
	a = p.readAddr()
	if p.bad {
		return Addr{}, nil, fmt.Errorf("address: %w: truncated or of unknown type", ErrMalformed)
	}
	return a, p.b, nil
}

// readAddr reads an Addr.
func (p *parser) readAddr() (a Addr) {
	switch p.readByte() {
	case addrIPv4:
		var v [4]byte
		p.readFixedBytes(v[:])
		a.IP = netip.AddrFrom4(v)
	case addrIPv6:
		var v [16]byte
		p.readFixedBytes(v[:])
		a.IP = netip.AddrFrom16(v).Unmap()
	case addrName:
		n := int(p.readByte())
		if n == 0 || n > len(p.b) {
			p.bad, p.b = true, nil
			return Addr{}
		}
		a.Name, p.b = string(p.b[:n]), p.b[n:]
	default:
		p.bad = true
	}
	var port [2]byte
	p.readFixedBytes(port[:])
	a.Port = binary.BigEndian.Uint16(port[:])
	return a
}

// Datagram, DATAGRAM, carries one datagram of a flow to Addr or, from the server, from Addr. The
// first one of a flow opens the flow. It is acknowledged with its subflow like every frame, but
// never sent again.
//
//	flow | 2·number + redundant | group | address | bytes, to the end
//
// The datagrams of one direction of a flow are numbered from 0. A redundant flow sends each on two
// subflows; the number identifies duplicates. The other end then sends redundantly too.
type Datagram struct {
	Flow      FlowID
	Number    uint64
	Redundant bool
	Group     GroupID
	Addr      Addr
	Bytes     []byte
}

// Type implements Frame.
func (Datagram) Type() Type { return TypeDatagram }

// AppendPayload implements Frame.
func (f Datagram) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.Flow))
	n := f.Number << 1
	if f.Redundant {
		n |= 1
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, n), uint64(f.Group))
	return append(f.Addr.Append(b), f.Bytes...)
}

// ParseDatagram parses the payload of a DATAGRAM. Bytes aliases b and may be
// empty.
func ParseDatagram(b []byte) (f Datagram, err error) {
	p := parser{b: b}
	f.Flow = p.readFlowID()
	n := p.readUvarint()
	p.bad = p.bad || n > MaxSeq
	f.Number, f.Redundant, f.Group = n>>1, n&1 != 0, p.readGroupID()
	f.Addr = p.readAddr()
	f.Bytes, p.b = p.b, nil
	if len(f.Bytes) > MaxDatagram {
		return Datagram{}, fmt.Errorf("%v: %w", TypeDatagram, ErrTooLarge)
	}
	return f, p.checkFrameEnd(TypeDatagram)
}

// FlowEnd, FLOW_END, ends a flow or reports that it has ended: later datagrams of it are dropped.
// It may get lost with its subflow. An end that receives datagrams of an ended flow sends it again.
//
//	flow | code (1 byte) | text for people, to the end
type FlowEnd struct {
	Flow FlowID
	Code Code
	Text string
}

// Type implements Frame.
func (FlowEnd) Type() Type { return TypeFlowEnd }

// AppendPayload implements Frame. It cuts a text longer than MaxText.
func (f FlowEnd) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.Flow))
	return append(append(b, byte(f.Code)), truncateToMaxText(f.Text)...)
}

// ParseFlowEnd parses the payload of a FLOW_END.
func ParseFlowEnd(b []byte) (f FlowEnd, err error) {
	p := parser{b: b}
	f.Flow, f.Code = p.readFlowID(), Code(p.readByte())
	f.Text = p.readTrailingText()
	return f, p.checkFrameEnd(TypeFlowEnd)
}

// FlowRefused, FLOW_REFUSED, reports that datagrams of a flow to one destination were not
// forwarded, or that the network answered them with an error (ICMP). The flow continues. The frame
// may get lost.
//
//	flow | code (1 byte) | MTU | address | text for people, to the end
//
// MTU is the longest IP packet that reaches the destination for CodeTooBig, else 0.
type FlowRefused struct {
	Flow FlowID
	Code Code
	MTU  uint16
	Addr Addr // as in the DATAGRAM
	Text string
}

// Type implements Frame.
func (FlowRefused) Type() Type { return TypeFlowRefused }

// AppendPayload implements Frame. It cuts a text longer than MaxText.
func (f FlowRefused) AppendPayload(b []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(f.Flow)), byte(f.Code))
	return append(f.Addr.Append(binary.AppendUvarint(b, uint64(f.MTU))), truncateToMaxText(f.Text)...)
}

// ParseFlowRefused parses the payload of a FLOW_REFUSED.
func ParseFlowRefused(b []byte) (f FlowRefused, err error) {
	p := parser{b: b}
	f.Flow, f.Code = p.readFlowID(), Code(p.readByte())
	mtu := p.readUvarint()
	p.bad = p.bad || mtu > 65535
	f.MTU, f.Addr = uint16(mtu), p.readAddr()
	f.Text = p.readTrailingText()
	return f, p.checkFrameEnd(TypeFlowRefused)
}

func (p *parser) readFlowID() FlowID {
	v := p.readUvarint()
	p.bad = p.bad || v == 0 || v > MaxSeq
	return FlowID(v)
}

// readTrailingText reads a text of at most MaxText bytes, to the end.
func (p *parser) readTrailingText() string {
	p.bad = p.bad || len(p.b) > MaxText
	if p.bad {
		return ""
	}
	s := string(p.b)
	p.b = nil
	return s
}
