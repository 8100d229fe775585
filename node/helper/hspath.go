// SPDX-License-Identifier: Apache-2.0

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
	"mpbond/base/pace"
	"mpbond/control/device"
	"mpbond/link/estimate"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/dial"
)

// dialer opens the connection of an HS-path.
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

// serverDialer opens the HS-paths of subflows. It dials a server, unless a cap is used up, and
// starts the handshake. A connection that leads to this device is closed, which is known only then:
// a primary could reach services here by it. Servers that the owner trusts may be on this device.
// Its caller must check that the primary may use the server. Its only state is what udpDialer
// remembers of UDP. Safe for concurrent use.
type serverDialer struct {
	dialer    // a fake in tests
	udpDialer *dial.Dialer
	access    *serverAccess
	caps      *capChecker
	name      string // of this device, for display
}

// connectServer opens the HS-path that a primary requests. It returns its interface, "" if unknown.
// On an error it returns the code for the answer and leaves nothing open.
func (d *serverDialer) connectServer(
	ctx context.Context,
	primary identity.Peer,
	q pipe.Request,
) (hs *pipe.HSPath, link string, code wire.Code, err error) {
	if err := d.caps.checkServerCap(ctx, primary, q.Server); err != nil {
		return nil, "", wire.CodeLimit, err
	}
	conn, err := d.Dial(ctx, q.Server)
	if err != nil {
		return nil, "", codeOfDialError(err), err
	}
	countForPrimary(conn, primary)
	link = cmp.Or(d.caps.link, device.InterfaceOf(conn.LocalAddr()))
	if err := d.caps.checkTargetCap(device.CapTarget{Link: link}); err != nil { // may differ from the predicted route
		conn.Close()
		return nil, "", wire.CodeLimit, err
	}
	if !d.access.ownsServer(q.Server) && leadsToSelf(q.Server, conn.LocalAddr(), conn.RemoteAddr()) {
		conn.Close()
		return nil, "", wire.CodeForbidden, fault.New(
			fault.Permission,
			fmt.Errorf("%q leads to the helper itself", q.Server),
			"give the server another address",
		)
	}
	if hs, err = pipe.DialHS(ctx, conn, d.name, q.Key); err != nil {
		return nil, "", codeOfDialError(err), err
	}
	return hs, link, 0, nil
}

// errNoUDPAnswer is the error that the server never answered over UDP.
var errNoUDPAnswer = errors.New("no answer over UDP")

// errUDPSilent is the error that the server stopped answering over UDP.
var errUDPSilent = errors.New("no more answers over UDP")

// silenceLimit: an HS-path that was silent for this long when it ended is taken to have ended
// because of the silence. Its primary gives up a subflow after 3 s of silence, and HS-paths are
// checked every addressInterval.
const silenceLimit = 1500 * time.Millisecond

// silenceMeter measures how long nothing has arrived on an HS-path while sent data is
// unacknowledged.
type silenceMeter struct {
	acked, received uint64
	since           time.Time // the last check without silence
	at              time.Time // the last check
}

// observeHSPath updates the meter. It is called every addressInterval while the HS-path has bytes in
// flight. Nothing was in flight between checks that are further apart.
func (m *silenceMeter) observeHSPath(now time.Time, hs estimate.Hop) {
	wasIdle := now.Sub(m.at) >= pace.IdleInterval/2
	if wasIdle || hs.Queue == 0 || hs.Acked != m.acked || hs.Received != m.received {
		m.acked, m.received, m.since = hs.Acked, hs.Received, now
	}
	m.at = now
}

// silenceError returns errUDPSilent if nothing had arrived for silenceLimit when the HS-path ended,
// unless this device had lost its address (why), else nil.
func (m silenceMeter) silenceError(ended time.Time, why error) error {
	if m.since.IsZero() || ended.Sub(m.since) < silenceLimit || errors.Is(why, errAddress) {
		return nil
	}
	return errUDPSilent
}

// reportEnded reports to the UDP dialer how an HS-path over UDP ended, since some networks let only
// the beginning through: the server never answered the handshake, or stopped answering. began is
// its start, err why it ended.
func (d *serverDialer) reportEnded(s *subflow, began time.Time, err error) {
	c, now := s.hs.Conn(), time.Now()
	switch {
	case s.hs.Received() > 0:
		d.udpDialer.ReportEnded(c, began, s.lastSilence().silenceError(now, err))
	case s.up.bytesRead.Load() > 0 && now.Sub(began) >= pipe.HandshakeTimeout/2:
		// The primary ends a handshake without an answer after HandshakeTimeout. One that ended much
		// sooner ended for another reason.
		d.udpDialer.ReportSilent(c, errNoUDPAnswer)
	}
}

// maxMoveTries is how often, every addressInterval, an HS-path that lost its address tries to move
// before it is given up. A primary waits about as long for a silent subflow.
const maxMoveTries = 3

// addressMoves counts the moves of an HS-path that lost its address.
type addressMoves struct {
	count, failed int
}

// moveHSPathConn moves an HS-path to another address of its interface. It returns false if that is
// impossible or failed too often.
func (m *addressMoves) moveHSPathConn(c net.Conn) bool {
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
