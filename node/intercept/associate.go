// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/link/udpsock"
	"mpbond/link/wire"
)

// SOCKS5 UDP ASSOCIATE, RFC 1928 sections 6 and 7. The reply names a UDP port. The app sends and
// receives its datagrams there, each as
//
//	00 00 | fragment | address | data
//
// in both directions. An association is one flow of the bond. It accepts datagrams only from the
// host that asked for it by TCP. If a port was announced, it accepts only that one,
// otherwise only the port that sent first. It ends with the TCP connection. Fragments are dropped,
// as the RFC allows.
//
// SOCKS5 cannot report that a destination refuses datagrams or cannot be reached. `mpbond run`,
// with associations that serveAssociationOnly serves, gets such refusals on the TCP connection,
// which carries nothing else: as FLOW_REFUSED frames (package wire) of flow 1.

// serveAssociation serves a requested association. from is the announced source of the app's
// datagrams; its port may be 0. reportRefusals enables FLOW_REFUSED frames.
func (e *Edge) serveAssociation(a *appConn, from wire.Addr, reportRefusals bool) {
	peer, ok1 := a.RemoteAddr().(*net.TCPAddr)
	local, ok2 := a.LocalAddr().(*net.TCPAddr)
	defer a.CloseInOrder() //nolint:errcheck // it carries no stream
	if !ok1 || !ok2 || e.cfg.Packets == nil {
		writeSOCKSReply(a, socksCommandUnsupported) //nolint:errcheck // closing is all that is left
		return
	}
	sock, err := net.ListenUDP("udp", &net.UDPAddr{IP: local.IP, Zone: local.Zone})
	if err != nil {
		e.log.Warn("no socket for a SOCKS5 UDP association", "err", err)
		writeSOCKSReply(a, socksFailure) //nolint:errcheck // closing is all that is left
		return
	}
	s := &association{sock: sock, host: peer.AddrPort().Addr().Unmap()}
	if from.Port != 0 {
		s.app.Store(netip.AddrPortFrom(s.host, from.Port))
	}
	f := e.newAppFlow(s.deliverToApp)
	app := a.describeApp()
	app.DSCP, app.ByRun = 0, reportRefusals // not those of the app's datagrams
	f.ctx = app.contextWithApp(f.ctx)
	defer f.closeAppFlow()
	replied := make(chan struct{}) // refusals must follow the reply
	if reportRefusals {
		f.refused = func(r *PacketRefusal) { <-replied; s.reportRefusalToRun(a, r) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		udpsock.Receive(sock, func(b []byte, from netip.AddrPort) bool {
			if payload, dest, ok := s.acceptDatagram(b, from); ok {
				f.sendAppDatagram(payload, dest)
			}
			return true
		}, nil)
	}()
	defer func() { <-done }()
	defer sock.Close()
	a.SetDeadline(time.Time{}) //nolint:errcheck // reading reports it
	reply := append([]byte{socksVersion, socksSucceeded, 0},
		wire.AddrFrom(sock.LocalAddr().(*net.UDPAddr).AddrPort()).Append(nil)...)
	_, err = a.Write(reply)
	close(replied)
	if err == nil {
		io.Copy(io.Discard, a) //nolint:errcheck // any end will do
	}
}

// association is the app's side of a SOCKS5 UDP association.
type association struct {
	sock      *net.UDPConn
	host      netip.Addr
	app       atomicAddr // the app's socket
	refusalMu sync.Mutex // held while reporting a refusal
}

// refusalTimeout bounds the time to report a refusal.
const refusalTimeout = time.Second

// reportRefusalToRun reports a refusal to `mpbond run`. If that does not read, the association
// ends.
func (s *association) reportRefusalToRun(c net.Conn, r *PacketRefusal) {
	addr, err := wire.AddrOf(r.Dest)
	if err != nil {
		return
	}
	s.refusalMu.Lock()
	defer s.refusalMu.Unlock()
	c.SetWriteDeadline(time.Now().Add(refusalTimeout)) //nolint:errcheck // writing reports it
	frame := wire.FlowRefused{Flow: 1, Code: r.Code, MTU: uint16(r.MTU), Addr: addr, Text: r.Text}
	if _, err := c.Write(wire.Append(nil, frame)); err != nil {
		c.Close() // the frame may be incomplete, and the next one unreadable
	}
}

// atomicAddr is an address that is set once.
type atomicAddr struct{ v atomic.Value }

// Load returns the address. It is invalid before Store.
func (a *atomicAddr) Load() netip.AddrPort {
	v, _ := a.v.Load().(netip.AddrPort)
	return v
}

// Store sets the address.
func (a *atomicAddr) Store(v netip.AddrPort) { a.v.Store(v) }

// acceptDatagram checks a datagram of the app and returns its payload and destination.
func (s *association) acceptDatagram(b []byte, from netip.AddrPort) (payload []byte, dest string, ok bool) {
	app := s.app.Load()
	if from.Addr().WithZone("") != s.host.WithZone("") || app.IsValid() && from.Port() != app.Port() {
		return nil, "", false
	}
	payload, dest, err := parseSOCKSDatagram(b)
	if err != nil {
		return nil, "", false
	}
	if app != from {
		s.app.Store(from)
	}
	return payload, dest, true
}

// deliverToApp sends a datagram to the app.
func (s *association) deliverToApp(b []byte, from netip.AddrPort) {
	if app := s.app.Load(); app.IsValid() {
		head := wire.AddrFrom(from).Append(make([]byte, 3, 32))
		_, _ = s.sock.WriteToUDPAddrPort(append(head, b...), app) // a lost datagram is acceptable
	}
}

// parseSOCKSDatagram parses a datagram of an app. The payload aliases b.
func parseSOCKSDatagram(b []byte) (payload []byte, dest string, err error) {
	if len(b) < 3 || b[0] != 0 || b[1] != 0 {
		return nil, "", fmt.Errorf("%w: not a SOCKS5 datagram", wire.ErrMalformed)
	}
	if b[2] != 0 {
		return nil, "", fmt.Errorf("%w: a fragment", wire.ErrMalformed)
	}
	a, payload, err := wire.CutAddr(b[3:])
	if err != nil {
		return nil, "", err
	}
	host := a.Name
	if a.IP.IsValid() {
		host = a.IP.String()
	}
	dest, err = parseDestination(host, a.Port)
	return payload, dest, err
}
