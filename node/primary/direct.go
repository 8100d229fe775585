// SPDX-License-Identifier: Apache-2.0

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
	// udpRetryInterval is how often a busy subflow over TCP retries UDP, if UDP is configured.
	// udpFirstRetry is the delay of the first retry, which idle subflows make too: UDP may have
	// been only a little late, and an idle subflow would stay on TCP.
	udpRetryInterval, udpFirstRetry = 15 * time.Second, 3 * time.Second
	// udpRetryTimeout bounds how long opening a subflow over UDP may take then.
	udpRetryTimeout = 3 * time.Second
)

// superviseUplink keeps the direct subflows over an interface open until ctx ends and all have
// ended. An empty name leaves the interface to the routes.
func (sup *subflowSupervisor) superviseUplink(ctx context.Context, iface string) {
	var all sync.WaitGroup
	for range max(sup.cfg.Subflows, 1) {
		all.Go(func() { sup.superviseDirect(ctx, iface) })
	}
	all.Wait()
}

// superviseDirect keeps one direct subflow over an interface open until ctx ends. An empty name
// leaves the interface to the routes.
func (sup *subflowSupervisor) superviseDirect(ctx context.Context, iface string) {
	device := sup.name
	if iface != "" {
		device += "/" + iface
	}
	var b backoff.Backoff
	for attempt := 0; ctx.Err() == nil; attempt++ {
		if iface != "" {
			sup.states.awaitAllowed(
				ctx,
				deviceRef{iface: iface},
				func(why error) { sup.troubles.setDeviceTrouble(device, why) },
				nil,
				nil,
			)
		}
		before, _ := sup.server.currentServer()
		l, err := sup.openDirect(ctx, iface, device, attempt)
		if err != nil && sup.fleet.switchServer(ctx, failedAttempt{before.Key, err, iface, false}) {
			attempt = -1
			continue
		}
		if err == nil {
			attempt = -1
			sup.fleet.serverWorked(l.peer)
			sup.troubles.setDeviceTrouble(device, nil)
			sup.troubles.forgetRefusalBy(l.peer)
			b.Reset()
			sup.countSubflow(iface, 1)
			err = sup.runDirectSubflow(ctx, &l, iface, device)
			sup.dialer.ReportEnded(l.conn, l.since, onlySilenceError(err))
			sup.countSubflow(iface, -1)
		}
		if ctx.Err() != nil {
			sup.troubles.setDeviceTrouble(device, nil)
			return
		}
		if errors.Is(err, errRestarted) || err == errTierChanged {
			continue
		}
		sup.troubles.setDeviceTrouble(device, err)
		sup.demand.waitBeforeRetry(ctx, err, &b, nil)
	}
}

// openDirect opens a subflow over an interface to one of the server's addresses, chosen by attempt.
// An empty name leaves the interface to the routes.
func (sup *subflowSupervisor) openDirect(ctx context.Context, iface, device string, attempt int) (liveSubflow, error) {
	addr, err := sup.server.addressFor(attempt)
	if err != nil {
		return liveSubflow{}, err
	}
	dctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := sup.checkCapBeforeDial(dctx, iface, addr); err != nil {
		return liveSubflow{}, err
	}
	c, err := sup.dialer.Dial(dctx, addr, sup.dialOptions(iface))
	if err != nil {
		return liveSubflow{}, err
	}
	return sup.joinDirect(ctx, c, iface, device, addr)
}

// dialOptions returns the socket options of a direct subflow.
func (sup *subflowSupervisor) dialOptions(iface string) tcp.Options {
	return tcp.Options{
		Congestion:      sup.cfg.Congestion,
		Interface:       iface,
		UserTimeout:     userTimeout,
		RetransmitOften: true,
		Mark:            sup.cfg.socketMark(),
	}
}

