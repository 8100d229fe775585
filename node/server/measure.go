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

// turn is how long a measurement waits for the one before it to end, and
// farewell what its own end may take.
const (
	turn     = time.Second
	farewell = 5 * time.Second
)

// measure answers a stream that measures a subflow: one at a time in each bond,
// within the bounds of package probe and of the device's rate.
func (s *Server) measure(ctx context.Context, b *session, c *endpoint.Conn, path wire.PathID) {
	t := time.NewTimer(turn)
	defer t.Stop()
	select {
	case b.measures <- true:
		defer func() { <-b.measures }()
	case <-t.C:
		c.ResetWith(wire.CodeLimit, "another measurement of this device is under way")
		return
	}
	_, from := b.e.HopOf(path)
	if from == nil || !c.Bind(path) {
		c.ResetWith(wire.CodeClosed, "there is no such subflow") // not a code for which apps go directly
		return
	}
	c.Opened()
	err := probe.Serve(ctx, b.of.speed.serve(ctx, c), probe.Far{Version: s.Version, Seen: from.String(), Copied: s.Copied(b.key.device),
		Reports: s.reports.of(b.key.device, time.Now()), Hop: func() *api.Hop {
			h, _ := b.e.HopOf(path)
			return status.Hop(h)
		}})
	s.log.Debug("measured", "device", nameOf(s.trust, b), "path", path, "err", err)
	if err != nil {
		splice.Reset(c)
		return
	}
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(farewell))
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{c}) // to close before the device does would be a reset
	_ = c.Close()
}

// serve makes the bytes of a stream count that the server itself ends: what it
// reads has come up, what it writes goes down.
func (v *speed) serve(ctx context.Context, c net.Conn) net.Conn {
	if v == nil {
		return c
	}
	return &slowed{c, ctx, &speed{up: v.down, down: v.up}}
}
