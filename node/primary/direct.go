package primary

import (
	"context"
	"errors"
	"sync"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/link/tcp"
	"mpbond/node/dial"
)

const (
	// betterEvery is how often a subflow over TCP that carries something looks whether
	// UDP, which is asked for, may be tried again; betterFirst is when it does so first,
	// whether it carries something or not: UDP may have been late by a hair, and it would
	// stay over TCP for as long as it is idle.
	betterEvery, betterFirst = 15 * time.Second, 3 * time.Second
	// betterWithin is how long a subflow over UDP may take to be made then.
	betterWithin = 3 * time.Second
)

// keepUplink keeps the direct subflows over an interface, "" for any, until ctx ends and
// nothing is left of them.
func (k *subflowKeeper) keepUplink(ctx context.Context, iface string) {
	var all sync.WaitGroup
	for range max(k.cfg.Subflows, 1) {
		all.Go(func() { k.keepDirect(ctx, iface) })
	}
	all.Wait()
}

// keepDirect keeps a direct subflow over an interface, "" for any.
func (k *subflowKeeper) keepDirect(ctx context.Context, iface string) {
	device := k.name
	if iface != "" {
		device += "/" + iface
	}
	var b backoff.Backoff
	for attempt := 0; ctx.Err() == nil; attempt++ {
		if iface != "" {
			k.standings.awaitAllowed(ctx, carrier{link: iface}, func(why error) { k.troubles.set(device, why) }, nil, nil)
		}
		l, err := k.openDirect(ctx, iface, device, attempt)
		if err == nil {
			attempt = -1
			k.troubles.set(device, nil)
			k.troubles.forgetRefusalBy(l.peer)
			b.Reset()
			k.countSubflow(iface, 1)
			err = k.holdDirect(ctx, &l, iface, device)
			k.paths.Ended(l.conn, l.since, silenceOf(err))
			k.countSubflow(iface, -1)
		}
		if ctx.Err() != nil {
			k.troubles.set(device, nil)
			return
		}
		if errors.Is(err, errRestarted) || err == errStanding {
			continue
		}
		k.troubles.set(device, err)
		k.demand.backOff(ctx, err, &b, nil)
	}
}

// openDirect makes a subflow over an interface, "" for any, to the server's address of an
// attempt.
func (k *subflowKeeper) openDirect(ctx context.Context, iface, device string, attempt int) (openSubflow, error) {
	addr, err := k.server.address(attempt)
	if err != nil {
		return openSubflow{}, err
	}
	dctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := k.checkCap(dctx, iface, addr); err != nil {
		return openSubflow{}, err
	}
	c, err := k.paths.Dial(dctx, addr, k.dialOptions(iface))
	if err != nil {
		return openSubflow{}, err
	}
	return k.joinDirect(ctx, c, iface, device, addr)
}

// dialOptions are those of a direct subflow's connection.
func (k *subflowKeeper) dialOptions(iface string) tcp.Options {
	return tcp.Options{Congestion: k.cfg.Congestion, Interface: iface, UserTimeout: userTimeout, Mark: k.cfg.mark()}
}

// joinDirect makes a subflow of a connection to the server at addr.
func (k *subflowKeeper) joinDirect(ctx context.Context, c dial.Conn, iface, device, addr string) (openSubflow, error) {
	server, _ := k.server.get()
	c.For(server.Key.ID().String())
	if err := k.checkLinkCap(linkOf(iface, c.LocalAddr())); err != nil { // it need not be the one that the routes told
		c.Close()
		return openSubflow{}, err
	}
	l, err := k.join(ctx, c, nil, carrier{link: linkOf("", c.LocalAddr())}, device)
	if fault.Is(err, fault.Timeout) { // the answer to the first packet came, and then nothing
		k.paths.Lost(c, err)
	}
	l.server = addr
	return l, err
}

// holdDirect waits for the end of a direct subflow, or of ctx, and returns why it has ended.
// One that goes over TCP since UDP did not get through is replaced when it does.
func (k *subflowKeeper) holdDirect(ctx context.Context, l *openSubflow, iface, device string) error {
	look := time.NewTimer(betterFirst)
	defer look.Stop()
	var a attempt // under way, or not
	moved, first := uint64(0), true
	leave := func(l openSubflow, err error) {
		l.s.e.Detach(l.id)
		k.sessions.endSubflow(l.s, l.id, err)
	}
	for {
		select {
		case err := <-l.down:
			next := a.end()
			if next == nil {
				return err
			}
			*l = *next
		case <-ctx.Done():
			next := a.end()
			if context.Cause(ctx) != errNotWanted { // all is about to end, which says goodbye first
				return nil
			}
			leave(*l, nil)
			if next != nil {
				leave(*next, nil)
			}
			return nil
		case <-look.C:
			look.Reset(betterEvery)
			f := l.s.e.DirectFlows()[l.id]
			idle := f.Rx+f.Tx == moved && !first // no radio is woken to find out
			moved, first = f.Rx+f.Tx, false
			if !idle && a.made == nil && l.conn.LocalAddr().Network() != "udp" {
				a = k.tryUDP(ctx, *l, iface, device)
			}
		case next := <-a.made:
			if a = (attempt{}); next == nil {
				continue
			}
			k.log.Info("subflow over TCP is replaced, since UDP gets through", "path", l.id, "by", next.id)
			leave(*l, nil)
			*l = *next
		}
	}
}

// attempt is one to make a subflow over UDP in the place of another one. Made gives it,
// or nil, once; a nil channel is no attempt.
type attempt struct {
	made   chan *openSubflow
	cancel func()
}

// end ends an attempt, and returns what it has made, if it was quicker than that.
func (a *attempt) end() *openSubflow {
	if a.made == nil {
		return nil
	}
	a.cancel()
	next := <-a.made
	*a = attempt{}
	return next
}

// tryUDP begins to make a subflow over UDP in the place of one over TCP.
func (k *subflowKeeper) tryUDP(ctx context.Context, l openSubflow, iface, device string) attempt {
	ctx, cancel := context.WithTimeout(ctx, betterWithin)
	a := attempt{make(chan *openSubflow, 1), cancel}
	go func() {
		defer cancel()
		var next *openSubflow
		if c := k.paths.Again(ctx, l.server, k.dialOptions(iface)); c != nil {
			if l, err := k.joinDirect(ctx, c, iface, device, l.server); err == nil {
				next = &l
			} else {
				k.log.Debug("no subflow over UDP yet", "by", device, "err", err)
			}
		}
		a.made <- next
	}()
	return a
}
