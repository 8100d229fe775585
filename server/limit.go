package server

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"mpbond/identity"
	"mpbond/unit"
)

// Tuning of the rate limit. Small pieces let streams take turns.
const (
	leastBurst = 64 << 10
	piece      = 16 << 10
)

// speed bounds what a device moves in each direction, over all its bonds. A
// nil speed is no bound.
type speed struct{ up, down *rate.Limiter }

// account is what a device takes, over all its bonds.
type account struct {
	streams, flows atomic.Int64 // being served
	speed          *speed
}

// accountOf is the one of a device. It is called with mu held.
func (s *Server) accountOf(device identity.PublicKey) *account {
	a := s.accounts[device]
	if a == nil {
		a = &account{}
		if s.cfg.Rate > 0 {
			bytes := float64(s.cfg.Rate) / 8
			burst := max(leastBurst, int(bytes/20)) // 50 ms
			a.speed = &speed{rate.NewLimiter(rate.Limit(bytes), burst), rate.NewLimiter(rate.Limit(bytes), burst)}
		}
		s.accounts[device] = a
	}
	return a
}

// carry makes the bytes of a destination count. Streams wait for their turn,
// and so push back to the web server and to the device.
func (v *speed) carry(ctx context.Context, c net.Conn) net.Conn {
	if v == nil {
		return c
	}
	return &slowed{c, ctx, v}
}

// drops tell whether a datagram of n bytes is too much now: it must not wait.
func (v *speed) dropsUp(n int) bool   { return v != nil && !v.up.AllowN(time.Now(), n) }
func (v *speed) dropsDown(n int) bool { return v != nil && !v.down.AllowN(time.Now(), n) }

// slowed is a destination at a device's speed. It has no more methods than
// package splice needs: those of a *net.TCPConn would lead around it.
type slowed struct {
	net.Conn
	ctx context.Context
	v   *speed
}

// Read implements net.Conn.
func (c *slowed) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), piece)])
	if n > 0 {
		if e := c.v.down.WaitN(c.ctx, n); e != nil {
			return 0, e
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *slowed) Write(p []byte) (total int, err error) {
	for len(p) > 0 && err == nil {
		part := p[:min(len(p), piece)]
		if err = c.v.up.WaitN(c.ctx, len(part)); err == nil {
			var n int
			n, err = c.Conn.Write(part)
			total += n
			p = p[n:]
		}
	}
	return total, err
}

// CloseWrite ends the direction to the destination.
func (c *slowed) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// SetLinger lets splice reset the connection.
func (c *slowed) SetLinger(sec int) error { return c.Conn.(*net.TCPConn).SetLinger(sec) }

// leastRate is the lowest limit that makes sense.
const leastRate = 64 * unit.Kbps
