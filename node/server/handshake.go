package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/control/policy"
	"mpbond/link/pipe"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/dial"
)

// acceptUDP makes subflows of what comes over UDP, until that is closed.
func (s *Server) acceptUDP(ctx context.Context) {
	for {
		c, err := s.udp.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.log.Error("stopped serving subflows over UDP", "err", err, "hint", "they go over TCP now; start the server anew")
			}
			return
		}
		s.greet(ctx, dial.Count(c, s.cfg.Usage, policy.ForSubflow), nil)
	}
}

// greet begins the handshake of a connection, in the place of another one if there is
// no other. Pair, if not nil, serves those that call to be paired.
func (s *Server) greet(ctx context.Context, c dial.Conn, pair func(context.Context, net.Conn)) {
	s.callers.noteCall(c.RemoteAddr(), time.Now())
	v := s.gate.Enter(c.RemoteAddr(), func() { _ = c.Abort() })
	if v == nil {
		s.callers.logCrowd(c)
		_ = c.Abort()
		return
	}
	s.wg.Go(func() {
		defer v.Leave()
		s.handshake(ctx, c, v, pair)
	})
}

// logForged logs a report or limit of a helper that has no effect.
func (s *Server) logForged(b *session, j wire.Join, from net.Addr, why error) {
	s.callers.lines.Log(slog.LevelWarn, "forged report", "report of a helper ignored: "+why.Error(), "device", s.nameOf(b), "path", j.Path, "by", j.Device, "from", from,
		"hint", "somebody between that helper and this server changes what it reports; data are safe, and flow without reports")
}

// handshake turns a connection into a subflow of a bond, or drops it.
func (s *Server) handshake(ctx context.Context, c dial.Conn, v *tcp.Visit, pair func(context.Context, net.Conn)) {
	s.mu.Lock()
	s.conns[c] = true
	s.mu.Unlock()
	sf, j, err := s.accept(ctx, c, v, pair)
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	if err != nil {
		s.callers.noteFailure(ctx, c, err, v.Evicted())
		c.Close()
		return
	}
	if sf == nil { // it called to be paired
		return
	}
	b := s.attach(sf, j.Bond)
	if b == nil {
		sf.Close()
		return
	}
	s.callers.refused.Forget(sf.Peer.String(), true)
	s.log.Info("subflow joined", "device", s.nameOf(b), "path", sf.Path, "by", sf.Device, "helped", sf.Helped, "from", c.RemoteAddr(), "over", c.LocalAddr().Network())
}

// attach puts a subflow to use in its bond; nil if there is none any more, or
// if others that joined at the same time have filled it.
func (s *Server) attach(sf *subflow.Subflow, id wire.BondID) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bonds[bondKey{sf.Peer, id}]
	if b == nil || b.e.Subflows() >= s.cfg.MaxSubflows || b.e.Attach(sf) != nil {
		return nil
	}
	return b
}

// accept makes a subflow of a connection; nil if it was for pairing, or left a report.
func (s *Server) accept(ctx context.Context, c dial.Conn, v *tcp.Visit, pair func(context.Context, net.Conn)) (*subflow.Subflow, wire.Join, error) {
	_ = c.SetDeadline(time.Now().Add(s.firstByte))
	first, err := c.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fault.New(fault.Timeout, fmt.Errorf("nothing came within %v", s.firstByte), "only mpbond's own devices should connect here")
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
		left := s.reports.take(link, v)
		sf, j, err := s.subflow(ctx, c, v, t, link)
		if err != nil && left() { // all that it came for
			c.Close()
			return nil, j, nil
		}
		return sf, j, err
	}
	return s.subflow(ctx, c, v, t, link)
}

// subflow makes one over t, which ends at c or, if it is helped, at a helper.
func (s *Server) subflow(ctx context.Context, c dial.Conn, v *tcp.Visit, t subflow.Transport, link *pipe.HSPath) (*subflow.Subflow, wire.Join, error) {
	cfg := identity.OnHello(s.key.Server(wire.ALPN, s.trust.Allowed(identity.RolePrimary)), func() error {
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
		b, err := s.join(ctx, bondKey{peer, j.Bond}, j)
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
			err := link.Authenticate(j.Key, func(why error) { s.logForged(b, j, c.RemoteAddr(), why) })
			if err != nil {
				return wire.OK{}, err
			}
		}
		return wire.OK{Instance: b.instance}, nil
	})
	return sf, j, err
}
