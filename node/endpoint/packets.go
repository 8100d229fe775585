// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"net"
	"os"
	"sync"
	"time"

	"mpbond/core/bond"
	"mpbond/link/wire"
)

// PacketConn is one datagram flow. Safe for concurrent use. After the flow has ended its methods
// return an error that wraps a wire.Reset.
type PacketConn struct {
	endpoint *Endpoint
	flow     *bond.Flow
	cond     *sync.Cond // on Endpoint.mu: the flow changed

	app appHandle

	closed       bool // by Close
	readDeadline deadline
}

func (e *Endpoint) newPacketConn(f *bond.Flow) *PacketConn {
	c := &PacketConn{endpoint: e, flow: f, cond: sync.NewCond(&e.mu)}
	f.User = c
	return c
}

// DialPackets opens a datagram flow. It returns at once, also without a subflow; datagrams do not
// wait long for one. A redundant flow sends each datagram on two subflows, in both directions.
func (e *Endpoint) DialPackets(redundant bool) (*PacketConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	f, err := e.bond.OpenFlow(redundant, time.Now())
	if err != nil {
		return nil, err
	}
	return e.newPacketConn(f), nil
}

// SetRedundant sets whether each datagram is sent on two subflows. It has no effect after the first
// datagram.
func (c *PacketConn) SetRedundant(on bool) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.flow.SetRedundant(on)
}

// SetClass sets the traffic class of the flow. It has no effect after the first datagram.
func (c *PacketConn) SetClass(g wire.GroupID) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.flow.SetGroup(g)
}

// Send sends a datagram to addr or, at the end that accepted the flow, as coming from addr. It
// never blocks and does not keep p. A datagram that cannot leave soon is dropped.
func (c *PacketConn) Send(p []byte, addr wire.Addr) error {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	now := time.Now()
	err := c.flow.Send(addr, p, now)
	c.endpoint.handleBondEvents(now)
	return err
}

// Receive waits for a datagram, or for a notice that datagrams to an address are refused.
func (c *PacketConn) Receive() (bond.ReceivedDatagram, error) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	for {
		if c.closed {
			return bond.ReceivedDatagram{}, net.ErrClosed
		}
		if c.readDeadline.hasPassed() {
			return bond.ReceivedDatagram{}, os.ErrDeadlineExceeded
		}
		if r, ok, err := c.flow.Receive(); ok || err != nil {
			return r, err
		}
		c.cond.Wait()
	}
}

// Refuse tells the other end that datagrams to an address are not delivered; see bond.Flow.Refuse.
func (c *PacketConn) Refuse(r wire.FlowRefused) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.flow.Refuse(r)
	c.endpoint.handleBondEvents(time.Now())
}

// Close ends the flow at both ends. Datagrams sent before still leave.
func (c *PacketConn) Close() error {
	c.CloseWith(wire.CodeClosed, "closed")
	return nil
}

// CloseWith is Close with a reason for the other end.
func (c *PacketConn) CloseWith(code wire.Code, text string) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	if c.readDeadline.timer != nil {
		c.readDeadline.timer.Stop()
	}
	now := time.Now()
	c.flow.End(code, text, now)
	c.flow.Discard()
	c.cond.Broadcast()
	c.endpoint.handleBondEvents(now)
}

// SetReadDeadline bounds Receive; a zero time is no bound.
func (c *PacketConn) SetReadDeadline(t time.Time) error {
	c.endpoint.setConnDeadline(&c.readDeadline, t, c.cond, &c.closed)
	return nil
}
