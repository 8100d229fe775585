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

// A HELLO is repeated after firstTry, each time in turn after twice as long, longestTry
// at most.
const firstTry, longestTry = 100 * time.Millisecond, 3 * time.Second

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
	token, asked, prompt, busy := make([]byte, tokenLen), false, false, false
	timer := time.NewTimer(0)
	defer timer.Stop()
	var repeat backoff.Backoff
	for {
		select {
		case <-ctx.Done():
			if busy {
				return nil, fault.New(fault.Unreachable, fmt.Errorf("%s has no room for another connection: %w", to, ctx.Err()), "try again later")
			}
			return nil, fault.New(fault.Unreachable, fmt.Errorf("%s does not answer over UDP: %w", to, ctx.Err()), "is its UDP port open, and not blocked by a firewall on the way?")
		case <-ep.closed:
			return nil, net.ErrClosed
		case <-timer.C:
			ep.reply(appendHello(nil, id, secret.PublicKey().Bytes(), token), to)
			timer.Reset(repeat.Double(firstTry, longestTry))
			asked, prompt = prompt, false
		case p := <-answers:
			switch p[0] {
			case typeBusy:
				busy = true
				continue
			case typeRetry:
				// One at once, as who sees the HELLO can make them; others wait their time.
				if string(token) != string(p[2+idLen:retryLen]) {
					copy(token, p[2+idLen:])
					if !asked {
						timer.Reset(0)
						prompt = true
					}
					asked = true
				}
				continue
			}
			hello := appendHello(nil, id, secret.PublicKey().Bytes(), token)
			k, key, err := exchange(secret, p[2+2*idLen:bareLen], hello[:helloLen-tokenLen], p[:bareLen], true)
			if err != nil {
				continue
			}
			reset, ok := key.open(p)
			if !ok {
				continue
			}
			c := newConn(ep, id, to)
			c.keys, c.reset = k, reset
			copy(c.peer[:], p[2+idLen:])
			c.e.ping = true // confirms the connection
			return c, ep.start(c)
		}
	}
}

// start makes a dialled connection run.
func (ep *Endpoint) start(c *Conn) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.over {
		return net.ErrClosed
	}
	c.running, c.confirmed = true, true
	ep.take(c)
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
	if ep.over {
		return
	}
	if now.Sub(ep.swept) > halfOpenFor/20 { // not for each of a flood
		ep.swept = now
		for k, h := range ep.half {
			if now.Sub(h.since) > halfOpenFor {
				h.leave()
				delete(ep.half, k)
				delete(ep.conns, h.c.id)
			}
		}
	}
	if len(ep.conns) >= maxConns {
		ep.busy(k, now)
		return
	}
	token := p[helloLen-tokenLen : helloLen]
	gate, proved := ep.unproved, !allZero(token) && stamped(ep.secret, now, from.String(), token)
	if proved {
		gate = ep.proved
	}
	leave := gate.Admit(net.UDPAddrFromAddrPort(from))
	if leave == nil {
		if proved {
			ep.busy(k, now)
		} else if ep.answers.take(now, maxAnswers) {
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
	ep.conns[c.id] = c
	ep.reply(welcome, from)
}

// busy answers a HELLO for which there is no room.
func (ep *Endpoint) busy(k halfKey, now time.Time) {
	if ep.answers.take(now, maxAnswers) {
		ep.reply(append([]byte{typeBusy, version}, k.id[:]...), k.from)
	}
}

func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
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
	w = append(w, c.id[:]...)
	w = append(w, secret.PublicKey().Bytes()...)
	keys, key, err := exchange(secret, k.share[:], hello[:helloLen-tokenLen], w, false)
	if err != nil {
		return nil, nil, err
	}
	c.keys = keys
	token := ep.resetOf(c.id)
	return c, key.end(w, token[:]), nil
}

// confirm hands a half-open connection to Accept once its client has shown that it
// has the keys. While nobody accepts, it stays half open.
func (ep *Endpoint) confirm(c *Conn) {
	if c.confirmed {
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
