// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/gopacket/gopacket/layers"
)

// Held follows how many bytes of a host's latest connection of Multipath TCP have arrived and wait for earlier
// ones, from captures at the host's links. The zero value has no connection. Packets of all links must be
// added in the order of their times. Not safe for concurrent use.
type Held struct {
	subflows map[fourTuple]*mappedSubflow
	next     uint64    // the first byte that has not arrived, by its data sequence number
	later    []seqSpan // that arrived, in order, without overlaps
}

// HasConnection reports whether a connection has begun.
func (h *Held) HasConnection() bool { return h.subflows != nil }

// mappedSubflow is a subflow of the connection.
type mappedSubflow struct {
	firstSeq uint32 // of its first byte from the server
	maps     []mapping
}

// mapping maps bytes of a subflow to bytes of the connection (RFC 8684, section 3.3.1).
type mapping struct {
	from   uint32 // relative to the beginning of the subflow; its first byte is 1
	data   uint64
	length uint32
}

// seqSpan is [from, to) of the connection.
type seqSpan struct{ from, to uint64 }

// maxMappings bounds the mappings that are kept of a subflow: those of what may be sent again.
const maxMappings = 4096

// recentMappings are searched for one that is repeated.
const recentMappings = 64

// AddPacket adds an IP packet that the host sent or got. Its payload may be missing. Malformed ones and those of
// other connections are ignored.
func (h *Held) AddPacket(data []byte) {
	t, source, destination, ok := parseTCP(data)
	if !ok {
		return
	}
	kind, option := findMPTCPOption(t)
	s := h.subflows[fourTuple{destination, source}]
	switch {
	case t.SYN && t.ACK:
		h.addSubflow(t, fourTuple{destination, source}, kind, option)
	case s == nil || t.SYN:
	default:
		if kind == dss {
			h.addMapping(s, option)
		}
		if n := payloadLength(data, t); n > 0 {
			h.addBytes(s, t.Seq-s.firstSeq+1, n)
		}
	}
}

// addSubflow begins a connection, or adds a subflow to it.
func (h *Held) addSubflow(t *layers.TCP, key fourTuple, kind int, option []byte) {
	switch {
	case kind == mpCapable && len(option) >= capableKeyEnd:
		if h.subflows[key] != nil {
			return // the SYN+ACK again
		}
		hash := sha256.Sum256(option[capableKeyAt:capableKeyEnd])
		*h = Held{subflows: map[fourTuple]*mappedSubflow{},
			next: binary.BigEndian.Uint64(hash[len(hash)-8:]) + 1}
	case kind == mpJoin && h.HasConnection() && h.subflows[key] == nil:
	default:
		return
	}
	h.subflows[key] = &mappedSubflow{firstSeq: t.Seq + 1}
}

// The option DSS, after kind and length: subtype, flags, then the fields that the flags announce.
const (
	dss                                         = 2
	dssHasAck, dssLongAck, dssHasMap, dssLongNo = 1, 2, 4, 8
)

// addMapping adds the mapping of an option DSS, if it has one.
func (h *Held) addMapping(s *mappedSubflow, option []byte) {
	flags, at := option[1], 2
	if flags&dssHasAck != 0 {
		at += 4
		if flags&dssLongAck != 0 {
			at += 4
		}
	}
	width := 4
	if flags&dssLongNo != 0 {
		width = 8
	}
	if flags&dssHasMap == 0 || len(option) < at+width+6 {
		return
	}
	low := binary.BigEndian.Uint32(option[at+width-4:])
	m := mapping{data: h.expandSeq(low), from: binary.BigEndian.Uint32(option[at+width:]),
		length: uint32(binary.BigEndian.Uint16(option[at+width+4:]))}
	if m.length == 0 || slices.Contains(s.maps[max(0, len(s.maps)-recentMappings):], m) {
		return // all that follows, or repeated: each packet of a mapping has it
	}
	if s.maps = append(s.maps, m); len(s.maps) > maxMappings {
		s.maps = slices.Delete(s.maps, 0, maxMappings/4)
	}
}

// expandSeq returns the data sequence number with these low bits that is nearest to the expected one.
func (h *Held) expandSeq(low uint32) uint64 { return h.next + uint64(int64(int32(low-uint32(h.next)))) }

// addBytes adds n bytes of a subflow. from is the relative sequence number of the first one.
func (h *Held) addBytes(s *mappedSubflow, from, n uint32) {
	for n > 0 {
		i := len(s.maps) - 1 // most likely one of the newest
		for i >= 0 && from-s.maps[i].from >= s.maps[i].length {
			i--
		}
		if i < 0 {
			return // the mapping was not captured
		}
		m := s.maps[i]
		part := min(n, m.length-(from-m.from))
		at := m.data + uint64(from-m.from)
		h.addSpan(seqSpan{at, at + uint64(part)})
		from, n = from+part, n-part
	}
}

// addSpan adds bytes of the connection.
func (h *Held) addSpan(x seqSpan) {
	if x.from = max(x.from, h.next); x.from >= x.to {
		return
	}
	i, _ := slices.BinarySearchFunc(h.later, x.from, func(o seqSpan, from uint64) int {
		if o.to < from {
			return -1
		}
		return 1
	})
	j := i
	for ; j < len(h.later) && h.later[j].from <= x.to; j++ {
		x.from, x.to = min(x.from, h.later[j].from), max(x.to, h.later[j].to)
	}
	h.later = slices.Replace(h.later, i, j, x)
	if h.later[0].from == h.next {
		h.next = h.later[0].to
		h.later = slices.Delete(h.later, 0, 1)
	}
}

// Bytes returns how many bytes wait for earlier ones.
func (h *Held) Bytes() (n uint64) {
	for _, x := range h.later {
		n += x.to - x.from
	}
	return n
}

// payloadLength returns the length of a packet's payload, by its headers.
func payloadLength(data []byte, t *layers.TCP) uint32 {
	headers, total := 4*int(t.DataOffset), 0
	switch data[0] >> 4 {
	case 4:
		headers, total = headers+4*int(data[0]&0xf), int(binary.BigEndian.Uint16(data[2:]))
	case 6:
		headers, total = headers+40, 40+int(binary.BigEndian.Uint16(data[4:]))
	}
	return uint32(max(0, total-headers))
}
