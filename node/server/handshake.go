// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
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

// pairHandler serves connections for pairing and closes them.
type pairHandler func(context.Context, net.Conn)

// handshakes turns connections into subflows. admission bounds the number of handshakes. It closes
// connections that are silent for firstByteTimeout, break the protocol, or are refused by join,
// which finds the bond of a device. attach gets and owns each subflow; if it returns nil, the
// subflow is closed. Each handshake runs in a goroutine of tasks. Safe for concurrent use;
// startHandshake must not be called after closeConns.
type handshakes struct {
	key              *identity.Key
	trust            Devices
	log              *slog.Logger
	admission        *tcp.AdmissionLimit
	firstByteTimeout time.Duration // shorter in tests
	callers          *callerLog
	reports          *reportStore
	tasks            *sync.WaitGroup
	join             func(context.Context, bondKey, wire.Join) (*session, error)
	attach           func(sf *subflow.Subflow, id wire.BondID) *session

	mu    sync.Mutex
	conns map[net.Conn]bool // in a handshake
}

// acceptUDPSubflows accepts subflows over UDP until the listener is closed.
func (h *handshakes) acceptUDPSubflows(ctx context.Context, udp Listener, usage *device.Usage) {
	for {
		c, err := udp.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				h.log.Error(
					"stopped accepting subflows over UDP", "err", err, "hint", "they use TCP now; restart the server",
				)
			}
			return
		}
		h.startHandshake(ctx, dial.Count(c, usage, policy.ForSubflow), nil)
	}
}

// startHandshake starts the handshake of a connection. If there are too many, it evicts another
// one. pair, if not nil, serves connections for pairing.
func (h *handshakes) startHandshake(ctx context.Context, c dial.Conn, pair pairHandler) {
	h.callers.countServerCall(c.RemoteAddr(), time.Now())
	visit := h.admission.AdmitEvicting(c.RemoteAddr(), func() { _ = c.Abort() })
	if visit == nil {
		h.callers.logTooMany(c)
		_ = c.Abort()
		return
	}
	h.tasks.Go(func() {
		defer visit.Release()
		h.handleConn(ctx, c, visit, pair)
	})
}

// closeConns closes all connections in a handshake.
func (h *handshakes) closeConns() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		c.Close()
	}
}

// logForgedReport logs a forged report or limit of a helper, which has no effect.
func (h *handshakes) logForgedReport(b *session, j wire.Join, from net.Addr, why error) {
	h.callers.limitedLog.Log(slog.LevelWarn, "forged report", "report of a helper ignored: "+why.Error(),
		"device", currentDeviceName(h.trust, b), "subflow", j.Subflow, "by", j.Device, "from", from,
		"hint", "something between the helper and this server alters its reports; "+
			"the data is safe and flows without them")
}

// handleConn turns a connection into a subflow of a bond, or closes it.
func (h *handshakes) handleConn(ctx context.Context, c dial.Conn, visit *tcp.Slot, pair pairHandler) {
	h.mu.Lock()
	h.conns[c] = true
	h.mu.Unlock()
	sf, j, err := h.acceptConn(ctx, c, visit, pair)
	h.mu.Lock()
	delete(h.conns, c)
	h.mu.Unlock()
	if err == errNothingSent {
		c.Close()
		return
	}
	if err != nil {
		h.callers.logFailure(ctx, c, err, visit.IsEvicted())
		c.Close()
		return
	}
	if sf == nil { // the connection was for pairing
		return
	}
	b := h.attach(sf, j.Bond)
	if b == nil {
		sf.Close()
		return
	}
	h.callers.refused.Forget(sf.Peer.String(), true)
	h.callers.forDevice(sf.Peer).Info("subflow joined", "device", currentDeviceName(h.trust, b), "subflow", sf.ID,
		"by", sf.Device,
		"helped", sf.Helped, "from", c.RemoteAddr(), "over", c.LocalAddr().Network())
}

// errNothingSent means that a caller hung up at once: it measured the handshake, as primaries of a fleet do, or
// scanned ports.
var errNothingSent = errors.New("the caller sent nothing")

// acceptConn makes a subflow of a connection. It returns nil if the connection was for pairing or
// left a report.
func (h *handshakes) acceptConn(
	ctx context.Context,
	c dial.Conn,
	visit *tcp.Slot,
	pair pairHandler,
) (*subflow.Subflow, wire.Join, error) {
	_ = c.SetDeadline(time.Now().Add(h.firstByteTimeout))
	first, err := c.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fault.New(
			fault.Timeout,
			fmt.Errorf("nothing received within %v", h.firstByteTimeout),
			"only devices that run mpbond should connect here",
		)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		err = errNothingSent
	}
	if err != nil {
		return nil, wire.Join{}, err
	}
	_ = c.SetDeadline(time.Time{})
	if wire.Type(first[0]) == wire.TypePair && pair != nil {
		if !visit.AwaitTurn() {
			return nil, wire.Join{}, errTooManyHandshakes
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
		left := h.reports.acceptReport(link, visit)
		sf, j, err := h.acceptSubflow(ctx, c, visit, t, link)
		if err != nil && left() { // the report was all it came for
			c.Close()
			return nil, j, nil
		}
		return sf, j, err
	}
	return h.acceptSubflow(ctx, c, visit, t, link)
}

// acceptSubflow accepts a subflow over t, which ends at c or, if helped, at a helper.
func (h *handshakes) acceptSubflow(
	ctx context.Context,
	c dial.Conn,
	visit *tcp.Slot,
	t subflow.Transport,
	link *pipe.HSPath,
) (*subflow.Subflow, wire.Join, error) {
	cfg := identity.OnHello(h.key.ServerConfig(wire.ALPN, h.trust.Allowed(identity.RolePrimary)), func() error {
		if !visit.AwaitTurn() {
			return errTooManyHandshakes
		}
		return nil
	})
	sf, j, err := subflow.Accept(ctx, t, cfg, func(peer identity.PublicKey, j wire.Join) (wire.OK, error) {
		if j.Helped != (link != nil) {
			return wire.OK{}, wire.Refuse{
				Code: wire.CodeMalformed,
				Text: "a helped subflow must come over a helper, and a direct one must not",
			}
		}
		if !visit.MarkProvedBy(peer.ID().String()) {
			return wire.OK{}, errTooManyHandshakes
		}
		b, err := h.join(ctx, bondKey{peer, j.Bond}, j)
		if err != nil {
			return wire.OK{}, err
		}
		if b == nil {
			return wire.OK{Instance: randomInstance()}, nil
		}
		c.SetPeerName(peer.ID().String())
		if link == nil && j.Terms.Radio == wire.RadioCellular { // the primary does the same
			if err := c.SetKeepAlive(dial.RadioKeepAlive(c)); err != nil {
				return wire.OK{}, err
			}
		}
		if link != nil {
			link.OnState(func(st wire.HopState) { b.endpoint.ApplyRemoteHop(j.Subflow, st) })
			err := link.Authenticate(j.Key, func(why error) { h.logForgedReport(b, j, c.RemoteAddr(), why) })
			if err != nil {
				return wire.OK{}, err
			}
		}
		return wire.OK{Instance: b.instance}, nil
	})
	return sf, j, err
}
