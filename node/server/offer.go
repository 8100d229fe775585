// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io"
	"time"

	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// serveOffer answers a stream by which a primary asks for the servers of the fleet.
func (s *Server) serveOffer(c *endpoint.Conn) {
	_, offer, err := s.Fleet.Offer()
	if err != nil {
		c.ResetWith(wire.CodeInternal, err.Error())
		return
	}
	c.Opened()
	_, _ = c.Write(offer)
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(closeTimeout))
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{c}) // closing before the device does would be a reset
	_ = c.Close()
}
