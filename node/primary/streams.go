package primary

import (
	"context"
	"net"

	"mpbond/link/wire"
	"mpbond/node/endpoint"
	"mpbond/node/intercept"
	"mpbond/node/probe"
)

// DialStream opens a stream of the bond; see intercept.Dialer.
func (p *Primary) DialStream(ctx context.Context, dest string) (net.Conn, error) {
	if path, ok := probe.Path(dest); ok {
		c, err := p.sessions.dialPath(ctx, dest, wire.PathID(path))
		if err != nil {
			return nil, err
		}
		c.SetOwner(ownOwner)
		return c, nil
	}
	app, known := intercept.AppOf(ctx)
	var how treatment
	if known {
		var err error
		if how, err = p.policy.judge(app, dest); err != nil {
			return nil, err
		}
	} else { // it is mpbond's own: a DNS query that it passes on
		how.mode = p.policy.usualMode(dest)
	}
	c, err := p.sessions.dial(ctx, dest, how.mode, how.treat)
	if err != nil {
		return nil, err
	}
	if known {
		p.apps.addStream(app.Addr, c, p.sessions.current().e.Streams())
		p.owners.ask(question{of: c, app: app, process: how.process, looked: how.looked})
	} else {
		c.SetOwner(ownOwner)
	}
	if t := how.treat; t != nil && len(t.Devices)+len(t.Pipes) > 0 {
		return bondOnly{c}, nil
	}
	return c, nil
}

// bondOnly is a stream that rules keep to some devices, so that it must not be
// connected without the bond where the server cannot reach its destination.
type bondOnly struct{ *endpoint.Conn }

// OnlyBond implements intercept.BondOnly.
func (bondOnly) OnlyBond() {}
