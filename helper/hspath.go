package helper

import (
	"context"
	"errors"
	"net"
	"time"

	"mpbond/paths"
	"mpbond/pipe"
	"mpbond/tcp"
)

// dialer makes the connection of an HS-path.
type dialer interface {
	Dial(ctx context.Context, addr string) (pipe.Conn, error)
}

// hsPath is a dialer over TCP or UDP.
type hsPath struct {
	d   *paths.Dialer
	opt tcp.Options
}

// Dial implements dialer.
func (p hsPath) Dial(ctx context.Context, addr string) (pipe.Conn, error) {
	c, err := p.d.Dial(ctx, addr, p.opt)
	if err != nil {
		return nil, err
	}
	if err := c.SetKeepAlive(paths.RadioKeepAlive(c)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// errMute is that the server never said anything.
var errMute = errors.New("nothing came back over UDP")

// judge tells the dialer of an HS-path that has ended, which began at a time, if the
// server never answered the handshake that its primary waited for: some networks let
// through the beginning alone.
func (h *Helper) judge(r *relay, began time.Time) {
	if r.hs.Received() == 0 && r.up.read.Load() > 0 && time.Since(began) >= pipe.HandshakeTimeout/2 {
		h.paths.Lost(r.hs.Conn(), errMute)
	}
}

// moveTries is how many times, one each addressEvery, an HS-path that has lost its
// address looks for another one, until it is given up: about as long as the primary
// waits for a silent subflow.
const moveTries = 3

// moves is what has become of an HS-path that lost its address; Helper.mu guards it.
type moves struct {
	count, failed int
}

// follow has an HS-path go on from another address of its interface. False: it cannot,
// or no longer waits for one.
func (m *moves) follow(c net.Conn) bool {
	switch err := paths.Move(c); {
	case err == nil:
		m.count++
		m.failed = 0
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, paths.ErrElsewhere), errors.Is(err, net.ErrClosed):
		return false
	default:
		m.failed++
	}
	return m.failed < moveTries
}
