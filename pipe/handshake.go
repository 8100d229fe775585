package pipe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"mpbond/fault"
	"mpbond/identity"
	"mpbond/wire"
)

// Time-outs.
const (
	// HandshakeTimeout bounds TLS and HELLO together: a caller that connects
	// and says nothing is not waited for.
	HandshakeTimeout = 5 * time.Second
	// JoinTimeout bounds INIT_MP_JOIN: the helper needs up to
	// HandshakeTimeout to reach the server.
	JoinTimeout = 2 * HandshakeTimeout
)

const hintUpdate = "install the same release of mpbond on both devices"

// within runs f and closes c if that takes longer than ctx or d, or fails.
func within(ctx context.Context, d time.Duration, c io.Closer, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	err := f(ctx)
	if !stop() {
		err = ctx.Err() // c is closed: f's error is only a consequence
	}
	if err == nil {
		return nil
	}
	c.Close()
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.Timeout, fmt.Errorf("no answer within %v", d), "is mpbond running there, and is the link good?")
	}
	return identity.Explain(err)
}

// expect reads the next frame, which must be of type t. A refusal becomes a
// fault that wraps the wire.Refuse.
func expect(r *wire.Reader, t wire.Type) ([]byte, error) {
	got, payload, err := r.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fault.New(fault.Protocol, errors.New("the other end hung up"), "its log says why")
	case errors.Is(err, wire.ErrMalformed):
		return nil, notMpbond(err)
	case err != nil:
		return nil, err
	case got == t:
		return payload, nil
	case got == wire.TypeRefuse:
		f, err := wire.ParseRefuse(payload)
		if err != nil {
			return nil, err
		}
		return nil, explain(f)
	}
	return nil, notMpbond(unexpected(got))
}

func notMpbond(err error) error {
	return fault.New(fault.Protocol, err, "check address and port: something else than mpbond seems to be there")
}

// explain makes a refusal a fault.
func explain(f wire.Refuse) error {
	switch f.Code {
	case wire.CodeVersion:
		return fault.New(fault.Protocol, f, hintUpdate)
	case wire.CodeUnknown, wire.CodeForbidden:
		return fault.New(fault.UnknownDevice, f, "")
	case wire.CodeUnreachable, wire.CodeConnRefused, wire.CodeNameNotFound:
		return fault.New(fault.Unreachable, f, "")
	case wire.CodeTimeout:
		return fault.New(fault.Timeout, f, "")
	case wire.CodeLimit:
		return fault.New(fault.Limit, f, "")
	}
	return fault.New(fault.Protocol, f, "")
}

// readHello reads a HELLO from r and answers one of another version on w.
func readHello(r *wire.Reader, w io.Writer) (name string, err error) {
	payload, err := expect(r, wire.TypeHello)
	if err != nil {
		return "", err
	}
	h, err := wire.ParseHello(payload)
	if err != nil {
		return "", notMpbond(err)
	}
	if h.Version != wire.Version {
		err := fmt.Errorf("the helper speaks protocol version %d, this device version %d", h.Version, wire.Version)
		_, _ = w.Write(wire.Append(nil, wire.Refuse{Code: wire.CodeVersion, Version: wire.Version,
			Text: fmt.Sprintf("%v: %s", err, hintUpdate)}))
		return "", fault.New(fault.Protocol, err, hintUpdate)
	}
	return h.Name, nil
}

// Waiting is the primary's end of a pipe that no subflow uses yet. Its methods
// may be called by any goroutine.
type Waiting struct {
	hop  Conn
	tls  *tls.Conn
	r    *wire.Reader
	peer identity.PublicKey
	name string

	answer chan error // nil for the INIT_MP_OK that came, or why none did
	done   chan struct{}

	mu    sync.Mutex // guards below
	ended bool       // done is closed
	err   error
}

