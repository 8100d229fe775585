// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"io"
	"net"
	"time"

	"mpbond/api"
	"mpbond/link/splice"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
	"mpbond/node/probe"
	"mpbond/node/status"
)

// measureWait is how long a measurement waits for the previous one, and closeTimeout bounds its own
// end.
const (
	measureWait  = time.Second
	closeTimeout = 5 * time.Second
)

// serveMeasurement serves a stream that measures a subflow: one at a time for each bond, within the
// limits of package probe and the device's rate.
func (s *Server) serveMeasurement(ctx context.Context, b *session, c *endpoint.Conn, id wire.SubflowID) {
	t := time.NewTimer(measureWait)
	defer t.Stop()
	select {
	case b.measureSlot <- true:
		defer func() { <-b.measureSlot }()
	case <-t.C:
		c.ResetWith(wire.CodeLimit, "another measurement of this device is under way")
		return
	}
	_, from := b.endpoint.HopOf(id)
	if from == nil || !c.Bind(id) {
		c.ResetWith(wire.CodeClosed, "there is no such subflow") // not a code after which apps connect directly
		return
	}
	c.Opened()
	err := probe.Serve(
		ctx,
		b.account.rate.limitLocalConn(ctx, c),
		probe.ServerSide{Version: s.Version, Seen: from.String(), Copied: s.IsKeyCopied(b.key.device),
			Reports: s.reports.reportsFor(b.key.device, time.Now()), Hop: func() *api.Hop {
				h, _ := b.endpoint.HopOf(id)
				return status.Hop(h)
			}},
	)
	s.log.Debug("measured", "device", currentDeviceName(s.trust, b), "subflow", id, "err", err)
	if err != nil {
		splice.Reset(c)
		return
	}
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(closeTimeout))
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{c}) // closing before the device does would be a reset
	_ = c.Close()
}

// limitLocalConn applies the rate limit to a stream that ends at the server: what it reads is
// upload, what it writes is download.
func (v *deviceRate) limitLocalConn(ctx context.Context, c net.Conn) net.Conn {
	if v == nil {
		return c
	}
	return &limitedConn{c, ctx, &deviceRate{up: v.down, down: v.up}}
}
