package helper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/control/device"
	"mpbond/link/estimate"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/dial"
)

// dialer makes the connection of an HS-path.
type dialer interface {
	Dial(ctx context.Context, addr string) (pipe.Conn, error)
}

// hsDialer is a dialer over TCP or UDP.
type hsDialer struct {
	dialer  *dial.Dialer
	options tcp.Options
}

// Dial implements dialer.
func (p hsDialer) Dial(ctx context.Context, addr string) (pipe.Conn, error) {
	c, err := p.dialer.Dial(ctx, addr, p.options)
	if err != nil {
		return nil, err
	}
	if err := c.SetKeepAlive(dial.RadioKeepAlive(c)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// serverDialer makes the HS-paths of subflows: it dials a server, unless a cap is used up or
// the address leads to this device itself, and begins the handshake. It stores nothing but
// what paths remembers of UDP; whether the primary may be carried there at all is its
// caller's to check. Methods may be called by any goroutine.
type serverDialer struct {
	dialer    // a fake in tests
	udpDialer *dial.Dialer
	access    *serverAccess
	caps      *capChecker
	name      string // this device's, for display
}

// connectServer makes the HS-path that a primary asks for, and returns its interface, "" if that
// is not known. On an error the code says what to answer, and nothing is left open.
func (d *serverDialer) connectServer(ctx context.Context, primary identity.Peer, q pipe.Request) (hs *pipe.HSPath, link string, code wire.Code, err error) {
	if err := d.caps.checkServerCap(ctx, primary, q.Server); err != nil {
		return nil, "", wire.CodeLimit, err
	}
	conn, err := d.Dial(ctx, q.Server)
	if err != nil {
		return nil, "", dialCode(err), err
	}
	countForPrimary(conn, primary)
	link = cmp.Or(d.caps.link, device.InterfaceOf(conn.LocalAddr()))
	if err := d.caps.checkCap(device.CapTarget{Link: link}); err != nil { // it need not be the one that the routes told
		conn.Close()
		return nil, "", wire.CodeLimit, err
	}
	if !d.access.ownsServer(q.Server) && leadsToSelf(q.Server, conn.LocalAddr(), conn.RemoteAddr()) {
		conn.Close()
		return nil, "", wire.CodeForbidden, fault.New(fault.Permission, fmt.Errorf("%q leads to the helper itself", q.Server), "give the server another address")
	}
	if hs, err = pipe.DialHS(ctx, conn, d.name, q.Key); err != nil {
		return nil, "", dialCode(err), err
	}
	return hs, link, 0, nil
}

// errNoUDPAnswer is that the server never said anything.
var errNoUDPAnswer = errors.New("nothing came back over UDP")

// errUDPSilent is that the server says nothing any more.
var errUDPSilent = errors.New("nothing comes back over UDP any more")

// silenceLimit is how long an HS-path that ends was mute if that is why: its primary gives
// up a subflow that is silent for 3 s, and it is looked at each addressInterval.
const silenceLimit = 1500 * time.Millisecond

// silenceMeter is since when nothing comes by an HS-path, though what was sent waits for its
// acknowledgement.
type silenceMeter struct {
	acked, received uint64
	since           time.Time // the last look at which all was well
}

// observeHop is called each addressInterval.
func (m *silenceMeter) observeHop(now time.Time, hs estimate.Hop) {
	if m.since.IsZero() || hs.Queue == 0 || hs.Acked != m.acked || hs.Received != m.received {
		*m = silenceMeter{hs.Acked, hs.Received, now}
	}
}

// silenceError is errUDPSilent if an HS-path that ended then, for that reason, had fallen silent,
// else nil.
func (m silenceMeter) silenceError(ended time.Time, why error) error {
	if m.since.IsZero() || ended.Sub(m.since) < silenceLimit || errors.Is(why, errAddress) {
		return nil
	}
	return errUDPSilent
}

// reportEnded reports to the dialer of an HS-path over UDP that has ended how it went, since some
// networks let through the beginning alone: whether the server never answered the
// handshake that its primary waited for, or said nothing any more at the end. It began
// at a time, and err is why it ended.
func (d *serverDialer) reportEnded(s *subflow, began time.Time, err error) {
	c, now := s.hs.Conn(), time.Now()
	switch {
	case s.hs.Received() > 0:
		d.udpDialer.ReportEnded(c, began, s.lastSilence().silenceError(now, err))
	case s.up.bytesRead.Load() > 0 && now.Sub(began) >= pipe.HandshakeTimeout/2:
		d.udpDialer.ReportSilent(c, errNoUDPAnswer)
	}
}

// maxMoveTries is how many times, one each addressInterval, an HS-path that has lost its
// address looks for another one, until it is given up: about as long as the primary
// waits for a silent subflow.
const maxMoveTries = 3

// addressMoves is what has become of an HS-path that lost its address.
type addressMoves struct {
	count, failed int
}

// moveConn has an HS-path go on from another address of its interface. False: it cannot,
// or no longer waits for one.
func (m *addressMoves) moveConn(c net.Conn) bool {
	switch err := dial.Move(c); {
	case err == nil:
		m.count++
		m.failed = 0
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, dial.ErrElsewhere), errors.Is(err, net.ErrClosed):
		return false
	default:
		m.failed++
	}
	return m.failed < maxMoveTries
}
