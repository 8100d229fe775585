// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/link/udpsock"
	"mpbond/link/wire"
	"mpbond/node/intercept/icmp"
)

// datagramProxy receives the datagrams of one app that the kernel diverts to it (see divert) and
// carries them over the Edge for redirected connections: one SOCKS5 UDP association for each socket
// of the app. It sends replies from a socket bound to their foreign source address, so that the app
// sees them come from the destination that it asked.
type datagramProxy struct {
	edgePort uint16 // the Edge's port
	conns    []*net.UDPConn
	log      *slog.Logger
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu           sync.Mutex
	sockets      map[netip.AddrPort]*appSocket
	replySockets map[netip.AddrPort]*net.UDPConn // by the source address of the replies
}

// appSocket is one socket of the app. The first datagrams wait while its association is made.
type appSocket struct {
	app      netip.AddrPort
	queue    chan appDatagram
	lastUsed time.Time // guarded by datagramProxy.mu
	stop     context.CancelFunc
}

// appDatagram is a datagram of the app. Its holder owns the bytes.
type appDatagram struct {
	dest netip.AddrPort
	b    []byte
}

const (
	maxAppSockets      = 1024
	maxReplySockets    = 256
	maxQueuedDatagrams = 64 // bounds the datagrams of a socket that wait for its association
	// socketIdleTimeout is how long a socket of the app may be idle (RFC 4787 section 4.3).
	socketIdleTimeout = 5 * time.Minute
	associateTimeout  = 10 * time.Second
)

func newDatagramProxy(edge uint16, log *slog.Logger) (*datagramProxy, error) {
	conns, err := listenPair("udp", 0, listenTransparentUDP) // they may have any destination
	if err != nil {
		return nil, err
	}
	p := &datagramProxy{edgePort: edge, conns: conns, log: log, sockets: map[netip.AddrPort]*appSocket{},
		replySockets: map[netip.AddrPort]*net.UDPConn{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, c := range conns {
		p.wg.Go(func() { p.receiveDatagrams(c) })
	}
	p.wg.Go(p.expireSockets)
	return p, nil
}

// listenPort returns the port on the loopback addresses to which the kernel must divert datagrams.
func (p *datagramProxy) listenPort() uint16 { return portOfListener(p.conns[0]) }

// Close ends all associations and waits for the goroutines.
func (p *datagramProxy) Close() error {
	p.cancel()
	for _, c := range p.conns {
		c.Close()
	}
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.replySockets {
		c.Close()
	}
	return nil
}

// listenTransparentUDP returns a socket that may be bound to, and receive for, foreign addresses
// (ip(7): IP_TRANSPARENT, IP_RECVORIGDSTADDR).
func listenTransparentUDP(network string, at netip.AddrPort) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) error {
		var serr error
		err := raw.Control(func(fd uintptr) {
			level, transparent, original := unix.SOL_IP, unix.IP_TRANSPARENT, unix.IP_RECVORIGDSTADDR
			if network == "udp6" {
				level, transparent, original = unix.SOL_IPV6, unix.IPV6_TRANSPARENT, unix.IPV6_RECVORIGDSTADDR
			}
			serr = errors.Join(unix.SetsockoptInt(int(fd), level, transparent, 1),
				unix.SetsockoptInt(int(fd), level, original, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		})
		return errors.Join(err, serr)
	}}
	c, err := lc.ListenPacket(context.Background(), network, at.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// receiveDatagrams receives the app's datagrams.
func (p *datagramProxy) receiveDatagrams(c *net.UDPConn) {
	b, oob := make([]byte, udpsock.MaxPayload), make([]byte, 256)
	for {
		n, m, _, from, err := c.ReadMsgUDPAddrPort(b, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		dest, ok := originalDestOf(oob[:m])
		if !ok || dest.Addr().IsLoopback() {
			continue // not diverted by our rules
		}
		p.queueDatagram(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()),
			appDatagram{dest, append([]byte(nil), b[:n]...)})
	}
}

// originalDestOf returns the destination of a datagram from its control messages.
func originalDestOf(oob []byte) (netip.AddrPort, bool) {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for _, m := range list {
		d := m.Data // a sockaddr, as in transparent.go
		switch {
		case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_ORIGDSTADDR && len(d) >= 8:
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(d[4:8])), binary.BigEndian.Uint16(d[2:])), true
		case m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_ORIGDSTADDR && len(d) >= 24:
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(d[8:24])).Unmap(), binary.BigEndian.Uint16(d[2:])), true
		}
	}
	return netip.AddrPort{}, false
}

// queueDatagram passes a datagram to its socket's association, which it makes if necessary. If the
// queue is full the datagram is dropped.
func (p *datagramProxy) queueDatagram(app netip.AddrPort, d appDatagram) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sockets[app]
	if s == nil {
		if p.ctx.Err() != nil || len(p.sockets) >= maxAppSockets {
			return
		}
		s = &appSocket{app: app, queue: make(chan appDatagram, maxQueuedDatagrams)}
		ctx, stop := context.WithCancel(p.ctx)
		s.stop = stop
		p.sockets[app] = s
		p.wg.Go(func() {
			defer stop()
			if err := p.carrySocket(ctx, s); err != nil && ctx.Err() == nil {
				p.log.Info("datagrams of the app lost", "app", app, "err", err)
			}
			p.mu.Lock()
			if p.sockets[app] == s {
				delete(p.sockets, app)
			}
			p.mu.Unlock()
		})
	}
	s.lastUsed = time.Now()
	select {
	case s.queue <- d:
	default:
	}
}

