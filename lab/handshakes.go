// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"time"

	"mpbond/lab/mptcp"
)

// HandshakeLog counts handshakes of the primary's TCP connections over shaped links during a transfer.
type HandshakeLog struct {
	Packets int `json:"packets"` // SYNs, SYN+ACKs and ACKs of these, sent or received
	// Connections are those of Multipath TCP, in order.
	Connections []ConnectionHandshake `json:"connections,omitempty"`
}

// ConnectionHandshake is the handshake of a connection of Multipath TCP and the first subflow that joins it.
type ConnectionHandshake struct {
	At      float64 `json:"at_seconds"`        // when its first SYN was sent, since the transfer began
	Packets int     `json:"packets"`           // until two subflows were up, else all
	Took    float64 `json:"seconds,omitempty"` // until then; 0: they never were
}

// readHandshakes reads the handshakes since a time into the result, if the spec asks for them.
func (s *session) readHandshakes(b *Bench, begin time.Time, r *Result) error {
	if !s.spec.Handshakes {
		return nil
	}
	packets, err := s.readCaptures(b, begin)
	var all mptcp.Handshakes
	for _, p := range packets {
		all.AddPacket(p.at, p.link, p.data)
	}
	r.Handshakes = &HandshakeLog{Packets: all.Count()}
	for _, c := range all.Connections() {
		n, took, _ := c.UpWith(2)
		r.Handshakes.Connections = append(r.Handshakes.Connections, ConnectionHandshake{
			At: c.First.Began.Sub(begin).Seconds(), Packets: n, Took: took.Seconds()})
	}
	return err
}
