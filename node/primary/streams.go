package primary

import (
	"context"
	"fmt"
	"net"
	"time"

	"mpbond/link/wire"
	"mpbond/node/endpoint"
	"mpbond/node/intercept"
	"mpbond/node/probe"
)

// DialStream opens a stream of the bond; see intercept.Dialer.
func (p *Primary) DialStream(ctx context.Context, dest string) (net.Conn, error) {
	if path, ok := probe.Path(dest); ok {
		return p.measuring(ctx, dest, wire.PathID(path))
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
	p.mu.Lock()
	defer p.mu.Unlock() // so that the bond is not replaced meanwhile
	if err := p.awaitSubflow(ctx); err != nil {
		return nil, err
	}
	defer p.demand.want() // a second subflow
	group, err := p.classOf(how.treat)
	if err != nil {
		return nil, err
	}
	c, err := p.cur.e.Dial(dest, how.mode, group)
	if err != nil {
		return nil, err
	}
	if known {
		p.apps.add(app.Addr, c, p.cur.e.Streams())
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

// leastPatience is how long a new stream waits for a way to the server, if there has
// been none for longer than streams wait: time for two attempts.
const leastPatience = 10 * time.Second

// awaitSubflow waits until the bond has a subflow. It is called with mu held,
// and holds it when it returns. A stream that is opened without one could turn
// out to be part of a bond that the server has lost meanwhile, and be reset.
func (p *Primary) awaitSubflow(ctx context.Context) error {
	gone := p.cur.e.WithoutSubflow()
	if gone == 0 {
		return nil
	}
	limit := time.Duration(p.cfg.GiveUp)
	limit = max(limit-gone, min(limit, leastPatience))
	giveUp := time.NewTimer(limit)
	defer giveUp.Stop()
	defer p.demand.begin()()
	p.demand.want()
	for {
		joined := p.demand.nextJoined()
		if p.cur.e.WithoutSubflow() == 0 {
			return nil
		}
		p.mu.Unlock()
		var err error
		select {
		case <-joined:
		case <-ctx.Done():
			err = ctx.Err()
		case <-p.closing:
			err = wire.Reset{Code: wire.CodeClosed, Text: "mpbond is shutting down"}
		case <-giveUp.C:
			// Not CodeUnreachable, which lets apps go directly.
			err = wire.Reset{Code: wire.CodeTimeout, Text: fmt.Sprintf("no way to the server for %v", limit.Round(100*time.Millisecond))}
		}
		p.mu.Lock()
		if err != nil {
			return err
		}
	}
}
