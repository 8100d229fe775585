package udp

import (
	"context"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"mpbond/fault"
)

// A HELLO is repeated after firstTry, later after longestTry at most.
const firstTry, longestTry = 200 * time.Millisecond, 3 * time.Second

// Dial connects to a server's HOST:PORT over a socket of its own. It tries all
// addresses of that name until ctx ends.
func Dial(ctx context.Context, addr string, opt Options) (*Conn, error) {
	host, p, err := net.SplitHostPort(addr)
	var port uint64
	if err == nil {
		port, err = strconv.ParseUint(p, 10, 16)
	}
	if err != nil {
		return nil, fault.New(fault.Config, fmt.Errorf("%s is no address: %w", addr, err), "write an address as HOST:PORT")
	}
	ips, err := new(net.Resolver).LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fault.New(fault.Unreachable, fmt.Errorf("resolving %s: %w", addr, err), "is the name right, and does this device have DNS?")
	}
	for i, ip := range ips {
		ip = ip.Unmap()
		to := netip.AddrPortFrom(ip, uint16(port))
		var ep *Endpoint
		if ep, err = openTowards(to, opt); err != nil {
			continue
		}
		one, cancel := ctx, context.CancelFunc(func() {})
		if left := len(ips) - i; left > 1 {
			one, cancel = share(ctx, left)
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

// noRoute explains why no address of this device leads somewhere.
func noRoute(err error) error {
	return fault.New(fault.Unreachable, err, "this device has no route there: is the network up?")
}

// share is ctx with the part of its time that one of so many tries has.
func share(ctx context.Context, tries int) (context.Context, context.CancelFunc) {
	t := 5 * time.Second
	if end, ok := ctx.Deadline(); ok {
		t = time.Until(end) / time.Duration(tries)
	}
	return context.WithTimeout(ctx, t)
}

// Dial connects from this endpoint's socket, until ctx ends.
func (ep *Endpoint) Dial(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	secret, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	id, answers := newID(), make(chan []byte, 4)
	ep.mu.Lock()
	over := ep.over
	ep.dialing[id] = answers
	ep.mu.Unlock()
	defer func() {
		ep.mu.Lock()
		delete(ep.dialing, id)
		ep.mu.Unlock()
	}()
	if over {
		return nil, net.ErrClosed
	}
	token := make([]byte, tokenLen)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for try := firstTry; ; {
		select {
		case <-ctx.Done():
			return nil, fault.New(fault.Unreachable, fmt.Errorf("%s does not answer over UDP: %w", to, ctx.Err()), "is its UDP port open, and not blocked by a firewall on the way?")
		case <-ep.closed:
			return nil, net.ErrClosed
		case <-timer.C:
			ep.reply(appendHello(nil, id, secret.PublicKey().Bytes(), token), to)
			timer.Reset(try)
			try = min(2*try, longestTry)
		case p := <-answers:
			if p[0] == typeRetry {
				if string(token) != string(p[2+idLen:retryLen]) {
					copy(token, p[2+idLen:])
					timer.Reset(0)
				}
				continue
			}
			hello := appendHello(nil, id, secret.PublicKey().Bytes(), token)
			k, key, err := exchange(secret, p[2+2*idLen:bareLen], hello[:helloLen-tokenLen], p[:bareLen], true)
			if err != nil || !hmac.Equal(proof(key, p[:bareLen]), p[bareLen:welcomeLen]) {
				continue // not of who received the HELLO
			}
			c := newConn(ep, id, to)
			c.keys = k
			copy(c.peer[:], p[2+idLen:])
			c.e.ping = true // confirms the connection
			return c, c.start()
		}
	}
}

// start makes a dialled connection run.
func (c *Conn) start() error {
	c.ep.mu.Lock()
	defer c.ep.mu.Unlock()
	if c.ep.over {
		return net.ErrClosed
	}
	c.ep.conns[c.local], c.running, c.confirmed = c, true, true
	go c.run()
	return nil
}

// hello answers who wants to connect.
func (ep *Endpoint) hello(p []byte, from netip.AddrPort) {
	k := halfKey{from: from}
	copy(k.id[:], p[2:])
	copy(k.share[:], p[2+idLen:])
	now := time.Now()
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if h := ep.half[k]; h != nil {
		ep.reply(h.welcome, from)
		return
	}
	for k, h := range ep.half {
		if now.Sub(h.since) > halfOpenFor {
			h.leave()
			delete(ep.half, k)
			delete(ep.conns, h.c.local)
		}
	}
	if ep.over || len(ep.conns) >= maxConns {
		return
	}
	gate, proved := ep.unproved, stamped(ep.secret, now, from.String(), p[helloLen-tokenLen:helloLen])
	if proved {
		gate = ep.proved
	}
	leave := gate.Admit(net.UDPAddrFromAddrPort(from))
	if leave == nil {
		if !proved {
			b := append([]byte{typeRetry, version}, k.id[:]...)
			ep.reply(append(b, stamp(ep.secret, now, from.String())...), from)
		}
		return
	}
	c, welcome, err := ep.welcome(p, k)
	if err != nil {
		leave()
		return
	}
	ep.half[k] = &halfOpen{c, welcome, now, leave}
	ep.conns[c.local] = c
	ep.reply(welcome, from)
}

// welcome makes the connection that a HELLO asks for, and its answer.
func (ep *Endpoint) welcome(hello []byte, k halfKey) (*Conn, []byte, error) {
	secret, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	c := newConn(ep, newID(), k.from)
	c.peer, c.follows = k.id, true
	w := append([]byte{typeWelcome, version}, k.id[:]...)
	w = append(w, c.local[:]...)
	w = append(w, secret.PublicKey().Bytes()...)
	keys, key, err := exchange(secret, k.share[:], hello[:helloLen-tokenLen], w, false)
	if err != nil {
		return nil, nil, err
	}
	c.keys = keys
	return c, append(w, proof(key, w)...), nil
}

// confirm hands a half-open connection to Accept once its client has shown that it
// has the keys. While nobody accepts, it stays half open.
func (ep *Endpoint) confirm(c *Conn) {
	if c.confirmed || !c.opened() {
		return
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for k, h := range ep.half {
		if h.c != c || ep.over {
			continue
		}
		select {
		case ep.accepted <- c:
			h.leave()
			delete(ep.half, k)
			c.confirmed, c.running = true, true
			go c.run()
		default:
		}
	}
}
