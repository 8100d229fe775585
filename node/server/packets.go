// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"mpbond/link/tcp"
	"mpbond/link/udpsock"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// A datagram flow has one UDP socket for all its destinations, so that they all see the same port.
// It accepts datagrams from anywhere: endpoint-independent mapping and filtering (RFC 4787, REQ-1
// and REQ-8), which calls and games need to find each other. ICMP errors are passed on at a limited
// rate.
const (
	maxVerdicts     = 256 // verdicts kept for a flow
	maxLookups      = 8   // of a flow at once; datagrams to more names are dropped
	lookupTimeout   = 5 * time.Second
	nameLifetime    = 30 * time.Second // how long a flow uses a resolved name
	refusalInterval = 100 * time.Millisecond
	maxRefusals     = 8
)

// packetRelay carries one flow between a device and its destinations, at the device's rate, until
// either ends it. It owns its socket. One goroutine calls sendUpDatagram, another one receives.
type packetRelay struct {
	dest destinations
	flow *endpoint.PacketConn
	rate *deviceRate // of the device
	sock *net.UDPConn
	ctx  context.Context

	verdicts map[netip.Addr]bool // for the sending goroutine only

	mu            sync.Mutex
	refusalsSince time.Time // start of the interval in which refusals are counted
	refusalCount  int
	names         map[string]resolved
	lookups       int
	wg            sync.WaitGroup
}

// resolved is a cached address of a name.
type resolved struct {
	ip    netip.Addr
	until time.Time
}

