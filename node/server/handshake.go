package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/pipe"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/dial"
)

// pairing serves those that call to be paired, and closes their connections.
type pairing func(context.Context, net.Conn)

// handshakes makes subflows of connections. It bounds, by gate, how many callers are in a
// handshake at once, and closes those that say nothing within firstByte, break the protocol,
// or are not let in by join, which finds the bond of a device. A subflow is handed to attach,
// which owns it from then on, or is closed if that returns nil. Each handshake runs in a goroutine of tasks. Methods may be called by any goroutine; greet not
// after closeAll.
type handshakes struct {
	key       *identity.Key
	trust     *identity.Trust
	log       *slog.Logger
	gate      *tcp.Gate
	firstByte time.Duration // shorter in tests
	callers   *callerLog
	reports   *reportStore
	tasks     *sync.WaitGroup
	join      func(context.Context, bondKey, wire.Join) (*session, error)
	attach    func(sf *subflow.Subflow, id wire.BondID) *session

	mu    sync.Mutex
	conns map[net.Conn]bool // in a handshake
}

// acceptUDP makes subflows of what comes over UDP, until that is closed.
func (h *handshakes) acceptUDP(ctx context.Context, udp Listener, usage *device.Usage) {
	for {
		c, err := udp.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				h.log.Error("stopped serving subflows over UDP", "err", err, "hint", "they go over TCP now; start the server anew")
			}
			return
		}
		h.greet(ctx, dial.Count(c, usage, policy.ForSubflow), nil)
	}
}

// greet begins the handshake of a connection, in the place of another one if there is
// no other. Pair, if not nil, serves those that call to be paired.
func (h *handshakes) greet(ctx context.Context, c dial.Conn, pair pairing) {
	h.callers.noteCall(c.RemoteAddr(), time.Now())
	v := h.gate.Enter(c.RemoteAddr(), func() { _ = c.Abort() })
	if v == nil {
		h.callers.logCrowd(c)
		_ = c.Abort()
		return
	}
	h.tasks.Go(func() {
		defer v.Leave()
		h.serve(ctx, c, v, pair)
	})
}

// closeAll ends the handshakes that are under way.
func (h *handshakes) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		c.Close()
	}
}

// logForged logs a report or limit of a helper that has no effect.
func (h *handshakes) logForged(b *session, j wire.Join, from net.Addr, why error) {
	h.callers.lines.Log(slog.LevelWarn, "forged report", "report of a helper ignored: "+why.Error(), "device", nameOf(h.trust, b), "path", j.Path, "by", j.Device, "from", from,
		"hint", "somebody between that helper and this server changes what it reports; data are safe, and flow without reports")
}

// serve turns a connection into a subflow of a bond, or drops it.
func (h *handshakes) serve(ctx context.Context, c dial.Conn, v *tcp.Visit, pair pairing) {
	h.mu.Lock()
	h.conns[c] = true
	h.mu.Unlock()
	sf, j, err := h.accept(ctx, c, v, pair)
	h.mu.Lock()
	delete(h.conns, c)
	h.mu.Unlock()
	if err != nil {
		h.callers.noteFailure(ctx, c, err, v.Evicted())
		c.Close()
		return
	}
	if sf == nil { // it called to be paired
		return
	}
	b := h.attach(sf, j.Bond)
	if b == nil {
		sf.Close()
		return
	}
	h.callers.refused.Forget(sf.Peer.String(), true)
	h.log.Info("subflow joined", "device", nameOf(h.trust, b), "path", sf.Path, "by", sf.Device, "helped", sf.Helped, "from", c.RemoteAddr(), "over", c.LocalAddr().Network())
}

// accept makes a subflow of a connection; nil if it was for pairing, or left a report.
func (h *handshakes) accept(ctx context.Context, c dial.Conn, v *tcp.Visit, pair pairing) (*subflow.Subflow, wire.Join, error) {
	_ = c.SetDeadline(time.Now().Add(h.firstByte))
	first, err := c.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fault.New(fault.Timeout, fmt.Errorf("nothing came within %v", h.firstByte), "only mpbond's own devices should connect here")
	}
	if err != nil {
		return nil, wire.Join{}, err
	}
	_ = c.SetDeadline(time.Time{})
	if wire.Type(first[0]) == wire.TypePair && pair != nil {
		if !v.Spoke() {
			return nil, wire.Join{}, errCrowd
		}
		pair(ctx, c)
		return nil, wire.Join{}, nil
	}
	var t subflow.Transport = c
	var link *pipe.HSPath
	if wire.Type(first[0]) == wire.TypeHello {
		if link, _, err = pipe.AcceptHS(ctx, c); err != nil {
			return nil, wire.Join{}, err
		}
		if err := c.SetKeepAlive(dial.RadioKeepAlive(c)); err != nil {
			return nil, wire.Join{}, err
		}
		t = link
		left := h.reports.take(link, v)
		sf, j, err := h.subflow(ctx, c, v, t, link)
		if err != nil && left() { // all that it came for
			c.Close()
			return nil, j, nil
		}
		return sf, j, err
	}
	return h.subflow(ctx, c, v, t, link)
}

// subflow makes one over t, which ends at c or, if it is helped, at a helper.
func (h *handshakes) subflow(ctx context.Context, c dial.Conn, v *tcp.Visit, t subflow.Transport, link *pipe.HSPath) (*subflow.Subflow, wire.Join, error) {
	cfg := identity.OnHello(h.key.Server(wire.ALPN, h.trust.Allowed(identity.RolePrimary)), func() error {
		if !v.Spoke() {
			return errCrowd
		}
		return nil
	})
	sf, j, err := subflow.Accept(ctx, t, cfg, func(peer identity.PublicKey, j wire.Join) (wire.OK, error) {
		if j.Helped != (link != nil) {
			return wire.OK{}, wire.Refuse{Code: wire.CodeMalformed, Text: "a helped subflow must come over a helper, and only that"}
		}
		if !v.Prove() {
			return wire.OK{}, errCrowd
		}
		b, err := h.join(ctx, bondKey{peer, j.Bond}, j)
		if err != nil {
			return wire.OK{}, err
		}
		if b == nil {
			return wire.OK{Instance: randomInstance()}, nil
		}
		c.For(peer.ID().String())
		if link == nil && j.Terms.Radio == wire.RadioCellular { // as the primary does
			if err := c.SetKeepAlive(dial.RadioKeepAlive(c)); err != nil {
				return wire.OK{}, err
			}
		}
		if link != nil {
			link.OnState(func(st wire.HopState) { b.e.Remote(j.Path, st) })
			err := link.Authenticate(j.Key, func(why error) { h.logForged(b, j, c.RemoteAddr(), why) })
			if err != nil {
				return wire.OK{}, err
			}
		}
		return wire.OK{Instance: b.instance}, nil
	})
	return sf, j, err
}
