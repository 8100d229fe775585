// SPDX-License-Identifier: Apache-2.0

//go:build linux && !router

package tun

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"mpbond/link/wire"
	"mpbond/node/intercept"
	"mpbond/node/intercept/icmp"
)

// Limits of this implementation.
const (
	// maxAttempts bounds the TCP connections that await the far end's answer. Further ones are
	// ignored, and the app's kernel repeats its SYN.
	maxAttempts = 1024
	// tcpBuffer bounds what a connection holds in each direction: several round trips between two
	// stacks in one machine.
	tcpBuffer = 256 << 10
	// maxQueries bounds the running DNS queries; further ones are dropped.
	maxQueries = 256
)

const (
	nicID   = 1
	dnsPort = 53
)

// An edge carries connections, datagrams and DNS queries; *intercept.Edge implements it.
type edge interface {
	ServeAttempt(a intercept.Attempt, app intercept.App, dest netip.AddrPort)
	NewFlow(app intercept.App, deliver func(b []byte, from netip.AddrPort),
		refused func(*intercept.PacketRefusal)) *intercept.Flow
	QueryDNS(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error)
}

// netstack terminates the apps' TCP, UDP and IP in place of every host of the Internet.
type netstack struct {
	edge  edge
	flows *flows
	log   *slog.Logger
	link  *link
	stack *stack.Stack

	ctx        context.Context // ends with close
	cancel     context.CancelFunc
	querySlots chan struct{} // one slot for each running DNS query

	mu       sync.Mutex
	closed   bool
	attempts map[stack.TransportEndpointID][]byte // headers of the SYN, for an ICMP error
	wg       sync.WaitGroup                       // handlers; Add requires mu
}

// newNetstack returns a stack on l, which it owns. carryPackets starts it.
func newNetstack(l *link, e edge, log *slog.Logger) (*netstack, error) {
	n := &netstack{edge: e, log: log, link: l, querySlots: make(chan struct{}, maxQueries),
		attempts: map[stack.TransportEndpointID][]byte{}}
	n.flows = newFlows(e, n.sendDatagramToApp, n.sendUnreachable)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	if err := n.configureStack(); err != nil {
		n.closeNetstack()
		return nil, errors.New("setting up the TCP/IP stack: " + err.String())
	}
	return n, nil
}

// configureStack sets the options of TCP, the handlers of TCP and UDP, and the interface, which
// accepts packets to every address.
func (n *netstack) configureStack() tcpip.Error {
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(false)
	for _, o := range []tcpip.SettableTransportProtocolOption{
		&sack, &moderate,
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: tcpBuffer, Max: tcpBuffer},
		&tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: tcpBuffer, Max: tcpBuffer},
	} {
		if err := n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return err
		}
	}
	// Twice as many, so that the forwarder itself never ignores an attempt.
	f := tcp.NewForwarder(n.stack, tcpBuffer, 2*maxAttempts, n.handleAttempt)
	n.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, func(id stack.TransportEndpointID,
		p *stack.PacketBuffer) bool {
		n.rememberSYN(id, p)
		return f.HandlePacket(id, p)
	})
	n.stack.SetTransportProtocolHandler(udp.ProtocolNumber, n.handleDatagram)
	n.link.acceptPacket = n.acceptPacket
	if err := n.stack.CreateNIC(nicID, n.link); err != nil {
		return err
	}
	// Answer for every address.
	if err := n.stack.SetPromiscuousMode(nicID, true); err != nil {
		return err
	}
	if err := n.stack.SetSpoofing(nicID, true); err != nil {
		return err
	}
	n.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nicID},
		{Destination: header.IPv6EmptySubnet, NIC: nicID}})
	return nil
}

// carryPackets carries packets until close.
func (n *netstack) carryPackets() error { return n.link.readTUNPackets() }

// closeNetstack ends carryPackets, resets all connections and waits for the stack's goroutines. The
// edge ends its connections itself.
func (n *netstack) closeNetstack() {
	n.mu.Lock()
	n.closed = true
	n.cancel()
	n.mu.Unlock()
	n.flows.closeAllFlows()
	n.stack.Close() // sends resets
	n.wg.Wait()
	n.link.Close()
	n.stack.Wait()
}

// beginHandler adds a handler to wg; the caller must call wg.Done. It reports false after close.
func (n *netstack) beginHandler() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.wg.Add(1)
	return true
}

// acceptPacket reports whether the stack gets a packet. It answers refused packets.
func (n *netstack) acceptPacket(packet []byte) bool {
	switch classifyPacket(packet) {
	case actionDeliver:
		return true
	case actionRefuse:
		n.sendToApps(icmp.Unreachable(packet, icmp.Prohibited, 0))
	}
	return false
}

// sendToApps sends a packet to the apps, unless it is nil. The packet may be lost.
func (n *netstack) sendToApps(packet []byte) {
	if packet != nil {
		n.link.writeTUNPacket(packet) //nolint:errcheck // as good as lost
	}
}