// servePackets carries a datagram flow until it ends.
func (s *Server) servePackets(ctx context.Context, b *session, c *endpoint.PacketConn) {
	if !s.sessions.admitSlot(b, flowSlots, s.cfg.MaxFlows) {
		c.CloseWith(
			wire.CodeLimit,
			fmt.Sprintf("%d datagram flows of the device are open, which is the server's limit", s.cfg.MaxFlows),
		)
		return
	}
	defer b.giveSlot(flowSlots)
	if lack := b.account.memory.TakeSocket(); lack != "" {
		c.CloseWith(wire.CodeLimit, "the server has no "+lack+" for another datagram flow of this device")
		return
	}
	defer b.account.memory.ReleaseSocket()
	sock, err := net.ListenUDP("udp", nil)
	if err != nil {
		code := wire.CodeInternal
		if tcp.IsOutOfSockets(err) {
			code = wire.CodeLimit
		}
		s.log.Warn("no socket for a datagram flow", "device", currentDeviceName(s.trust, b), "err", err)
		c.CloseWith(code, "the server has no free socket")
		return
	}
	if err := udpsock.EnableFailures(sock); err != nil {
		s.log.Warn("ICMP errors are not passed on", "device", currentDeviceName(s.trust, b), "err", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &packetRelay{
		dest:     s.dest,
		flow:     c,
		rate:     b.account.rate,
		sock:     sock,
		ctx:      ctx,
		verdicts: map[netip.Addr]bool{},
		names:    map[string]resolved{},
	}
	r.wg.Go(r.receiveDown)
	up := 0
	for {
		d, err := c.Receive()
		if err != nil {
			s.log.Debug("datagram flow ended", "device", currentDeviceName(s.trust, b), "from_device", up, "err", err)
			break
		}
		up++
		if !r.rate.exceedsUp(len(d.Bytes)) {
			r.sendUpDatagram(d.Addr, d.Bytes)
		}
	}
	cancel()
	sock.Close()
	c.Close()
	r.wg.Wait()
}

// sendUpDatagram sends one datagram of the device.
func (r *packetRelay) sendUpDatagram(a wire.Addr, b []byte) {
	if !a.IP.IsValid() {
		r.sendToName(a, b)
		return
	}
	ok, known := r.verdicts[a.IP]
	if !known {
		ok = r.dest.permitsAddr(a.IP)
		if len(r.verdicts) >= maxVerdicts {
			clear(r.verdicts)
		}
		r.verdicts[a.IP] = ok
	}
	if !ok || a.Port == 0 {
		r.refuseDest(a, wire.CodeForbidden, errForbidden)
		return
	}
	r.sendToDestination(a, a.AddrPort(), b)
}

// sendToDestination sends a datagram that the device addressed to a.
func (r *packetRelay) sendToDestination(a wire.Addr, to netip.AddrPort, b []byte) {
	err := udpsock.Send(r.sock, b, to)
	switch {
	case errors.Is(err, syscall.ENETUNREACH),
		errors.Is(err, syscall.EHOSTUNREACH),
		errors.Is(err, syscall.EAFNOSUPPORT),
		errors.Is(err, syscall.EADDRNOTAVAIL):
		r.refuseDest(a, wire.CodeUnreachable, err)
	}
	// Other errors lose the datagram, as in any network.
}

// passFailure reports an ICMP error to the device, with the address that the device used.
func (r *packetRelay) passFailure(e udpsock.Failure) {
	f := wire.FlowRefused{Addr: wire.AddrFrom(e.Dest), Code: wire.CodeUnreachable}
	switch e.Err {
	case syscall.ECONNREFUSED:
		f.Code = wire.CodeConnRefused
	case syscall.EMSGSIZE:
		f.Code, f.MTU = wire.CodeTooBig, uint16(min(e.MTU, 65535))
	}
	r.mu.Lock()
	for name, n := range r.names {
		if n.ip == e.Dest.Addr() {
			f.Addr = wire.Addr{Name: name, Port: e.Dest.Port()}
		}
	}
	r.mu.Unlock()
	r.notifyRefusal(f, e.Err)
}

func (r *packetRelay) refuseDest(a wire.Addr, code wire.Code, err error) {
	r.notifyRefusal(wire.FlowRefused{Addr: a, Code: code}, err)
}

// notifyRefusal reports a refusal to the device, at a limited rate.
func (r *packetRelay) notifyRefusal(f wire.FlowRefused, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.refusalsSince) > refusalInterval {
		r.refusalsSince, r.refusalCount = now, 0
	}
	if r.refusalCount++; r.refusalCount <= maxRefusals {
		f.Text = fmt.Sprintf("%v: %v", f.Addr, err)
		r.flow.Refuse(f)
	}
}

// sendToName sends to a host by name. The lookup does not delay other datagrams.
func (r *packetRelay) sendToName(a wire.Addr, b []byte) {
	r.mu.Lock()
	n, known := r.names[a.Name]
	if known && time.Now().Before(n.until) {
		r.mu.Unlock()
		r.sendResolved(a, n.ip, b)
		return
	}
	busy := r.lookups >= maxLookups
	if !busy {
		r.lookups++
	}
	r.mu.Unlock()
	if busy {
		return
	}
	r.wg.Go(func() {
		ip, err := r.lookupName(a.Name)
		r.mu.Lock()
		r.lookups--
		if err == nil {
			if len(r.names) >= maxVerdicts {
				clear(r.names)
			}
			r.names[a.Name] = resolved{ip, time.Now().Add(nameLifetime)}
		}
		r.mu.Unlock()
		var dns *net.DNSError
		switch {
		case err == nil:
			r.sendResolved(a, ip, b)
		case errors.Is(err, errForbidden):
			r.refuseDest(a, wire.CodeForbidden, errForbidden)
		case errors.As(err, &dns) && dns.IsNotFound:
			r.refuseDest(a, wire.CodeNameNotFound, errors.New("the server cannot resolve the name"))
		}
	})
}

// sendResolved sends to a permitted address of a's name.
func (r *packetRelay) sendResolved(a wire.Addr, ip netip.Addr, b []byte) {
	if a.Port == 0 {
		r.refuseDest(a, wire.CodeForbidden, errForbidden)
		return
	}
	r.sendToDestination(a, netip.AddrPortFrom(ip, a.Port), b)
}

// lookupName returns an address of a name that devices may send to.
func (r *packetRelay) lookupName(name string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(r.ctx, lookupTimeout)
	defer cancel()
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, ip := range list {
		if ip = ip.Unmap(); r.dest.permitsAddr(ip) {
			return ip, nil
		}
	}
	return netip.Addr{}, errForbidden
}

// receiveDown passes received datagrams to the device.
func (r *packetRelay) receiveDown() {
	udpsock.Receive(r.sock, func(b []byte, from netip.AddrPort) bool {
		return r.rate.exceedsDown(len(b)) || r.flow.Send(b, wire.AddrFrom(from)) == nil
	}, r.passFailure)
}
