// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"crypto/tls"
	"time"

	"mpbond/base/identity"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// A server whose process hangs, or whose machine has lost its power or network, refuses nothing: it is silent. All
// subflows of the bond stall then, as they do while this device has no link. The handshakes of two servers tell these
// apart: the silent one leaves its own unanswered, another one answers.

const (
	// silenceCheck is how often the bond is checked while it has streams, and idleSilenceCheck while it has none.
	// silenceRecheck is how long a server that has proved to be there, or a device without a link, is left alone.
	silenceCheck, idleSilenceCheck, silenceRecheck = 250 * time.Millisecond, time.Second, 2 * time.Second
	// silentFor is how long all subflows must have stalled.
	silentFor = 250 * time.Millisecond
	// silenceGrace is how much later than another server this one may answer, or as much as that one took.
	// greetLimit bounds both.
	silenceGrace, greetLimit = 500 * time.Millisecond, 5 * time.Second
)

// greetServer returns a function that returns nil once a server has completed a handshake with this device. The kernel
// completes those of TCP even if the program hangs, so it is that of TLS.
func greetServer(cfg Config, key *identity.Key) func(context.Context, identity.Peer) error {
	return func(ctx context.Context, p identity.Peer) error {
		c, err := tcp.Dial(ctx, p.Addresses[0], tcp.Options{Mark: cfg.socketMark()})
		if err != nil {
			return err
		}
		defer c.Abort()
		return tls.Client(c, key.ClientConfig(p.Key, wire.ALPN)).HandshakeContext(ctx)
	}
}

// runSilenceWatch leaves servers that have fallen silent, until ctx ends.
func (g *fleetGuide) runSilenceWatch(ctx context.Context) {
	t := g.clock.NewTicker(silenceCheck)
	defer t.Stop()
	var leftAloneUntil time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		next := silenceCheck
		switch s := g.bond.currentSession(); {
		case !g.isActive() || s.endpoint.Streams() == 0:
			next = idleSilenceCheck
		case time.Now().Before(leftAloneUntil):
		case s.endpoint.StalledFor() >= silentFor:
			if g.leaveSilent(ctx, s); s == g.bond.currentSession() {
				leftAloneUntil = time.Now().Add(silenceRecheck)
			}
		}
		t.Reset(next)
	}
}

// leaveSilent goes to another server if this one is silent. Open streams stay, in case that it comes back. Those that
// it has not connected yet are reset, so that their apps try again.
func (g *fleetGuide) leaveSilent(ctx context.Context, s *session) {
	now, _ := g.server.currentServer()
	next, ok := g.findOtherIfSilent(ctx, now)
	if !ok || s.endpoint.StalledFor() < silentFor || s != g.bond.currentSession() {
		return
	}
	g.log.Warn("the server is silent: new connections use another one", "from", now.Name, "to", next.Name)
	g.mu.Lock()
	g.avoided[now.Key] = time.Now().Add(avoidTime)
	g.mu.Unlock()
	g.server.setServer(next)
	g.bond.drainSession(s, drainTime)
	s.endpoint.ResetUnopened(wire.CodeTimeout, "the server "+now.Name+" is silent")
	g.askSoon()
	g.demand.retryRefused()
}

// findOtherIfSilent returns another server if it completes a handshake, and this one does not, also not a while later.
func (g *fleetGuide) findOtherIfSilent(ctx context.Context, now identity.Peer) (next identity.Peer, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, greetLimit)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- g.greet(ctx, now) }()
	if next, ok = g.choose(ctx, now.Key, ""); !ok {
		return next, false // it may be this device that has no link
	}
	began := time.Now()
	if g.greet(ctx, next) != nil {
		return next, false
	}
	select {
	case err := <-answered:
		return next, err != nil
	case <-time.After(max(silenceGrace, time.Since(began))):
		return next, ctx.Err() == nil
	}
}
