package primary

import (
	"context"
	"net/netip"
	"sync"

	"mpbond/control/policy"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
	"mpbond/node/intercept"
)

// DialPackets opens a datagram flow of the bond; see intercept.PacketDialer.
func (p *Primary) DialPackets(ctx context.Context) (intercept.PacketConn, error) {
	c, err := p.sessions.dialPackets()
	if err != nil {
		return nil, err
	}
	app, _ := intercept.AppOf(ctx)
	return &packetConn{PacketConn: c, policy: p.policy, appFinder: p.appFinder, sessions: p.sessions, app: app, verdicts: map[string]error{}}, nil
}

// packetConn is a flow as apps use it. Whether and how datagrams are carried
// depends on their destination; over how many paths, on the first one's.
type packetConn struct {
	*endpoint.PacketConn
	policy    *Policy
	appFinder *appFinder
	sessions  *sessions
	app       intercept.App // of its first datagram

	mu           sync.Mutex
	rules        *activeRules    // that verdicts are by
	process      *policy.Process // that has the socket, once it was looked for
	processKnown bool
	appQueried   bool             // whose it is
	verdicts     map[string]error // by destination
}

// maxVerdicts bounds what a flow remembers of its destinations.
const maxVerdicts = 1024

// decideDest is whether a datagram to dest is carried: nil, or what Send returns.
func (c *packetConn) decideDest(dest string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	rules := c.policy.active()
	if rules != c.rules || len(c.verdicts) >= maxVerdicts {
		c.rules = rules
		clear(c.verdicts)
	}
	err, known := c.verdicts[dest]
	if known {
		return err
	}
	if rules.NeedsProcess() && !c.processKnown {
		c.processKnown, c.process = true, c.policy.findProcess(c.app)
	}
	if !c.appQueried {
		c.appQueried = true
		c.appFinder.queueQuery(appQuery{conn: c.PacketConn, app: c.app, process: c.process, processKnown: c.processKnown})
	}
	v := c.policy.decideCounted(rules, policy.Flow{Dest: dest, DSCP: c.app.DSCP, Process: c.process})
	switch v.Mode {
	case policy.ModeBlock:
		err = &intercept.PacketRefusal{Dest: dest, Code: wire.CodeForbidden, Text: formatBlocked(dest, v)}
	case policy.ModeDirect:
		err = intercept.ErrAround
	default: // every flow has what mode Latency gives a stream
		c.SetRedundant(v.Mode == policy.ModeRedundant) // nothing, after the first datagram
		err = c.sessions.setFlowClass(c.PacketConn, v.Class)
	}
	c.verdicts[dest] = err
	return err
}

// Send implements intercept.PacketConn.
func (c *packetConn) Send(b []byte, dest string) error {
	a, err := wire.AddrOf(dest)
	if err != nil {
		return err
	}
	if err := c.decideDest(dest); err != nil {
		return err
	}
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
