// SPDX-License-Identifier: Apache-2.0

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
	c, err := p.bond.dialPackets()
	if err != nil {
		return nil, err
	}
	app, _ := intercept.AppOf(ctx)
	return &packetConn{
		PacketConn: c,
		policy:     p.policy,
		appFinder:  p.appFinder,
		bond:       p.bond,
		app:        app,
		verdicts:   map[string]error{},
	}, nil
}

// packetConn is a datagram flow as apps use it. The rules decide for each destination whether and
// how datagrams are carried. The first destination decides the number of copies.
type packetConn struct {
	*endpoint.PacketConn
	policy    *Policy
	appFinder *appFinder
	bond      *bondHolder
	app       intercept.App // of its first datagram

	mu           sync.Mutex
	rules        *activeRules    // the rules behind verdicts
	process      *policy.Process // that has the socket, once looked up
	processKnown bool
	appQueried   bool             // its app was queried
	verdicts     map[string]error // by destination
}

// maxVerdicts bounds the destinations that a flow remembers.
const maxVerdicts = 1024

// decideDest decides whether a datagram to dest is carried. It returns nil or the error for Send.
func (c *packetConn) decideDest(dest string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	rules := c.policy.currentRules()
	if rules != c.rules || len(c.verdicts) >= maxVerdicts {
		c.rules = rules
		clear(c.verdicts)
	}
	err, known := c.verdicts[dest]
	if known {
		return err
	}
	if rules.NeedsProcess() && !c.processKnown {
		c.processKnown, c.process = true, c.policy.findAppProcess(c.app)
	}
	if !c.appQueried {
		c.appQueried = true
		c.appFinder.queueQuery(
			appQuery{conn: c.PacketConn, app: c.app, process: c.process, processKnown: c.processKnown},
		)
	}
	v := c.policy.decideCounted(rules, policy.Connection{Dest: dest, DSCP: c.app.DSCP, Process: c.process})
	switch v.Mode {
	case policy.ModeBlock:
		err = &intercept.PacketRefusal{Dest: dest, Code: wire.CodeForbidden, Text: formatBlocked(dest, v)}
	case policy.ModeDirect:
		err = intercept.ErrAround
	default: // datagrams always use mode latency
		c.SetRedundant(v.Mode == policy.ModeRedundant) // no effect after the first datagram
		err = c.bond.setFlowClass(c.PacketConn, v.Class)
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

// Take receives a datagram without a copy; the caller owns the bytes.
func (c *packetConn) Take() ([]byte, netip.AddrPort, error) {
	r, err := c.PacketConn.Receive()
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	if r.Refused {
		return nil, netip.AddrPort{}, &intercept.PacketRefusal{
			Dest: r.Addr.String(),
			Code: r.Code,
			MTU:  int(r.MTU),
			Text: r.Text,
		}
	}
	return r.Bytes, r.Addr.AddrPort(), nil
}
