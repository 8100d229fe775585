// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Servers, SERVERS, lists all current servers of a primary. It replaces the list that the helper
// got at pairing. The primary sends it on a pipe that waits, before INIT_MP_JOIN or RESUME: when
// the pipe starts to wait, and again when the list changes. There is no answer.
//
//	number of servers, that many: length, "host:port"
type Servers struct {
	Addresses []string
}

// Type implements Frame.
func (Servers) Type() Type { return TypeServers }

// AppendPayload implements Frame.
func (f Servers) AppendPayload(b []byte) []byte { return appendServers(b, f.Addresses) }

// ParseServers parses the payload of a SERVERS.
func ParseServers(b []byte) (f Servers, err error) {
	p := parser{b: b}
	f.Addresses = p.readServers()
	return f, p.checkFrameEnd(TypeServers)
}

func appendServers(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendBytes(b, s)
	}
	return b
}

// readServers reads a list of addresses.
func (p *parser) readServers() (list []string) {
	for range p.readBoundedCount(MaxPairServers) {
		list = append(list, string(p.readSizedBytes(MaxDest)))
	}
	return list
}
