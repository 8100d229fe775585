// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/pace"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/estimate"
	"mpbond/link/pipe"
	"mpbond/link/wire"
	"mpbond/node/dial"
)

// movable is a connection whose attempts to move return err.
type movable struct {
	net.Conn
	err error
}

func (m *movable) Move() error { return m.err }

// TestMoves: an HS-path that has lost its address retries for a while; over TCP, or if the route
// leads elsewhere, it does not.
func TestMoves(t *testing.T) {
	none := errors.New("no address")
	for name, c := range map[string]struct {
		errs  []error
		stays []bool
		count int
	}{
		"at once":     {[]error{nil, nil}, []bool{true, true}, 2},
		"later":       {[]error{none, none, nil, none, none, nil}, []bool{true, true, true, true, true, true}, 2},
		"never":       {[]error{none, none, none}, []bool{true, true, false}, 0},
		"elsewhere":   {[]error{dial.ErrElsewhere}, []bool{false}, 0},
		"not at all":  {[]error{errors.ErrUnsupported}, []bool{false}, 0},
		"it is ended": {[]error{net.ErrClosed}, []bool{false}, 0},
	} {
		var m addressMoves
		for i, err := range c.errs {
			if stays := m.moveHSPathConn(&movable{nil, err}); stays != c.stays[i] {
				t.Errorf("%s: at %d: %v", name, i, stays)
			}
		}
		if m.count != c.count {
			t.Errorf("%s: it moved %d times", name, m.count)
		}
	}
	if new(addressMoves).moveHSPathConn(&net.TCPConn{}) {
		t.Error("TCP moves")
	}
}

// TestMute: an HS-path is silent while nothing arrives and sent data is unacknowledged; an idle one
// is not.
func TestMute(t *testing.T) {
	began := time.Unix(1e9, 0)
	type look struct {
		queue           unit.Bytes
		acked, received uint64
	}
	for name, c := range map[string]struct {
		looks []look
		want  time.Duration // at the last check, once a second
	}{
		"idle":              {[]look{{0, 9, 9}, {0, 9, 9}, {0, 9, 9}}, 0},
		"busy":              {[]look{{9, 1, 9}, {9, 2, 9}, {9, 3, 9}}, 0},
		"it answers":        {[]look{{9, 1, 1}, {9, 1, 2}, {9, 1, 3}}, 0},
		"mute":              {[]look{{9, 1, 1}, {9, 1, 1}, {9, 1, 1}, {20, 1, 1}}, 3 * time.Second},
		"mute after a time": {[]look{{0, 1, 1}, {0, 1, 1}, {9, 1, 1}, {9, 1, 1}}, 2 * time.Second},
	} {
		var m silenceMeter
		now := began
		for i, l := range c.looks {
			now = began.Add(time.Duration(i) * time.Second)
			m.observeHSPath(now, estimate.Hop{Queue: l.queue, Acked: l.acked, Received: l.received})
		}
		if got := now.Sub(m.since); got != c.want {
			t.Errorf("%s: for %v", name, got)
		}
		if silent := m.silenceError(now.Add(time.Second/10), io.EOF) != nil; silent != (c.want > 0) {
			t.Errorf("%s: silent %v", name, silent)
		}
		if m.silenceError(now.Add(time.Hour), errAddress) != nil {
			t.Errorf("%s: it had no address", name)
		}
	}
	var rare silenceMeter // as of an idle program, until bytes are in flight again
	for i, queue := range []unit.Bytes{0, 0, 9} {
		rare.observeHSPath(began.Add(time.Duration(i)*pace.IdleInterval), estimate.Hop{Queue: queue, Acked: 1})
	}
	if err := rare.silenceError(began.Add(2*pace.IdleInterval+time.Second), io.EOF); err != nil {
		t.Errorf("after a pause: %v", err)
	}
	if (silenceMeter{}).silenceError(began, io.EOF) != nil {
		t.Error("nobody has looked")
	}
}

// dialTo is a dialer of a connection between two addresses. It counts open connections.
type dialTo struct {
	local, remote net.Addr
	err           error
	open          int
}

type dialedConn struct {
	pipe.Conn
	d *dialTo
}

func (d *dialTo) Dial(context.Context, string) (pipe.Conn, error) {
	if d.err != nil {
		return nil, d.err
	}
	d.open++
	here, there := pipe.MemoryPipe()
	go func() { _, _ = io.Copy(io.Discard, there) }()
	return &dialedConn{here, d}, nil
}

func (c *dialedConn) LocalAddr() net.Addr  { return c.d.local }
func (c *dialedConn) RemoteAddr() net.Addr { return c.d.remote }
func (c *dialedConn) Close() error         { c.d.open--; return c.Conn.Close() }

// TestServerDialer: an HS-path is opened unless a cap is reached, the server does not answer, or
// its address leads to this device and the owner trusts no server there; then nothing stays open.
func TestServerDialer(t *testing.T) {
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err == nil {
		err = trust.Add(
			identity.Peer{
				Name:      "home",
				Roles:     []identity.Role{identity.RoleServer},
				Key:       keys().server.Public(),
				Addresses: []string{"own.example.org:7600"},
			},
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7600} }
	for name, c := range map[string]struct {
		server  string
		remote  string
		err     error
		reached string // link whose cap is reached
		code    wire.Code
	}{
		"made":            {"vps.example.org:7600", "192.0.2.1", nil, "", 0},
		"the cap":         {"vps.example.org:7600", "192.0.2.1", nil, "wwan0", wire.CodeLimit},
		"another's cap":   {"vps.example.org:7600", "192.0.2.1", nil, "wlan0", 0},
		"no answer":       {"vps.example.org:7600", "192.0.2.1", os.ErrDeadlineExceeded, "", wire.CodeTimeout},
		"refused":         {"vps.example.org:7600", "192.0.2.1", syscall.ECONNREFUSED, "", wire.CodeConnRefused},
		"leads here":      {"evil.example.org:22", "127.0.0.1", nil, "", wire.CodeForbidden},
		"the owner's own": {"own.example.org:7600", "127.0.0.1", nil, "", 0},
	} {
		to := &dialTo{local: at("192.0.2.200"), remote: at(c.remote), err: c.err}
		d := &serverDialer{dialer: to, access: newServerAccess(trust, slog.New(slog.DiscardHandler)), name: "phone",
			caps: &capChecker{link: "wwan0", allowance: func(of device.CapTarget) policy.Allowance {
				if of.Link == c.reached && of.Link != "" {
					return policy.Allowance{Level: policy.CapReached}
				}
				return policy.Allowance{}
			}}}
		hs, link, code, err := d.connectServer(
			t.Context(),
			identity.Peer{Key: keys().primary.Public()},
			pipe.Request{Server: c.server},
		)
		if code != c.code || (err == nil) != (c.code == 0) || err == nil && link != "wwan0" {
			t.Errorf("%s: over %q, code %v, %v", name, link, code, err)
		}
		if err == nil {
			hs.Close()
		}
		if to.open != 0 {
			t.Errorf("%s: %d connections are left open", name, to.open)
		}
	}
}
