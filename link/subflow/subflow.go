// SPDX-License-Identifier: Apache-2.0

// Package subflow implements one end-to-end connection of a bond: TLS 1.3 between primary and
// server over one transport, the MP_JOIN handshake, and frames in both directions. Above it, the
// goroutines of package endpoint read and write it. Below it are the transports: package tcp for a
// direct subflow, package pipe for a helped one. The transport is the only difference between the
// two.
package subflow

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/link/congestion"
	"mpbond/link/estimate"
	"mpbond/link/tcpinfo"
	"mpbond/link/wire"
)

// Transport is a reliable ordered connection with a sending hop that can be observed. One goroutine
// calls Write, WaitWritable, Cork and Flush, another one Read, any one Probe and Close.
type Transport interface {
	net.Conn
	// WaitWritable blocks until a segment written now would leave soon.
	WaitWritable() error
	// Probe returns the state of the sending hop.
	Probe() (estimate.Hop, error)
	// Cork makes writes accumulate until Flush.
	Cork()
	Flush() error
}

// HandshakeTimeout bounds TLS and MP_JOIN together.
const HandshakeTimeout = 10 * time.Second

// Subflow is a joined subflow.
type Subflow struct {
	ID     wire.SubflowID
	Helped bool
	Device string // the device that carries it, for display
	// Terms are its costs. Terms.Rate is the rate that it once carried away from this end.
	Terms wire.Terms
	Peer  identity.PublicKey // key of the far end, as proved by TLS
	// RTT is the end-to-end round trip of MP_JOIN and MP_OK. It is 0 at the server, which cannot
	// measure it.
	RTT time.Duration

	transport    Transport
	tls          *tls.Conn
	r            *wire.Reader
	notSentLowat unit.Bytes
}

// Join makes a subflow over t as the primary. It owns t from now on. A refusal by the server is a
// fault that wraps a wire.Refuse.
func Join(ctx context.Context, t Transport, cfg *tls.Config, j wire.Join) (*Subflow, wire.OK, error) {
	s := &Subflow{ID: j.Subflow, Helped: j.Helped, Device: j.Device, Terms: j.Terms, transport: t,
		tls: tls.Client(t, cfg)}
	var ok wire.OK
	err := s.runHandshake(ctx, func() error {
		sentAt := time.Now()
		_, unsent := s.tls.Write(wire.Append(nil, j))
		// The server may have refused our key and hung up already: its reason can still be read.
		typ, payload, err := s.r.Next()
		if unsent != nil && !fault.Is(identity.ExplainTLS(err), fault.UnknownDevice) {
			return unsent
		}
		if err != nil {
			return explainEnd(err)
		}
		switch typ {
		case wire.TypeOK:
			s.RTT = time.Since(sentAt)
			ok, err = wire.ParseOK(payload)
			return err
		case wire.TypeRefuse:
			f, err := wire.ParseRefuse(payload)
			if err != nil {
				return err
			}
			return explainRefusal(f)
		}
		return wrongFrameError(typ)
	})
	if err != nil {
		return nil, ok, fmt.Errorf("joining the server: %w", err)
	}
	return s, ok, nil
}

// Accept makes a subflow over t as the server. It owns t from now on. authorize gets the device's
// key and its request, and returns MP_OK, or a REFUSE as its error.
func Accept(ctx context.Context, t Transport, cfg *tls.Config, authorize func(identity.PublicKey,
	wire.Join) (wire.OK, error)) (*Subflow, wire.Join, error) {
	s := &Subflow{transport: t, tls: tls.Server(t, cfg)}
	var j wire.Join
	err := s.runHandshake(ctx, func() error {
		typ, payload, err := s.r.Next()
		if errors.Is(err, wire.ErrMalformed) {
			return s.refuseHandshake(wire.Refuse{Code: wire.CodeMalformed, Text: err.Error()})
		}
		if err != nil {
			return explainEnd(err)
		}
		if typ != wire.TypeJoin {
			return s.refuseHandshake(wire.Refuse{Code: wire.CodeMalformed, Text: wrongFrameError(typ).Error()})
		}
		if j, err = wire.ParseJoin(payload); err != nil {
			return s.refuseHandshake(wire.Refuse{Code: wire.CodeMalformed, Text: err.Error()})
		}
		if j.Version != wire.Version {
			_ = s.refuseHandshake(wire.Refuse{Code: wire.CodeVersion, Version: wire.Version,
				Text: fmt.Sprintf("this server speaks protocol version %d, the device version %d", wire.Version,
					j.Version)})
			return fault.New(fault.Protocol, wire.VersionMismatch{Peer: "device", Here: wire.Version,
				There: j.Version}, hintUpdate)
		}
		s.ID, s.Helped, s.Device, s.Terms = j.Subflow, j.Helped, j.Device, j.Terms
		ok, err := authorize(s.Peer, j)
		if err != nil {
			r := wire.Refuse{Code: wire.CodeInternal, Text: err.Error()}
			errors.As(err, &r)
			return s.refuseHandshake(r)
		}
		_, err = s.tls.Write(wire.Append(nil, ok))
		return err
	})
	if err != nil && s.Peer != (identity.PublicKey{}) {
		err = &identity.PeerError{Peer: s.Peer, Err: err}
	}
	if err != nil {
		return nil, j, err
	}
	return s, j, nil
}

