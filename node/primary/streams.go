// SPDX-License-Identifier: Apache-2.0

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
	if subflow, ok := probe.SubflowOf(dest); ok {
		c, err := p.bond.dialOnSubflow(ctx, dest, wire.SubflowID(subflow))
		if err != nil {
			return nil, err
		}
		c.SetApp(ownApp)
		return c, nil
	}
	app, known := intercept.AppOf(ctx)
	var how connHandling
	if known {
		var err error
		if how, err = p.policy.decideConn(app, dest); err != nil {
			return nil, err
		}
	} else { // mpbond's own, such as a forwarded DNS query
		how.mode = p.policy.defaultMode(dest)
	}
	c, err := p.bond.dialBondStream(ctx, dest, how.mode, how.class)
	if err != nil {
		return nil, err
	}
	if known {
		if how.mode == wire.ModeBond { // others do not choose subflows by size
			c.SetObserver(func(s endpoint.ObservedStream) endpoint.Observer {
				return newStreamHistory(&p.history, &p.places, dest, s)
			})
		}

		p.apps.addAppStream(app.Addr, c, p.bond.currentSession().endpoint.Streams())
		p.appFinder.queueQuery(appQuery{conn: c, app: app, process: how.process, processKnown: how.processKnown})
	} else {
		c.SetApp(ownApp)
	}
	if t := how.class; t != nil && len(t.Devices)+len(t.Pipes) > 0 {
		return bondOnly{c}, nil
	}
	return c, nil
}

// bondOnly is a stream that rules restrict to some devices. It must not be connected directly when
// the server cannot reach its destination.
type bondOnly struct{ *endpoint.Conn }

// OnlyBond implements intercept.BondOnly.
func (bondOnly) OnlyBond() {}