// rememberSYN keeps the headers of a connection attempt for an ICMP error. If there is no room, the
// attempt will be ignored.
func (n *netstack) rememberSYN(id stack.TransportEndpointID, p *stack.PacketBuffer) {
	h := header.TCP(p.TransportHeader().Slice())
	if len(h) < header.TCPMinimumSize || h.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.attempts[id]; !known && len(n.attempts) < maxAttempts {
		n.attempts[id] = append(append([]byte(nil), p.NetworkHeader().Slice()...), h...)
	}
}

// handleAttempt handles a connection attempt. It runs in its own goroutine.
func (n *netstack) handleAttempt(r *tcp.ForwarderRequest) {
	id := r.ID()
	n.mu.Lock()
	syn := n.attempts[id]
	n.mu.Unlock()
	if syn == nil || !n.beginHandler() {
		r.Complete(false)
		return
	}
	defer n.wg.Done()
	a := &attempt{n: n, r: r, syn: syn}
	n.edge.ServeAttempt(a, intercept.App{Addr: toAddrPort(id.RemoteAddress, id.RemotePort),
		DSCP: intercept.HeaderDSCP(syn)}, toAddrPort(id.LocalAddress, id.LocalPort))
	if !a.done {
		a.Refuse(wire.CodeInternal)
	}
}

// attempt is a TCP connection before its SYN is answered. It implements intercept.Attempt.
type attempt struct {
	n    *netstack
	r    *tcp.ForwarderRequest
	syn  []byte // headers of the SYN
	done bool
}

// completeAttempt ends the attempt, so that the next SYN with these addresses starts another one.
func (a *attempt) completeAttempt(reset bool) {
	a.done = true
	id := a.r.ID()
	a.n.mu.Lock()
	defer a.n.mu.Unlock()
	delete(a.n.attempts, id)
	a.r.Complete(reset)
}

// Accept completes the handshake.
func (a *attempt) Accept() (net.Conn, error) {
	var wq waiter.Queue
	ep, err := a.r.CreateEndpoint(&wq)
	a.completeAttempt(false)
	if err != nil {
		return nil, errors.New(err.String())
	}
	return &conn{TCPConn: gonet.NewTCPConn(&wq, ep), ep: ep}, nil
}

// Refuse answers with a reset if the destination did so or the failure is our own, otherwise with
// the matching ICMP error.
func (a *attempt) Refuse(why wire.Code) {
	switch why {
	case wire.CodeUnreachable, wire.CodeForbidden, wire.CodeTimeout:
		a.n.sendToApps(icmp.Unreachable(a.syn, icmp.ReasonFor(why), 0))
		a.completeAttempt(false)
	default:
		a.completeAttempt(true)
	}
}

// conn is the stack's end of an app's connection.
type conn struct {
	*gonet.TCPConn
	ep tcpip.Endpoint
}

// SetLinger sets SO_LINGER: after SetLinger(0) Close resets the connection, so that the app sees an
// error. Other values are not used here.
func (c *conn) SetLinger(seconds int) error {
	c.ep.SocketOptions().SetLinger(tcpip.LingerOption{Enabled: seconds >= 0,
		Timeout: time.Duration(seconds) * time.Second})
	return nil
}

// handleDatagram handles a datagram of an app. The goroutine of carryPackets calls it.
func (n *netstack) handleDatagram(id stack.TransportEndpointID, p *stack.PacketBuffer) bool {
	app, dest := toAddrPort(id.RemoteAddress, id.RemotePort), toAddrPort(id.LocalAddress, id.LocalPort)
	payload := p.Data().AsRange().ToSlice()
	if dest.Port() == dnsPort {
		n.forwardQuery(app, dest, payload)
		return true
	}
	n.flows.sendFlowDatagram(intercept.App{Addr: app, Peer: dest,
		DSCP: intercept.HeaderDSCP(p.NetworkHeader().Slice())}, dest, payload)
	return true
}

// forwardQuery forwards a DNS query and sends the answer to the app. It keeps q.
func (n *netstack) forwardQuery(app, resolver netip.AddrPort, q []byte) {
	select {
	case n.querySlots <- struct{}{}:
	default:
		return
	}
	if !n.beginHandler() {
		return
	}
	go func() {
		defer n.wg.Done()
		defer func() { <-n.querySlots }()
		a, err := n.edge.QueryDNS(n.ctx, resolver, q)
		if err != nil {
			n.log.Debug("DNS query not answered", "resolver", resolver, "err", err)
			return
		}
		n.sendDatagramToApp(resolver, app, a)
	}()
}

// sendDatagramToApp sends a datagram to an app. It does not keep payload.
func (n *netstack) sendDatagramToApp(from, app netip.AddrPort, payload []byte) {
	n.sendToApps(icmp.Datagram(from, app, payload))
}

// sendUnreachable tells an app why its datagrams do not reach dest.
func (n *netstack) sendUnreachable(app, dest netip.AddrPort, r *intercept.PacketRefusal) {
	// The app's kernel looks at no more of the quoted packet than this.
	n.sendToApps(icmp.Unreachable(icmp.Datagram(app, dest, nil), icmp.ReasonFor(r.Code), r.MTU))
}

func toAddrPort(a tcpip.Address, port uint16) netip.AddrPort {
	ip, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(ip, port)
}
