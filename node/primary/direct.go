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
	// udpRetryInterval is how often a subflow over TCP that carries something looks whether
	// UDP, which is asked for, may be tried again; udpFirstRetry is when it does so first,
	// whether it carries something or not: UDP may have been late by a hair, and it would
	// stay over TCP for as long as it is idle.
	udpRetryInterval, udpFirstRetry = 15 * time.Second, 3 * time.Second
	// udpRetryTimeout is how long a subflow over UDP may take to be made then.
	udpRetryTimeout = 3 * time.Second
)

// superviseUplink keeps the direct subflows over an interface, "" for any, until ctx ends and
// nothing is left of them.
func (k *subflowSupervisor) superviseUplink(ctx context.Context, iface string) {
	var all sync.WaitGroup
	for range max(k.cfg.Subflows, 1) {
		all.Go(func() { k.superviseDirect(ctx, iface) })
	}
	all.Wait()
}

// superviseDirect keeps a direct subflow over an interface, "" for any.
func (k *subflowSupervisor) superviseDirect(ctx context.Context, iface string) {
	device := k.name
	if iface != "" {
		device += "/" + iface
	}
	var b backoff.Backoff
	for attempt := 0; ctx.Err() == nil; attempt++ {
		if iface != "" {
			k.states.awaitAllowed(ctx, deviceRef{link: iface}, func(why error) { k.troubles.setTrouble(device, why) }, nil, nil)
		}
		l, err := k.openDirect(ctx, iface, device, attempt)
		if err == nil {
			attempt = -1
			k.troubles.setTrouble(device, nil)
			k.troubles.forgetRefusalBy(l.peer)
			b.Reset()
			k.countSubflow(iface, 1)
			err = k.runDirect(ctx, &l, iface, device)
			k.dialer.ReportEnded(l.conn, l.since, silenceOf(err))
			k.countSubflow(iface, -1)
		}
		if ctx.Err() != nil {
			k.troubles.setTrouble(device, nil)
			return
		}
		if errors.Is(err, errRestarted) || err == errTierChanged {
			continue
		}
		k.troubles.setTrouble(device, err)
		k.demand.backOff(ctx, err, &b, nil)
	}
}

// openDirect makes a subflow over an interface, "" for any, to the server's address of an
// attempt.
func (k *subflowSupervisor) openDirect(ctx context.Context, iface, device string, attempt int) (liveSubflow, error) {
	addr, err := k.server.addressFor(attempt)
	if err != nil {
		return liveSubflow{}, err
	}
	dctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := k.checkCap(dctx, iface, addr); err != nil {
		return liveSubflow{}, err
	}
	c, err := k.dialer.Dial(dctx, addr, k.dialOptions(iface))
	if err != nil {
		return liveSubflow{}, err
	}
	return k.joinDirect(ctx, c, iface, device, addr)
}

// dialOptions are those of a direct subflow's connection.
func (k *subflowSupervisor) dialOptions(iface string) tcp.Options {
	return tcp.Options{Congestion: k.cfg.Congestion, Interface: iface, UserTimeout: userTimeout, Mark: k.cfg.socketMark()}
}

// joinDirect makes a subflow of a connection to the server at addr.
func (k *subflowSupervisor) joinDirect(ctx context.Context, c dial.Conn, iface, device, addr string) (liveSubflow, error) {
	server, _ := k.server.current()
	c.For(server.Key.ID().String())
	if err := k.checkLinkCap(interfaceOf(iface, c.LocalAddr())); err != nil { // it need not be the one that the routes told
		c.Close()
		return liveSubflow{}, err
	}
	l, err := k.joinSubflow(ctx, c, nil, deviceRef{link: interfaceOf("", c.LocalAddr())}, device)
	if fault.Is(err, fault.Timeout) { // the answer to the first packet came, and then nothing
		k.dialer.ReportSilent(c, err)
	}
	l.server = addr
	return l, err
}

// runDirect waits for the end of a direct subflow, or of ctx, and returns why it has ended.
// One that goes over TCP since UDP did not get through is replaced when it does.
func (k *subflowSupervisor) runDirect(ctx context.Context, l *liveSubflow, iface, device string) error {
	retryTimer := time.NewTimer(udpFirstRetry)
	defer retryTimer.Stop()
	var a udpAttempt // under way, or not
	moved, first := uint64(0), true
	withdraw := func(l liveSubflow, err error) {
		l.session.endpoint.Detach(l.id)
		k.sessions.endSubflow(l.session, l.id, err)
	}
	for {
		select {
		case err := <-l.ended:
			next := a.stop()
			if next == nil {
				return err
			}
			*l = *next
		case <-ctx.Done():
			next := a.stop()
			if context.Cause(ctx) != errUplinkUnused { // all is about to end, which says goodbye first
				return nil
			}
			withdraw(*l, nil)
			if next != nil {
				withdraw(*next, nil)
			}
			return nil
		case <-retryTimer.C:
			retryTimer.Reset(udpRetryInterval)
			f := l.session.endpoint.DirectFlows()[l.id]
			idle := f.Rx+f.Tx == moved && !first // no radio is woken to find out
			moved, first = f.Rx+f.Tx, false
			if !idle && a.result == nil && l.conn.LocalAddr().Network() != "udp" {
				a = k.tryUDP(ctx, *l, iface, device)
			}
		case next := <-a.result:
			if a = (udpAttempt{}); next == nil {
				continue
			}
			k.log.Info("subflow over TCP is replaced, since UDP gets through", "path", l.id, "by", next.id)
			withdraw(*l, nil)
			*l = *next
		}
	}
}

// udpAttempt is one to make a subflow over UDP in the place of another one. Made gives it,
// or nil, once; a nil channel is no attempt.
type udpAttempt struct {
	result chan *liveSubflow
	cancel func()
}

// stop ends an attempt, and returns what it has made, if it was quicker than that.
func (a *udpAttempt) stop() *liveSubflow {
	if a.result == nil {
		return nil
	}
	a.cancel()
	next := <-a.result
	*a = udpAttempt{}
	return next
}

// tryUDP begins to make a subflow over UDP in the place of one over TCP.
func (k *subflowSupervisor) tryUDP(ctx context.Context, l liveSubflow, iface, device string) udpAttempt {
	ctx, cancel := context.WithTimeout(ctx, udpRetryTimeout)
	a := udpAttempt{make(chan *liveSubflow, 1), cancel}
	go func() {
		defer cancel()
		var next *liveSubflow
		if c := k.dialer.RedialUDP(ctx, l.server, k.dialOptions(iface)); c != nil {
			if l, err := k.joinDirect(ctx, c, iface, device, l.server); err == nil {
				next = &l
			} else {
				k.log.Debug("no subflow over UDP yet", "by", device, "err", err)
			}
		}
		a.result <- next
	}()
	return a
}
