package primary

import (
	"context"
	"fmt"
	"net"

	"mpbond/link/wire"
)

// measuring opens a stream that measures a subflow: see package probe. Rules for
// apps do not concern it, since nothing but the server ever sees its bytes.
func (p *Primary) measuring(ctx context.Context, dest string, path wire.PathID) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock() // so that the bond is not replaced meanwhile
	if err := p.awaitSubflow(ctx); err != nil {
		return nil, err
	}
	c, err := p.cur.e.Dial(dest, wire.Bond, 0)
	if err != nil {
		return nil, err
	}
	c.SetOwner(ownOwner)
	if !c.Bind(path) {
		c.Reset()
		return nil, wire.Reset{Code: wire.CodeClosed, Text: fmt.Sprintf("there is no subflow %d", path)}
	}
	return c, nil
}