// joinDirect joins a subflow over a connection to the server at addr.
func (sup *subflowSupervisor) joinDirect(
	ctx context.Context,
	c dial.Conn,
	iface, device, addr string,
) (liveSubflow, error) {
	server, _ := sup.server.currentServer()
	c.SetPeerName(server.Key.ID().String())
	// its interface may differ from the predicted route
	if err := sup.checkInterfaceCap(interfaceOf(iface, c.LocalAddr())); err != nil {
		c.Close()
		return liveSubflow{}, err
	}
	l, err := sup.joinSubflow(ctx, c, nil, deviceRef{iface: interfaceOf("", c.LocalAddr())}, device)
	if fault.Is(err, fault.Timeout) { // the first packet was answered, later ones were not
		sup.dialer.ReportSilent(c, err)
	}
	l.server = addr
	return l, err
}

// runDirectSubflow waits until a direct subflow or ctx ends, and returns why the subflow ended. A
// subflow that fell back to TCP is replaced as soon as UDP works.
func (sup *subflowSupervisor) runDirectSubflow(ctx context.Context, l *liveSubflow, iface, device string) error {
	retryTimer := time.NewTimer(udpFirstRetry)
	defer retryTimer.Stop()
	if len(sup.dialer.UDPLinks) == 0 {
		retryTimer.Stop()
	}
	var a udpAttempt // no attempt unless result is set
	moved, first := uint64(0), true
	withdraw := func(l liveSubflow, err error) {
		l.session.endpoint.Detach(l.id)
		sup.bond.endSubflow(l.session, l.id, err)
	}
	for {
		select {
		case err := <-l.ended:
			next := a.stopAttempt()
			if next == nil {
				return err
			}
			*l = *next
		case <-ctx.Done():
			next := a.stopAttempt()
			if context.Cause(ctx) != errUplinkUnused { // the session then says goodbye for all subflows
				return nil
			}
			withdraw(*l, nil)
			if next != nil {
				withdraw(*next, nil)
			}
			return nil
		case <-retryTimer.C:
			retryTimer.Reset(udpRetryInterval)
			f := l.session.endpoint.DirectSubflowBytes()[l.id]
			idle := f.Rx+f.Tx == moved && !first // do not wake a radio to find out
			moved, first = f.Rx+f.Tx, false
			if !idle && a.result == nil && l.conn.LocalAddr().Network() != "udp" {
				a = sup.tryUDPReplacement(ctx, *l, iface, device)
			}
		case next := <-a.result:
			if a = (udpAttempt{}); next == nil {
				continue
			}
			sup.log.Info("replacing subflow over TCP: UDP works", "subflow", l.id, "by", next.id)
			withdraw(*l, nil)
			*l = *next
		}
	}
}

// udpAttempt is an attempt to replace a subflow over TCP with one over UDP. result delivers the new
// subflow, or nil, once. A nil result means that no attempt is under way.
type udpAttempt struct {
	result chan *liveSubflow
	cancel func()
}

// stopAttempt cancels the attempt and returns the subflow if one was made before that.
func (a *udpAttempt) stopAttempt() *liveSubflow {
	if a.result == nil {
		return nil
	}
	a.cancel()
	next := <-a.result
	*a = udpAttempt{}
	return next
}

// tryUDPReplacement starts an attempt to replace a subflow over TCP with one over UDP.
func (sup *subflowSupervisor) tryUDPReplacement(ctx context.Context, l liveSubflow, iface, device string) udpAttempt {
	ctx, cancel := context.WithTimeout(ctx, udpRetryTimeout)
	a := udpAttempt{make(chan *liveSubflow, 1), cancel}
	go func() {
		defer cancel()
		var next *liveSubflow
		if c := sup.dialer.RedialUDP(ctx, l.server, sup.dialOptions(iface)); c != nil {
			if l, err := sup.joinDirect(ctx, c, iface, device, l.server); err == nil {
				next = &l
			} else {
				sup.log.Debug("no subflow over UDP yet", "by", device, "err", err)
			}
		}
		a.result <- next
	}()
	return a
}