// Accept makes a pipe of a connection that a helper has made. Cfg is of
// identity.Key.Server with wire.PipeALPN. Accept owns conn from now on. It
// fails after HandshakeTimeout; its errors are faults.
func Accept(ctx context.Context, conn Conn, cfg *tls.Config) (*Waiting, error) {
	w := &Waiting{hop: conn, tls: tls.Server(conn, cfg), answer: make(chan error, 1), done: make(chan struct{})}
	err := within(ctx, HandshakeTimeout, conn, func(ctx context.Context) (err error) {
		if err := w.tls.HandshakeContext(ctx); err != nil {
			return err
		}
		if w.peer, err = identity.PeerKey(w.tls.ConnectionState()); err != nil {
			return err
		}
		w.r = wire.NewReader(w.tls)
		w.name, err = readHello(w.r, w.tls)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pipe from %v: %w", conn.RemoteAddr(), err)
	}
	go w.watch()
	return w, nil
}

// watch reads the one frame that a waiting pipe may get, so that a break is
// noticed while nobody asks anything of it.
func (w *Waiting) watch() {
	_, err := expect(w.r, wire.TypeInitOK)
	w.mu.Lock()
	if err == nil && !w.ended {
		err = notMpbond(unexpected(wire.TypeInitOK)) // nobody asked
	}
	err = identity.Explain(err)
	if err != nil {
		w.end(err)
	}
	w.mu.Unlock()
	if err != nil {
		w.tls.Close()
	}
	w.answer <- err
}

// end closes done. It is called with mu held.
func (w *Waiting) end(err error) {
	if !w.ended {
		w.ended, w.err = true, err
		close(w.done)
	}
}

// Peer is the helper, as TLS proved it.
func (w *Waiting) Peer() identity.PublicKey { return w.peer }

// Name is what the helper calls itself: for display, not for trust.
func (w *Waiting) Name() string { return w.name }

// RemoteAddr is the helper's address on this pipe.
func (w *Waiting) RemoteAddr() net.Addr { return w.hop.RemoteAddr() }

// Done is closed when the pipe no longer waits: it broke, was closed, or Join
// has begun to use it. Err then tells which.
func (w *Waiting) Done() <-chan struct{} { return w.done }

// Err is why the pipe broke, net.ErrClosed after Close, and nil while it waits
// and when Join has taken it.
func (w *Waiting) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close hangs up, unless Join has taken the pipe: who joined ends by its
// context or closes the Link.
func (w *Waiting) Close() error {
	w.mu.Lock()
	ended := w.ended
	w.end(net.ErrClosed)
	w.mu.Unlock()
	if ended {
		return nil
	}
	return w.tls.Close()
}

// Join asks the helper to connect the pipe to server, "host:port". It can be
// called once; when it fails the pipe is closed. It takes at most JoinTimeout.
// A refusal is a fault that wraps the wire.Refuse.
func (w *Waiting) Join(ctx context.Context, server string) (*Link, error) {
	w.mu.Lock()
	if w.ended {
		err := w.err
		w.mu.Unlock()
		if err == nil {
			err = errors.New("it is in use already")
		}
		return nil, fmt.Errorf("joining by %s: %w", w.name, err)
	}
	w.end(nil)
	w.mu.Unlock()
	err := within(ctx, JoinTimeout, w.hop, func(context.Context) error {
		if _, err := w.tls.Write(wire.Append(nil, wire.InitJoin{Server: server})); err != nil {
			return err
		}
		return <-w.answer // comes at the latest when the pipe is closed
	})
	if err != nil {
		return nil, fmt.Errorf("joining by %s: %w", w.name, err)
	}
	return newLink(w.hop, w.tls, w.r), nil
}

// Offer is the helper's end of a pipe that no subflow uses yet.
type Offer struct {
	hop Conn
	tls *tls.Conn
	r   *wire.Reader
}

// NewOffer makes a pipe of a connection to a primary. Cfg is of
// identity.Key.Client with wire.PipeALPN, name is for display. It owns conn
// from now on and fails after HandshakeTimeout; its errors are faults. That the
// primary refuses this device's key is known only when Wait returns.
func NewOffer(ctx context.Context, conn Conn, cfg *tls.Config, name string) (*Offer, error) {
	o := &Offer{hop: conn, tls: tls.Client(conn, cfg)}
	err := within(ctx, HandshakeTimeout, conn, func(ctx context.Context) error {
		if err := o.tls.HandshakeContext(ctx); err != nil {
			return err
		}
		_, err := o.tls.Write(wire.Append(nil, wire.Hello{Version: wire.Version, Name: name}))
		if err == nil {
			return nil
		}
		// The primary may have hung up on our key already: what it said is there
		// to be read.
		if _, said := o.tls.Read(make([]byte, 1)); fault.Is(identity.Explain(said), fault.UnknownDevice) {
			return said
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pipe to %v: %w", conn.RemoteAddr(), err)
	}
	o.r = wire.NewReader(o.tls)
	return o, nil
}

// Wait blocks until the primary asks for a server, and returns its "host:port".
// Who waits must then Accept or Refuse. When ctx ends, or the pipe breaks, the
// pipe is closed. Errors are faults where a person can do something.
func (o *Offer) Wait(ctx context.Context) (server string, err error) {
	stop := context.AfterFunc(ctx, func() { o.Close() })
	payload, err := expect(o.r, wire.TypeInitJoin)
	if !stop() {
		return "", ctx.Err()
	}
	var f wire.InitJoin
	if err == nil {
		f, err = wire.ParseInitJoin(payload)
	}
	if err != nil {
		o.Close()
		return "", identity.Explain(err)
	}
	return f.Server, nil
}

// Accept answers INIT_MP_OK: the HS-path is connected.
func (o *Offer) Accept() (*Link, error) {
	if _, err := o.tls.Write(wire.Append(nil, wire.InitOK{})); err != nil {
		o.Close()
		return nil, err
	}
	return newLink(o.hop, o.tls, o.r), nil
}

// Refuse answers REFUSE and closes.
func (o *Offer) Refuse(code wire.Code, text string) error {
	return newLink(o.hop, o.tls, o.r).Refuse(code, text)
}

// Close hangs up.
func (o *Offer) Close() error { return o.tls.Close() }

// DialHS makes an HS-path of a connection to a server, at the helper. It owns
// conn from now on. The server does not answer: a refusal is what the Link's
// first Read returns.
func DialHS(ctx context.Context, conn Conn, name string) (*Link, error) {
	err := within(ctx, HandshakeTimeout, conn, func(context.Context) error {
		_, err := conn.Write(wire.Append(nil, wire.Hello{Version: wire.Version, Name: name}))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("HS-path to %v: %w", conn.RemoteAddr(), err)
	}
	return newLink(conn, conn, wire.NewReader(conn)), nil
}

// AcceptHS makes an HS-path of a connection whose first byte was peeked as
// wire.TypeHello, at the server, and returns what the helper calls itself.
// Nothing proves who the helper is: it only carries ciphertext of a subflow
// whose ends prove themselves. AcceptHS owns conn from now on and fails after
// HandshakeTimeout; its errors are faults.
func AcceptHS(ctx context.Context, conn Conn) (l *Link, name string, err error) {
	r := wire.NewReader(conn)
	err = within(ctx, HandshakeTimeout, conn, func(context.Context) (err error) {
		name, err = readHello(r, conn)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("HS-path from %v: %w", conn.RemoteAddr(), err)
	}
	return newLink(conn, conn, r), name, nil
}
