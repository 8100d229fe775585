// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
)

// firstHelloTimeout is the first interval between repetitions of a HELLO. It doubles up to
// maxHelloTimeout.
const firstHelloTimeout, maxHelloTimeout = 100 * time.Millisecond, 3 * time.Second

// Dial connects to a server's HOST:PORT over a new socket, which closes with the connection. It
// tries the addresses of the name in turn until one answers or ctx ends.
func Dial(ctx context.Context, addr string, opt Options) (*Conn, error) {
	host, p, err := net.SplitHostPort(addr)
	var port uint64
	if err == nil {
		port, err = strconv.ParseUint(p, 10, 16)
	}
	if err != nil {
		return nil, fault.New(fault.Config, fmt.Errorf("invalid address %s: %w", addr, err), "write an address as HOST:PORT")
	}
	ips, err := new(net.Resolver).LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fault.New(fault.Unreachable, fmt.Errorf("resolving %s: %w", addr, err),
			"check the name and this device's DNS")
	}
	for i, ip := range ips {
		ip = ip.Unmap()
		to := netip.AddrPortFrom(ip, uint16(port))
		var ep *Endpoint
		if ep, err = openEndpointTo(to, opt); err != nil {
			continue
		}
		one, cancel := ctx, context.CancelFunc(func() {})
		if left := len(ips) - i; left > 1 {
			one, cancel = shareDeadline(ctx, left)
		}
		var c *Conn
		c, err = ep.Dial(one, to)
		cancel()
		if err == nil {
			return c, nil
		}
		ep.Close()
	}
	return nil, err
}

// noRouteError explains that this device has no address with a route to the destination.
func noRouteError(err error) error {
	return fault.New(fault.Unreachable, err, "this device has no route to that address: check that its network is up")
}

// shareDeadline returns ctx limited to an equal share of its remaining time for each of the
// remaining tries.
func shareDeadline(ctx context.Context, tries int) (context.Context, context.CancelFunc) {
	t := 5 * time.Second
	if end, ok := ctx.Deadline(); ok {
		t = time.Until(end) / time.Duration(tries)
	}
	return context.WithTimeout(ctx, t)
}

// Dial connects to a server over this endpoint's socket. It gives up when ctx ends.
func (ep *Endpoint) Dial(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	secret, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	id, replies := randomConnID(), make(chan []byte, 4)
	ep.mu.Lock()
	closed := ep.isClosing
	ep.pendingDials[id] = replies
	ep.mu.Unlock()
	defer func() {
		ep.mu.Lock()
		delete(ep.pendingDials, id)
		ep.mu.Unlock()
	}()
	if closed {
		return nil, net.ErrClosed
	}
	token, retried, immediate, busy := make([]byte, addressTokenLen), false, false, false
	timer := time.NewTimer(0)
	defer timer.Stop()
	var helloBackoff backoff.Backoff
	for {
		select {
		case <-ctx.Done():
			if busy {
				return nil, fault.New(fault.Unreachable, fmt.Errorf("%s accepts no more connections: %w", to, ctx.Err()),
					"try again later")
			}
			return nil, fault.New(fault.Unreachable, fmt.Errorf("%s does not answer over UDP: %w", to, ctx.Err()),
				"check that its UDP port is open and that no firewall blocks it")
		case <-ep.closed:
			return nil, net.ErrClosed
		case <-timer.C:
			ep.sendStateless(appendHello(nil, id, secret.PublicKey().Bytes(), token), to)
			timer.Reset(helloBackoff.Double(firstHelloTimeout, maxHelloTimeout))
			retried, immediate = immediate, false
		case p := <-replies:
			switch p[0] {
			case typeBusy:
				busy = true
				continue
			case typeRetry:
				// Answer one RETRY at once and later ones when the timer expires: anyone who sees
				// the HELLO can forge them.
				if string(token) != string(p[2+connIDLen:retryLen]) {
					copy(token, p[2+connIDLen:])
					if !retried {
						timer.Reset(0)
						immediate = true
					}
					retried = true
				}
				continue
			}
			hello := appendHello(nil, id, secret.PublicKey().Bytes(), token)
			k, key, err := deriveKeys(secret, p[2+2*connIDLen:welcomeBareLen], hello[:helloLen-addressTokenLen],
				p[:welcomeBareLen], true)
			if err != nil {
				continue
			}
			reset, ok := key.openWelcome(p)
			if !ok {
				continue
			}
			c := newUnstartedConn(ep, id, to)
			c.keys, c.peerResetToken = k, reset
			copy(c.peerID[:], p[2+connIDLen:])
			c.engine.pendingPing = true // confirms the connection to the server
			return c, ep.startDialedConn(c)
		}
	}
}