// runHandshake runs TLS and then f, both within HandshakeTimeout and ctx.
func (s *Subflow) runHandshake(ctx context.Context, f func() error) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.transport.Close() })
	err := s.tls.HandshakeContext(ctx)
	if err == nil {
		s.Peer, err = identity.PeerKey(s.tls.ConnectionState())
	}
	if err == nil {
		s.r = wire.NewReader(s.tls)
		err = f()
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	s.transport.Close()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.Timeout, fmt.Errorf("no answer within %v", time.Since(began).Round(time.Second)),
			"check that mpbond runs there and that the link works")
	}
	return identity.ExplainTLS(err)
}

const hintUpdate = "install the same release of mpbond on all devices"

func (s *Subflow) refuseHandshake(r wire.Refuse) error {
	_, _ = s.tls.Write(wire.Append(nil, r)) // the subflow ends in any case
	_ = s.tls.CloseWrite()
	return explainRefusal(r)
}

// explainRefusal adds to a server's refusal what the user can do.
func explainRefusal(r wire.Refuse) error {
	switch r.Code {
	case wire.CodeVersion:
		return fault.New(fault.Protocol, r, hintUpdate)
	case wire.CodeUnknown:
		return fault.New(fault.UnknownDevice, r,
			"pair this device with the server: `mpbond accept` there, `mpbond pair CODE` here")
	case wire.CodeLimit:
		return fault.New(fault.Limit, r,
			"the server's owner can raise max_subflows and max_bonds, or give it more memory and open files")
	case wire.CodeMalformed:
		return fault.New(fault.Protocol, r, hintUpdate)
	}
	return r
}

// explainEnd makes the end of the connection during the handshake a fault.
func explainEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return fault.New(fault.Protocol, errors.New("the other end closed the connection"), "its log shows the reason")
	}
	return err
}

func wrongFrameError(t wire.Type) error {
	return fmt.Errorf("%v during the handshake: %w", t, wire.ErrMalformed)
}

// Next returns the next frame; see wire.Reader.Next.
func (s *Subflow) Next() (wire.Type, []byte, error) {
	t, p, err := s.r.Next()
	if errors.Is(err, wire.ErrMalformed) {
		err = fault.New(fault.Protocol, err, hintUpdate)
	}
	return t, p, identity.ExplainTLS(err)
}

// Buffered reports whether Next returns without reading the network.
func (s *Subflow) Buffered() bool { return s.r.Buffered() }

// WaitWritable blocks until the sending hop has room for a segment.
func (s *Subflow) WaitWritable() error { return s.transport.WaitWritable() }

// Write sends a segment in one system call, if the kernel takes it whole.
func (s *Subflow) Write(segment []byte) error {
	if len(segment) <= maxTLSRecord {
		_, err := s.tls.Write(segment)
		return err
	}
	s.transport.Cork()
	if _, err := s.tls.Write(segment); err != nil {
		return err
	}
	return s.transport.Flush()
}

const maxTLSRecord = 16 << 10 // RFC 8446 section 5.1

// Probe returns the state of the sending hop, and adapts the limit of unsent bytes there to about
// two milliseconds of its rate. So the writer wakes in time on a fast link, and on a slow one each
// segment is decided as late as possible.
func (s *Subflow) Probe() (estimate.Hop, error) {
	h, err := s.transport.Probe()
	if l, ok := s.transport.(interface{ SetNotSentLowat(unit.Bytes) error }); ok && err == nil {
		if mark, changed := tcpinfo.AdaptLowat(s.notSentLowat, h.Rate); changed {
			s.notSentLowat = mark
			if err := l.SetNotSentLowat(mark); err != nil {
				return h, err
			}
		}
	}
	return h, err
}

// CongestionChoice returns the congestion control that the sending hop has led to; ok is false if
// it is not chosen by the hop.
func (s *Subflow) CongestionChoice() (choice congestion.Choice, ok bool) {
	if t, chooses := s.transport.(congestion.Chooser); chooses {
		return t.CongestionChoice()
	}
	return choice, false
}

// RejectedReports returns how many reports of the helper were forged or repeated; see
// pipe.HSPath.Rejected.
func (s *Subflow) RejectedReports() uint64 {
	if l, ok := s.transport.(interface{ Rejected() uint64 }); ok {
		return l.Rejected()
	}
	return 0
}

// Close ends the subflow at once. It sends no TLS close alert, because the bond's frames show which
// streams are complete.
func (s *Subflow) Close() error { return s.transport.Close() }

// RemoteAddr returns the far end of the transport.
func (s *Subflow) RemoteAddr() net.Addr { return s.transport.RemoteAddr() }

// LocalAddr returns our address on the hop that begins here.
func (s *Subflow) LocalAddr() net.Addr { return s.transport.LocalAddr() }
