package primary

import (
	"context"
	"errors"
	"time"

	"mpbond/fault"
	"mpbond/paths"
	"mpbond/tcp"
)

// betterEvery is how often a subflow over TCP that carries something looks whether UDP,
// which is asked for, may be tried again.
const betterEvery = 15 * time.Second

// betterWithin is how long that may take: meanwhile nobody sees the end of the other.
const betterWithin = time.Second

// keepDirect keeps a direct subflow over an interface, "" for any.
func (p *Primary) keepDirect(ctx context.Context, iface string) {
	device := p.deviceName()
	if iface != "" {
		device += "/" + iface
	}
	var b backoff
	var silent silences
	for attempt := 0; ctx.Err() == nil; attempt++ {
		if iface != "" {
			p.awaitAwake(ctx, p.link(iface), device, nil, nil)
		}
		l, err := p.direct(ctx, iface, device, attempt)
		if err == nil {
			attempt = -1
			p.setError(device, nil)
			b.reset()
			p.uplinkChanged(iface, 1)
			err = p.hold(ctx, &l, iface, device)
			silent.ended(p, l.conn, l.since, err)
			p.uplinkChanged(iface, -1)
		}
		if ctx.Err() != nil {
			p.setError(device, nil)
			return
		}
		if errors.Is(err, errRestarted) || err == errStanding {
			continue
		}
		p.setError(device, err)
		p.restAfter(ctx, err, &b)
	}
}

// address is the server's for an attempt: each in turn, the best first.
func (p *Primary) address(attempt int) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noPeer != nil {
		return "", p.noPeer
	}
	return p.server.Addresses[attempt%len(p.server.Addresses)], nil
}

func (p *Primary) direct(ctx context.Context, iface, device string, attempt int) (lane, error) {
	addr, err := p.address(attempt)
	if err != nil {
		return lane{}, err
	}
	dctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := p.spent(dctx, iface, addr); err != nil {
		return lane{}, err
	}
	c, err := p.paths.Dial(dctx, addr, p.options(iface))
	if err != nil {
		return lane{}, err
	}
	return p.joinDirect(ctx, c, iface, device, addr)
}

// options are those of a direct subflow's connection.
func (p *Primary) options(iface string) tcp.Options {
	return tcp.Options{Congestion: p.cfg.Congestion, Interface: iface, UserTimeout: userTimeout, Mark: p.cfg.mark()}
}

// joinDirect makes a subflow of a connection to the server at addr.
func (p *Primary) joinDirect(ctx context.Context, c paths.Conn, iface, device, addr string) (lane, error) {
	p.mu.Lock()
	c.For(p.server.Key.ID().String())
	p.mu.Unlock()
	if err := p.spentOn(linkOf(iface, c.LocalAddr())); err != nil { // it need not be the one that the routes told
		c.Close()
		return lane{}, err
	}
	l, err := p.join(ctx, c, nil, nil, device)
	if fault.Is(err, fault.Timeout) { // the answer to the first packet came, and then nothing
		p.paths.Lost(c, err)
	}
	l.server = addr
	return l, err
}

// hold waits for the end of a direct subflow, or of ctx, and returns why it has ended.
// One that goes over TCP since UDP did not get through is replaced when it does.
func (p *Primary) hold(ctx context.Context, l *lane, iface, device string) error {
	t := time.NewTicker(betterEvery)
	defer t.Stop()
	moved := l.s.e.DirectFlows()[l.id]
	for {
		select {
		case err := <-l.down:
			return err
		case <-ctx.Done():
			if context.Cause(ctx) == errNotWanted { // else all is about to end, which says goodbye first
				l.s.e.Detach(l.id)
				p.ended(l.s, l.id, nil)
			}
			return nil
		case <-t.C:
			now := l.s.e.DirectFlows()[l.id]
			if now.Rx+now.Tx == moved.Rx+moved.Tx || l.conn.LocalAddr().Network() == "udp" {
				continue // no radio is woken to find out
			}
			moved = now
			next, ok := p.better(ctx, *l, iface, device)
			if !ok {
				continue
			}
			p.log.Info("subflow over TCP is replaced, since UDP gets through", "path", l.id, "by", next.id)
			l.s.e.Detach(l.id)
			p.ended(l.s, l.id, nil)
			*l = next
			moved = next.s.e.DirectFlows()[next.id]
		}
	}
}

// better is a subflow over UDP in the place of one over TCP, if there can be one now.
func (p *Primary) better(ctx context.Context, l lane, iface, device string) (next lane, ok bool) {
	dctx, cancel := context.WithTimeout(ctx, betterWithin)
	c := p.paths.Again(dctx, l.server, p.options(iface))
	cancel()
	if c == nil {
		return next, false
	}
	next, err := p.joinDirect(ctx, c, iface, device, l.server)
	if err != nil {
		p.log.Debug("no subflow over UDP yet", "by", device, "err", err)
	}
	return next, err == nil
}