// startDialedConn starts a dialed connection.
func (ep *Endpoint) startDialedConn(c *Conn) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.isClosing {
		return net.ErrClosed
	}
	c.running, c.confirmed = true, true
	ep.registerPeerConn(c)
	go c.runSendLoop()
	return nil
}

// handleHello answers a client's HELLO with WELCOME, RETRY or BUSY, or not at all, and drops
// expired half-open connections.
func (ep *Endpoint) handleHello(p []byte, from netip.AddrPort) {
	k := halfKey{from: from}
	copy(k.id[:], p[2:])
	copy(k.share[:], p[2+connIDLen:])
	now := time.Now()
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if h := ep.halfOpen[k]; h != nil {
		ep.sendStateless(h.welcome, from)
		return
	}
	if ep.isClosing {
		return
	}
	if now.Sub(ep.sweptAt) > halfOpenTimeout/20 { // bounds the cost under a flood
		ep.sweptAt = now
		for k, h := range ep.halfOpen {
			if now.Sub(h.since) > halfOpenTimeout {
				h.release()
				delete(ep.halfOpen, k)
				delete(ep.conns, h.conn.id)
			}
		}
	}
	if len(ep.conns) >= maxConns {
		ep.sendBusyPacket(k, now)
		return
	}
	token := p[helloLen-addressTokenLen : helloLen]
	limit, validated := ep.unvalidatedLimit, !allBytesZero(token) && isValidAddressToken(ep.tokenKey, now, from.String(),
		token)
	if validated {
		limit = ep.validatedLimit
	}
	release := limit.Admit(net.UDPAddrFromAddrPort(from))
	if release == nil {
		if validated {
			ep.sendBusyPacket(k, now)
		} else if ep.replyBudget.allowNextEvent(now, maxRepliesPerSecond) {
			b := append([]byte{typeRetry, version}, k.id[:]...)
			ep.sendStateless(append(b, newAddressToken(ep.tokenKey, now, from.String())...), from)
		}
		return
	}
	c, welcome, err := ep.createWelcome(p, k)
	if err != nil {
		release()
		return
	}
	ep.halfOpen[k] = &halfOpen{c, welcome, now, release}
	ep.conns[c.id] = c
	ep.sendStateless(welcome, from)
}

// sendBusyPacket answers a HELLO when no connection can be added. mu must be held.
func (ep *Endpoint) sendBusyPacket(k halfKey, now time.Time) {
	if ep.replyBudget.allowNextEvent(now, maxRepliesPerSecond) {
		ep.sendStateless(append([]byte{typeBusy, version}, k.id[:]...), k.from)
	}
}

// allBytesZero reports whether all bytes are zero.
func allBytesZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// createWelcome creates the connection that a HELLO asks for, and the WELCOME packet.
func (ep *Endpoint) createWelcome(hello []byte, k halfKey) (*Conn, []byte, error) {
	secret, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	c := newUnstartedConn(ep, randomConnID(), k.from)
	c.peerID, c.isServer = k.id, true
	w := append([]byte{typeWelcome, version}, k.id[:]...)
	w = append(w, c.id[:]...)
	w = append(w, secret.PublicKey().Bytes()...)
	keys, key, err := deriveKeys(secret, k.share[:], hello[:helloLen-addressTokenLen], w, false)
	if err != nil {
		return nil, nil, err
	}
	c.keys = keys
	token := ep.resetTokenFor(c.id)
	return c, key.sealWelcome(w, token[:]), nil
}

// confirmConn passes a half-open connection to Accept when its client has proved that it has the
// keys. The connection stays half open while the queue of Accept is full.
func (ep *Endpoint) confirmConn(c *Conn) {
	if c.confirmed {
		return
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for k, h := range ep.halfOpen {
		if h.conn != c || ep.isClosing {
			continue
		}
		select {
		case ep.accepted <- c:
			h.release()
			delete(ep.halfOpen, k)
			c.confirmed, c.running = true, true
			go c.runSendLoop()
		default:
		}
	}
}
