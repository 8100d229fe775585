package primary

import (
	"context"
	"net/netip"
	"sync"

	"mpbond/endpoint"
	"mpbond/intercept"
	"mpbond/policy"
	"mpbond/wire"
)

// DialPackets opens a datagram flow of the bond; see intercept.PacketDialer.
func (p *Primary) DialPackets(ctx context.Context) (intercept.PacketConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock() // so that the bond is not replaced meanwhile
	c, err := p.cur.e.DialPackets(false)
	if err != nil {
		return nil, err
	}
	app, _ := intercept.AppOf(ctx)
	return &packetConn{PacketConn: c, modes: p.modes, dscp: app.DSCP}, nil
}

// packetConn is a flow as apps use it. Rules judge it by its first
// datagram.
type packetConn struct {
	*endpoint.PacketConn
	modes  policy.Modes
	dscp   uint8 // of its first datagram
	judged sync.Once
}

// Send implements intercept.PacketConn.
func (c *packetConn) Send(b []byte, dest string) error {
	a, err := wire.AddrOf(dest)
	if err != nil {
		return err
	}
	c.judged.Do(func() {
		// Every flow has what mode Latency gives a stream.
		mode, _ := c.modes.Of(policy.Flow{Dest: dest, DSCP: c.dscp})
		c.SetRedundant(mode == wire.Redundant)
	})
	return c.PacketConn.Send(b, a)
}

// Receive implements intercept.PacketConn.
func (c *packetConn) Receive(b []byte) (int, netip.AddrPort, error) {
	p, from, err := c.Take()
	return copy(b, p), from, err
}

// Take is Receive without a copy: the bytes are the caller's.
func (c *packetConn) Take() ([]byte, netip.AddrPort, error) {
	r, err := c.PacketConn.Receive()
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	if r.Refused {
		return nil, netip.AddrPort{}, &intercept.PacketRefusal{Dest: r.Addr.String(), Code: r.Code, MTU: int(r.MTU), Text: r.Text}
	}
	return r.Bytes, r.Addr.AddrPort(), nil
}
