package endpoint

import (
	"net"
	"os"
	"sync"
	"time"

	"mpbond/core/bond"
	"mpbond/link/wire"
)

// PacketConn is one datagram flow. Safe for concurrent use. After the flow has
// ended its methods return an error that wraps a wire.Reset.
type PacketConn struct {
	e    *Endpoint
	f    *bond.Flow
	cond *sync.Cond // on Endpoint.mu: something about the flow changed

	owner owner

	closed    bool // by Close
	readLimit deadline
}

func (e *Endpoint) newPacketConn(f *bond.Flow) *PacketConn {
	c := &PacketConn{e: e, f: f, cond: sync.NewCond(&e.mu)}
	f.User = c
	return c
}

// DialPackets opens a datagram flow. It returns at once, also while there is no
// subflow; datagrams do not wait for one for long. A redundant flow sends each
// datagram on two paths, in both directions.
func (e *Endpoint) DialPackets(redundant bool) (*PacketConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	f, err := e.b.OpenFlow(redundant, time.Now())
	if err != nil {
		return nil, err
	}
	return e.newPacketConn(f), nil
}

// SetRedundant lets each datagram be sent on two paths, or on one, if none was
// sent yet.
func (c *PacketConn) SetRedundant(on bool) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.f.SetRedundant(on)
}

// SetGroup puts the flow into a group of the plan, if no datagram was sent yet.
func (c *PacketConn) SetGroup(g wire.GroupID) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.f.SetGroup(g)
}

// Send sends a datagram to an address, or, at the end that accepted the flow,
// as coming from it. It never blocks and does not keep p; a datagram that
// cannot leave soon is dropped.
func (c *PacketConn) Send(p []byte, addr wire.Addr) error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	now := time.Now()
	err := c.f.Send(addr, p, now)
	c.e.after(now)
	return err
}

// Receive waits for a datagram, or for the news that those to an address are
// refused.
func (c *PacketConn) Receive() (bond.Received, error) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	for {
		if c.closed {
			return bond.Received{}, net.ErrClosed
		}
		if c.readLimit.passed() {
			return bond.Received{}, os.ErrDeadlineExceeded
		}
		if r, ok, err := c.f.Receive(); ok || err != nil {
			return r, err
		}
		c.cond.Wait()
	}
}

// Refuse tells the other end that datagrams to an address do not get there; see
// bond.Flow.Refuse.
func (c *PacketConn) Refuse(r wire.FlowRefused) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.f.Refuse(r)
	c.e.after(time.Now())
}

// Close ends the flow at both ends. Datagrams sent before still leave.
func (c *PacketConn) Close() error {
	c.CloseWith(wire.CodeClosed, "closed")
	return nil
}

// CloseWith is Close with a reason that the other end is told.
func (c *PacketConn) CloseWith(code wire.Code, text string) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	if c.readLimit.timer != nil {
		c.readLimit.timer.Stop()
	}
	now := time.Now()
	c.f.End(code, text, now)
	c.f.Discard()
	c.cond.Broadcast()
	c.e.after(now)
}

// SetReadDeadline bounds Receive; a zero time is no bound.
func (c *PacketConn) SetReadDeadline(t time.Time) error {
	c.e.setDeadline(&c.readLimit, t, c.cond, &c.closed)
	return nil
}
