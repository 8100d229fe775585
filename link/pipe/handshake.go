package pipe

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/wire"
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
	return judge(got, payload, err, t)
}

// judge is expect for a frame that was read.
func judge(got wire.Type, payload []byte, err error, t wire.Type) ([]byte, error) {
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
		err := wire.VersionMismatch{Peer: "helper", Here: wire.Version, There: h.Version}
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
	rtt  time.Duration

	answer chan answer
	done   chan struct{}

	wmu  sync.Mutex   // of who writes while it waits; taken before mu
	told []string     // the newest SERVERS, nil before the first; guarded by wmu
	said wire.Trouble // the newest TROUBLE; guarded by wmu

	mu        sync.Mutex // guards below
	ended     bool       // done is closed
	err       error
	asked     wire.Type // the answer that somebody waits for, 0 for none
	onStalled func(wire.Token)
	stalled   *wire.Token // that came before onStalled
	onFacts   func(wire.Facts)
	facts     *wire.Facts // that came last

	tellMu sync.Mutex // held while facts are handed over, so that the newest are last; taken before mu
}

// answer is the frame that was asked for, or why it does not come.
type answer struct {
	payload []byte
	err     error
}

// Accept makes a pipe of a connection that a helper has made. Cfg is of
// identity.Key.Server with wire.PipeALPN. Accept owns conn from now on. It
// fails after HandshakeTimeout; its errors are faults.
func Accept(ctx context.Context, conn Conn, cfg *tls.Config) (*Waiting, error) {
	w := &Waiting{hop: conn, tls: tls.Server(conn, cfg), answer: make(chan answer, 1), done: make(chan struct{})}
	err := within(ctx, HandshakeTimeout, conn, func(ctx context.Context) (err error) {
		if err := w.tls.HandshakeContext(ctx); err != nil {
			return err
		}
		if w.peer, err = identity.PeerKey(w.tls.ConnectionState()); err != nil {
			return err
		}
		w.r = wire.NewReader(w.tls)
		if w.name, err = readHello(w.r, w.tls); err != nil {
			err = &identity.PeerError{Peer: w.peer, Err: err}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pipe from %v: %w", conn.RemoteAddr(), err)
	}
	if h, err := conn.Probe(); err == nil {
		w.rtt = h.MinRTT
	}
	go w.watch()
	return w, nil
}

// watch reads what a waiting pipe may get: STALLED, FACTS, and the answer to what is
// asked of it; and it notices a break while nobody asks.
func (w *Waiting) watch() {
	payload, err := w.next()
	err = identity.Explain(err)
	if err != nil {
		w.mu.Lock()
		w.end(err)
		w.mu.Unlock()
		w.tls.Close()
	}
	w.answer <- answer{payload, err}
}

func (w *Waiting) next() ([]byte, error) {
	for {
		t, payload, err := w.r.Next()
		if err == nil && t == wire.TypeStalled {
			f, err := wire.ParseStalled(payload)
			if err != nil {
				return nil, notMpbond(err)
			}
			w.mu.Lock()
			tell := w.onStalled
			if tell == nil {
				w.stalled = &f.Token
			}
			w.mu.Unlock()
			if tell != nil {
				tell(f.Token)
			}
			continue
		}
		if err == nil && t == wire.TypeFacts {
			f, err := wire.ParseFacts(payload)
			if err != nil {
				return nil, notMpbond(err)
			}
			w.mu.Lock()
			w.facts = &f
			w.mu.Unlock()
			w.tellFacts()
			continue
		}
		if err == nil && t.Skippable() {
			continue
		}
		w.mu.Lock()
		asked := w.asked
		w.mu.Unlock()
		if err == nil && asked == 0 && t != wire.TypeRefuse {
			return nil, notMpbond(unexpected(t)) // nobody asked
		}
		return judge(t, payload, err, asked)
	}
}

// OnStalled has f called with each STALLED, by a goroutine that f must not hold
// up.
func (w *Waiting) OnStalled(f func(wire.Token)) {
	w.mu.Lock()
	w.onStalled = f
	before := w.stalled
	w.mu.Unlock()
	if before != nil {
		f(*before)
	}
}

// OnFacts has f called with each FACTS, the newest of those that came before
// included, by a goroutine that f must not hold up.
func (w *Waiting) OnFacts(f func(wire.Facts)) {
	w.mu.Lock()
	w.onFacts = f
	w.mu.Unlock()
	w.tellFacts()
}

// tellFacts hands over what came last.
func (w *Waiting) tellFacts() {
	w.tellMu.Lock()
	defer w.tellMu.Unlock()
	w.mu.Lock()
	f, tell := w.facts, w.onFacts
	w.mu.Unlock()
	if f != nil && tell != nil {
		tell(*f)
	}
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

// Via names the local link that the pipe goes over, as Link.Via does.
func (w *Waiting) Via() string { return via(w.hop) }

// RTT is the least round trip that the handshake saw, 0 if the carrier tells
// none.
func (w *Waiting) RTT() time.Duration { return w.rtt }

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
// A refusal is a fault that wraps the wire.Refuse. The Link is a session that
// waits for window, if a pipe of it breaks, for another one.
func (w *Waiting) Join(ctx context.Context, server string, window time.Duration) (*Link, error) {
	var token wire.Token
	var key wire.HopKey
	_, _ = rand.Read(token[:]) // never fails
	_, _ = rand.Read(key[:])
	payload, err := w.ask(ctx, JoinTimeout, wire.InitJoin{Token: token, Key: key, Window: window, Server: server}, wire.TypeInitOK)
	if err != nil {
		return nil, fmt.Errorf("joining by %s: %w", w.name, err)
	}
	ok, err := wire.ParseInitOK(payload)
	if err != nil {
		w.tls.Close()
		return nil, fmt.Errorf("joining by %s: %w", w.name, notMpbond(err))
	}
	l := newLink(w.carried(), token, window)
	l.radio, l.key = ok.Radio, key
	return l, nil
}

// Tell tells the helper which servers it may connect to from now on, by what list
// returns, unless it was told just that over this pipe, or the pipe does not wait
// any more: then the next one tells. It takes up to HandshakeTimeout. A pipe to
// which nothing can be written is closed.
func (w *Waiting) Tell(list func() []string) {
	w.wmu.Lock()
	defer w.wmu.Unlock()
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	servers := list() // now, so that of several the newest is the last
	if ended || w.told != nil && slices.Equal(w.told, servers) {
		return
	}
	w.told = append([]string{}, servers...)
	w.write(wire.Servers{Addresses: servers})
}

// SendTrouble reports to the helper why the primary does not use it, unless that was
// the last report over this pipe, or the pipe does not wait any more. It takes up to
// HandshakeTimeout. current returns the report; it is called when it is this one's turn to
// be written, so that of several calls the last report is the newest.
func (w *Waiting) SendTrouble(current func() wire.Trouble) {
	w.wmu.Lock()
	defer w.wmu.Unlock()
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	f := current()
	if ended || f == w.said {
		return
	}
	w.said = f
	w.write(f)
}

// write sends a frame while the pipe waits, which wmu guards. A pipe to which nothing can
// be written is closed.
func (w *Waiting) write(f wire.Frame) {
	_ = w.hop.SetWriteDeadline(time.Now().Add(HandshakeTimeout))
	_, err := w.tls.Write(wire.Append(nil, f))
	_ = w.hop.SetWriteDeadline(time.Time{})
	if err != nil {
		w.mu.Lock()
		w.end(identity.Explain(err))
		w.mu.Unlock()
		w.tls.Close()
	}
}

// ask ends the waiting: it sends f and returns the payload of the answer, which
// must be of type t. When it fails the pipe is closed.
func (w *Waiting) ask(ctx context.Context, limit time.Duration, f wire.Frame, t wire.Type) (payload []byte, err error) {
	w.wmu.Lock() // what Tell writes comes before
	defer w.wmu.Unlock()
	w.mu.Lock()
	if w.ended {
		err := w.err
		w.mu.Unlock()
		if err == nil {
			err = errors.New("it is in use already")
		}
		return nil, err
	}
	w.end(nil)
	w.asked = t
	w.mu.Unlock()
	err = within(ctx, limit, w.hop, func(context.Context) error {
		if _, err := w.tls.Write(wire.Append(nil, f)); err != nil {
			return err
		}
		a := <-w.answer // comes at the latest when the pipe is closed
		payload = a.payload
		return a.err
	})
	return payload, err
}

func (w *Waiting) carried() *carried {
	return &carried{hopConn: hopConn{hop: w.hop, rw: w.tls, r: w.r}}
}

// DialHS makes an HS-path of a connection to a server, at the helper. It owns
// conn from now on. Key is the subflow's, of its Request. The server does not
// answer: a refusal is what the first Read returns.
func DialHS(ctx context.Context, conn Conn, name string, key wire.HopKey) (*HSPath, error) {
	err := within(ctx, HandshakeTimeout, conn, func(context.Context) error {
		_, err := conn.Write(wire.Append(nil, wire.Hello{Version: wire.Version, Name: name}))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("HS-path to %v: %w", conn.RemoteAddr(), err)
	}
	h := newHSPath(conn, wire.NewReader(conn))
	h.signer = &signer{tags: newTagger(key)}
	return h, nil
}

// LeaveReport leaves a report at a server, over a connection of its own, which it owns.
func LeaveReport(ctx context.Context, conn Conn, name string, f wire.Report) error {
	err := within(ctx, HandshakeTimeout, conn, func(context.Context) error {
		_, err := conn.Write(wire.Append(wire.Append(nil, wire.Hello{Version: wire.Version, Name: name}), f))
		return err
	})
	conn.Close()
	if err != nil {
		return fmt.Errorf("report to %v: %w", conn.RemoteAddr(), err)
	}
	return nil
}

// AcceptHS makes an HS-path of a connection whose first byte was peeked as
// wire.TypeHello, at the server, and returns what the helper calls itself.
// Nothing proves who the helper is: it only carries ciphertext of a subflow
// whose ends prove themselves. Its reports and limits have no effect before
// Authenticate. AcceptHS owns conn from now on and fails after
// HandshakeTimeout; its errors are faults.
func AcceptHS(ctx context.Context, conn Conn) (h *HSPath, name string, err error) {
	r := wire.NewReader(conn)
	err = within(ctx, HandshakeTimeout, conn, func(context.Context) (err error) {
		name, err = readHello(r, conn)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("HS-path from %v: %w", conn.RemoteAddr(), err)
	}
	h = newHSPath(conn, r)
	h.auth = new(verifier)
	return h, name, nil
}
