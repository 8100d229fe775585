// SPDX-License-Identifier: Apache-2.0

// Package mptcp reads connections of Multipath TCP (RFC 8684) from captured packets.
//
//	handshake.go  how subflows were set up
//	held.go       bytes that wait for earlier ones
package mptcp

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Subflow is one TCP connection that a host opened, of Multipath TCP or not.
type Subflow struct {
	Link  string
	Began time.Time // when its first SYN was sent
	Up    time.Time // when the first SYN+ACK arrived; zero: none did

	// packets are the times of those of the handshake that were sent or arrived: each SYN, each SYN+ACK, and an
	// ACK for each of these.
	packets []time.Time

	capable  bool   // its SYN has MP_CAPABLE
	joined   bool   // its SYN has MP_JOIN
	accepted bool   // the SYN+ACK has the same option
	token    uint32 // of the connection that it joins, or is
}

// Connection is a connection of Multipath TCP.
type Connection struct {
	First  *Subflow
	Joined []*Subflow // in the order of their beginnings
}

// UpWith returns how many packets of handshakes it took, and how long, until n subflows were up. If they never
// were, ok is false, took is 0 and packets counts all.
func (c *Connection) UpWith(n int) (packets int, took time.Duration, ok bool) {
	all := append([]*Subflow{c.First}, c.Joined...)
	var ups []time.Time
	for _, s := range all {
		if s.accepted {
			ups = append(ups, s.Up)
		}
	}
	var end time.Time
	if ok = n >= 1 && len(ups) >= n; ok {
		slices.SortFunc(ups, time.Time.Compare)
		end = ups[n-1]
		took = end.Sub(c.First.Began)
	}
	for _, s := range all {
		for _, at := range s.packets {
			if !ok || !at.After(end) {
				packets++
			}
		}
	}
	return packets, took, ok
}

// Handshakes collects the handshakes of one host from captures at its links. The zero value is empty. Not safe
// for concurrent use.
type Handshakes struct {
	subflows map[fourTuple]*Subflow
	order    []*Subflow
}

// fourTuple is a TCP connection as the host sees it.
type fourTuple struct{ own, far netip.AddrPort }

// AddPacket adds an IP packet that the host sent or got over a link. Packets of a link must be added in their
// order. Whatever is not part of a handshake, or malformed, is ignored.
func (h *Handshakes) AddPacket(at time.Time, link string, data []byte) {
	t, source, destination, ok := parseTCP(data)
	if !ok || !t.SYN {
		return
	}
	kind, option := findMPTCPOption(t)
	key := fourTuple{source, destination}
	if !t.ACK {
		s := h.subflows[key]
		if s == nil {
			s = &Subflow{Link: link, Began: at, capable: kind == mpCapable, joined: kind == mpJoin}
			if s.joined && len(option) >= joinTokenEnd {
				s.token = binary.BigEndian.Uint32(option[joinTokenAt:joinTokenEnd])
			}
			if h.subflows == nil {
				h.subflows = map[fourTuple]*Subflow{}
			}
			h.subflows[key] = s
			h.order = append(h.order, s)
		}
		s.packets = append(s.packets, at)
		return
	}
	s := h.subflows[fourTuple{destination, source}]
	if s == nil {
		return // the host is the server
	}
	if s.packets = append(s.packets, at, at); !s.Up.IsZero() {
		return
	}
	s.Up = at
	switch {
	case s.capable && kind == mpCapable && len(option) >= capableKeyEnd:
		hash := sha256.Sum256(option[capableKeyAt:capableKeyEnd]) // RFC 8684, section 3.2
		s.accepted, s.token = true, binary.BigEndian.Uint32(hash[:])
	case s.joined && kind == mpJoin:
		s.accepted = true
	}
}

// Count returns how many SYNs, SYN+ACKs and ACKs of handshakes there were.
func (h *Handshakes) Count() (n int) {
	for _, s := range h.order {
		n += len(s.packets)
	}
	return n
}

// Connections returns the connections of Multipath TCP whose first subflow was accepted as such, in the order
// of their beginnings.
func (h *Handshakes) Connections() (all []*Connection) {
	byToken := map[uint32]*Connection{}
	for _, s := range h.order {
		if s.capable && s.accepted {
			c := &Connection{First: s}
			all = append(all, c)
			byToken[s.token] = c
		}
	}
	for _, s := range h.order {
		if c := byToken[s.token]; s.joined && c != nil {
			c.Joined = append(c.Joined, s)
		}
	}
	began := func(a, b *Subflow) int { return a.Began.Compare(b.Began) }
	for _, c := range all {
		slices.SortFunc(c.Joined, began)
	}
	slices.SortFunc(all, func(a, b *Connection) int { return began(a.First, b.First) })
	return all
}

// The options of RFC 8684, section 3.1 and 3.2, after kind and length: subtype and version, flags, then in a
// SYN+ACK with MP_CAPABLE the sender's key, and in a SYN with MP_JOIN the receiver's token.
const (
	optionKind                  = 30
	mpCapable, mpJoin           = 0, 1
	capableKeyAt, capableKeyEnd = 2, 10
	joinTokenAt, joinTokenEnd   = 2, 6
)

// findMPTCPOption returns the subtype and content of the first option of Multipath TCP; -1 if there is none.
func findMPTCPOption(t *layers.TCP) (subtype int, content []byte) {
	for _, o := range t.Options {
		if o.OptionType == optionKind && len(o.OptionData) >= 2 {
			return int(o.OptionData[0] >> 4), o.OptionData
		}
	}
	return -1, nil
}

// parseTCP parses an IP packet with TCP. It copies nothing.
func parseTCP(data []byte) (t *layers.TCP, source, destination netip.AddrPort, ok bool) {
	if len(data) == 0 {
		return nil, source, destination, false
	}
	var ip interface {
		gopacket.NetworkLayer
		gopacket.DecodingLayer
	} = &layers.IPv4{}
	if data[0]>>4 == 6 {
		ip = &layers.IPv6{}
	}
	if ip.DecodeFromBytes(data, gopacket.NilDecodeFeedback) != nil || ip.NextLayerType() != layers.LayerTypeTCP {
		return nil, source, destination, false
	}
	t = &layers.TCP{}
	if t.DecodeFromBytes(ip.LayerPayload(), gopacket.NilDecodeFeedback) != nil {
		return nil, source, destination, false
	}
	from, _ := netip.AddrFromSlice(ip.NetworkFlow().Src().Raw())
	to, _ := netip.AddrFromSlice(ip.NetworkFlow().Dst().Raw())
	return t, netip.AddrPortFrom(from, uint16(t.SrcPort)), netip.AddrPortFrom(to, uint16(t.DstPort)), true
}