// carrySocket makes an association and carries datagrams over it until ctx or the association ends.
func (p *datagramProxy) carrySocket(ctx context.Context, s *appSocket) error {
	control, relay, err := p.openAssociation(ctx)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Do not use context.AfterFunc here: if it is stopped while ctx ends it may not run, and
	// nothing would wake the goroutines below.
	defer func() { control.Close(); relay.Close() }()
	wg.Go(func() {
		defer cancel()
		p.readRefusals(s, control)
	})
	wg.Go(func() {
		defer cancel()
		udpsock.Receive(relay, func(b []byte, _ netip.AddrPort) bool {
			p.deliverReply(s, b)
			return true
		}, nil)
	})
	var buf []byte
	for {
		select {
		case <-ctx.Done():
			return errors.New("the primary has ended the association")
		case d := <-s.queue:
			buf = append(wire.AddrFrom(d.dest).Append(append(buf[:0], 0, 0, 0)), d.b...)
			_, _ = relay.Write(buf) // a lost datagram is acceptable
		}
	}
}

// readRefusals passes on the refusals that the Edge reports on the TCP connection of an
// association, until it ends.
func (p *datagramProxy) readRefusals(s *appSocket, control net.Conn) {
	frames := wire.NewReader(control)
	for {
		t, b, err := frames.Next()
		if err != nil {
			return
		}
		if r, err := wire.ParseFlowRefused(b); t == wire.TypeFlowRefused && err == nil && r.Addr.IP.IsValid() {
			if err := sendICMPError(s.app, r); err != nil {
				p.log.Debug("refusal not passed on to the app", "app", s.app, "why", r.Text, "err", err)
			}
		}
	}
}

// sendICMPError sends the app's kernel the ICMP error that the destination or a router would have
// sent. It uses a raw socket because the error comes from another address (raw(7): with IPPROTO_RAW
// we write the IP header).
func sendICMPError(app netip.AddrPort, r wire.FlowRefused) error {
	b := icmp.Unreachable(icmp.Datagram(app, r.Addr.AddrPort(), nil), icmp.ReasonFor(r.Code), int(r.MTU))
	if b == nil {
		return fmt.Errorf("no ICMP about %v", r.Addr)
	}
	family, to := unix.AF_INET, unix.Sockaddr(nil)
	if app.Addr().Is4() {
		to = &unix.SockaddrInet4{Addr: app.Addr().As4()}
	} else {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Addr: app.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // sent or not, it is over
	return unix.Sendto(fd, b, 0, to)
}

// openAssociation makes an association with the Edge.
func (p *datagramProxy) openAssociation(ctx context.Context) (net.Conn, *net.UDPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, associateTimeout)
	defer cancel()
	host := "127.0.0.1"
	control, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(p.edgePort))))
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { control.Close() })
	relay, err := requestAssociation(control)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		control.Close()
		return nil, nil, fmt.Errorf("the primary carries no datagrams: %w", err)
	}
	return control, relay, nil
}

// requestAssociation negotiates SOCKS5 with the Edge and returns a socket connected to the
// announced address.
func requestAssociation(c net.Conn) (*net.UDPConn, error) {
	if _, err := c.Write([]byte{socksVersion, 1, socksNoAuth, socksVersion, socksAssociate, 0, socksIPv4, 0, 0,
		0, 0, 0, 0}); err != nil {
		return nil, err
	}
	b := make([]byte, 12) // the Edge's address on 127.0.0.1 is IPv4
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, err
	}
	a, _, err := wire.CutAddr(b[5:])
	if err != nil || b[1] != socksNoAuth || b[3] != socksSucceeded || !a.IP.IsLoopback() {
		return nil, fmt.Errorf("SOCKS5 reply %d", b[3])
	}
	return net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(a.AddrPort()))
}

// deliverReply sends the app a datagram that came over its association.
func (p *datagramProxy) deliverReply(s *appSocket, b []byte) {
	if len(b) < 3 {
		return
	}
	a, payload, err := wire.CutAddr(b[3:])
	if err != nil || !a.IP.IsValid() {
		return
	}
	c, err := p.replySocketFor(a.AddrPort())
	if err != nil {
		p.log.Debug("an answer is lost", "from", a, "err", err)
		return
	}
	_, _ = c.WriteToUDPAddrPort(payload, s.app) // a lost datagram is acceptable
	p.mu.Lock()
	s.lastUsed = time.Now()
	p.mu.Unlock()
}

// replySocketFor returns a socket bound to a foreign address.
func (p *datagramProxy) replySocketFor(from netip.AddrPort) (*net.UDPConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.replySockets[from]; c != nil {
		return c, nil
	}
	if p.ctx.Err() != nil {
		return nil, net.ErrClosed
	}
	network := "udp4"
	if from.Addr().Is6() {
		network = "udp6"
	}
	c, err := listenTransparentUDP(network, from)
	if err != nil {
		return nil, err
	}
	for old, o := range p.replySockets { // drop any: it is made again when needed
		if len(p.replySockets) < maxReplySockets {
			break
		}
		o.Close()
		delete(p.replySockets, old)
	}
	p.replySockets[from] = c
	return c, nil
}

// expireSockets ends the associations of idle sockets.
func (p *datagramProxy) expireSockets() {
	t := time.NewTicker(socketIdleTimeout / 10)
	defer t.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case now := <-t.C:
			p.mu.Lock()
			for _, s := range p.sockets {
				if now.Sub(s.lastUsed) > socketIdleTimeout {
					s.stop()
				}
			}
			p.mu.Unlock()
		}
	}
}

// processExists reports whether a process exists.
func processExists(pid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return err == nil
}
