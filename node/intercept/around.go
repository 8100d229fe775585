package intercept

import (
	"context"
	"errors"
	"net"

	"mpbond/link/splice"
	"mpbond/link/wire"
)

// ErrAround is what a Dialer, or a PacketConn's Send, answers where something is
// to go around the bond: the Edge then connects without it, by Config.Around.
// What is not to be carried at all a Dialer answers with a wire.Reset, and Send
// with a *PacketRefusal; nothing else is tried then.
var ErrAround = errors.New("it is to go around the bond")

// BondOnly is what a stream implements that must not be connected without the
// bond, whatever the far end says.
type BondOnly interface{ OnlyBond() }

// openStream opens the stream for dest, or goes around the bond where the Dialer says
// so. Its context bounds the call.
func (e *Edge) openStream(ctx context.Context, dest string) (net.Conn, error) {
	c, err := e.cfg.Dialer.DialStream(ctx, dest)
	if errors.Is(err, ErrAround) {
		return e.dialAround(ctx, "tcp", dest)
	}
	return c, err
}

func (e *Edge) dialAround(ctx context.Context, network, dest string) (net.Conn, error) {
	if e.cfg.Around == nil {
		return nil, wire.Reset{Code: wire.CodeForbidden, Text: "there is no way around the bond here"}
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c, err := e.cfg.Around(ctx, network, dest)
	if err == nil {
		splice.ResetOnExit(c)
	}
	return c, err
}
