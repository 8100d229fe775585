package primary

import (
	"context"
	"slices"

	"mpbond/device"
	"mpbond/policy"
	"mpbond/subflow"
	"mpbond/tcp"
	"mpbond/unit"
)

// Counted is a transport whose bytes are counted.
type Counted interface {
	subflow.Transport
	device.Counted
	For(peer string) // see tcp.Conn
	SetNotSentLowat(unit.Bytes) error
}

// dial connects to the server, over TCP or UDP.
func (p *Primary) dial(ctx context.Context, iface, addr string) (Counted, error) {
	opt := tcp.Options{Congestion: p.cfg.Congestion, Interface: iface, UserTimeout: userTimeout, Mark: p.cfg.mark()}
	if iface == "" || !slices.Contains(p.cfg.UDP, iface) {
		opt.Ledger = p.cfg.Usage.Ledger(policy.ForDirect)
		c, err := tcp.Dial(ctx, addr, opt)
		if err != nil {
			return nil, err // not a nil *tcp.Conn in an interface
		}
		return c, nil
	}
	c, err := p.cfg.DialUDP(ctx, addr, opt)
	if err != nil {
		return nil, err
	}
	return &watched{c, p.cfg.Usage.Watch(c, policy.ForDirect, iface, c.LocalAddr())}, nil
}

// watched tells who counts a transport when it ends.
type watched struct {
	Counted
	end func()
}

func (w *watched) Close() error {
	w.end()
	return w.Counted.Close()
}
