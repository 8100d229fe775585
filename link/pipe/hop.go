// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"net"

	"mpbond/link/congestion"
	"mpbond/link/wire"
)

// Hop carries one subflow's ciphertext between two devices: a Link between primary and helper, an
// HSPath between helper and server. It is a Transport of package subflow, which runs end-to-end TLS
// over it. One goroutine may read and another write. Any goroutine may call SendState, Probe and
// Close.
type Hop interface {
	// Conn reads and writes ciphertext. The byte counts of Probe include framing and, on a pipe,
	// TLS.
	Conn
	// Refuse sends the peer the reason why the subflow ends, and closes.
	Refuse(code wire.Code, text string) error
	// SendState sends a report. It does not wait for a write in progress: the report then leaves
	// with the next write, unless a newer one about the same hop has replaced it.
	SendState(s wire.HopState) error
	// Received returns how many bytes of ciphertext Read has returned. Sent returns how many bytes
	// the carrier has accepted.
	Received() uint64
	Sent() uint64
}

var (
	_ Hop = (*Link)(nil)
	_ Hop = (*HSPath)(nil)
)

// congestionChoice returns the congestion control that a connection's hop has led to.
func congestionChoice(c Conn) (choice congestion.Choice, ok bool) {
	if t, chooses := c.(congestion.Chooser); chooses {
		return t.CongestionChoice()
	}
	return choice, false
}

// localLinkName names a local link by the addresses of both ends, without ports: connections
// between the same addresses use the same link.
func localLinkName(c net.Conn) string {
	host := func(a net.Addr) string {
		if h, _, err := net.SplitHostPort(a.String()); err == nil {
			return h
		}
		return a.String()
	}
	return host(c.LocalAddr()) + "-" + host(c.RemoteAddr())
}
