// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"errors"
	"net"

	"mpbond/link/splice"
	"mpbond/link/wire"
)

// ErrAround is returned by a Dialer, or by PacketConn.Send, for a destination that is to be reached
// without the bond. The Edge then connects by Config.Around. To refuse a destination completely, a
// Dialer returns a wire.Reset, and Send a *PacketRefusal.
var ErrAround = errors.New("the destination bypasses the bond")

// BondOnly is implemented by streams that must never be replaced by a direct connection, whatever
// the far end answers.
type BondOnly interface{ OnlyBond() }

// openStreamToDest opens the stream for dest, or connects around the bond if the Dialer asks for
// it. ctx bounds the call.
func (e *Edge) openStreamToDest(ctx context.Context, dest string) (net.Conn, error) {
	c, err := e.cfg.Dialer.DialStream(ctx, dest)
	if errors.Is(err, ErrAround) {
		return e.dialAround(ctx, "tcp", dest)
	}
	return c, err
}

// dialAround dials a destination around the bond, if this device can.
func (e *Edge) dialAround(ctx context.Context, network, dest string) (net.Conn, error) {
	if e.cfg.Around == nil {
		return nil, wire.Reset{Code: wire.CodeForbidden, Text: "this device cannot connect around the bond"}
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c, err := e.cfg.Around(ctx, network, dest)
	if err == nil {
		splice.ResetOnExit(c)
	}
	return c, err
}
