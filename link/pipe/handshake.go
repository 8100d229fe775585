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

// runWithin runs f and closes c if that takes longer than ctx or d, or fails.
func runWithin(ctx context.Context, d time.Duration, c io.Closer, f func(context.Context) error) error {
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
	return identity.ExplainTLS(err)
}

// expectFrame reads the next frame, which must be of type t. A refusal becomes a
// fault that wraps the wire.Refuse.
func expectFrame(r *wire.Reader, t wire.Type) ([]byte, error) {
	got, payload, err := r.Next()
	return checkFrame(got, payload, err, t)
}

// checkFrame is expect for a frame that was read.
func checkFrame(got wire.Type, payload []byte, err error, t wire.Type) ([]byte, error) {
	switch {
	case errors.Is(err, io.EOF):
		return nil, fault.New(fault.Protocol, errors.New("the other end hung up"), "its log says why")
	case errors.Is(err, wire.ErrMalformed):
		return nil, notMpbondError(err)
	case err != nil:
		return nil, err
	case got == t:
		return payload, nil
	case got == wire.TypeRefuse:
		f, err := wire.ParseRefuse(payload)
		if err != nil {
			return nil, err
		}
		return nil, refusalFault(f)
	}
	return nil, notMpbondError(unexpectedFrame(got))
}

func notMpbondError(err error) error {
	return fault.New(fault.Protocol, err, "check address and port: something else than mpbond seems to be there")
}

// refusalFault makes a refusal a fault.
func refusalFault(f wire.Refuse) error {
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
	payload, err := expectFrame(r, wire.TypeHello)
	if err != nil {
		return "", err
	}
	h, err := wire.ParseHello(payload)
	if err != nil {
		return "", notMpbondError(err)
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
	raw  Conn
	tls  *tls.Conn
	r    *wire.Reader
	peer identity.PublicKey
	name string
	rtt  time.Duration

	replies chan reply
	done    chan struct{}

	writeMu     sync.Mutex   // of who writes while it waits; taken before mu
	sentServers []string     // the newest SERVERS, nil before the first; guarded by wmu
	sentTrouble wire.Trouble // the newest TROUBLE; guarded by wmu

	mu             sync.Mutex // guards below
	ended          bool       // done is closed
	err            error
	awaitedType    wire.Type // the answer that somebody waits for, 0 for none
	onStalled      func(wire.Token)
	pendingStalled *wire.Token // that came before onStalled
	onFacts        func(wire.Facts)
	lastFacts      *wire.Facts // that came last

	factsMu sync.Mutex // held while facts are handed over, so that the newest are last; taken before mu
}

// reply is the frame that was asked for, or why it does not come.
type reply struct {
	payload []byte
	err     error
}

// Accept makes a pipe of a connection that a helper has made. Cfg is of
// identity.Key.ServerConfig with wire.PipeALPN. Accept owns conn from now on. It
// fails after HandshakeTimeout; its errors are faults.
func Accept(ctx context.Context, conn Conn, cfg *tls.Config) (*Waiting, error) {
	w := &Waiting{raw: conn, tls: tls.Server(conn, cfg), replies: make(chan reply, 1), done: make(chan struct{})}
	err := runWithin(ctx, HandshakeTimeout, conn, func(ctx context.Context) (err error) {
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
	go w.readFrames()
	return w, nil
}

// readFrames reads what a waiting pipe may get: STALLED, FACTS, and the answer to what is
// asked of it; and it notices a break while nobody asks.
func (w *Waiting) readFrames() {
	payload, err := w.nextReply()
	err = identity.ExplainTLS(err)
	if err != nil {
		w.mu.Lock()
		w.markEnded(err)
		w.mu.Unlock()
		w.tls.Close()
	}
	w.replies <- reply{payload, err}
}

func (w *Waiting) nextReply() ([]byte, error) {
	for {
		t, payload, err := w.r.Next()
		if err == nil && t == wire.TypeStalled {
			f, err := wire.ParseStalled(payload)
			if err != nil {
				return nil, notMpbondError(err)
			}
			w.mu.Lock()
			onStalled := w.onStalled
			if onStalled == nil {
				w.pendingStalled = &f.Token
			}
			w.mu.Unlock()
			if onStalled != nil {
				onStalled(f.Token)
			}
			continue
		}
		if err == nil && t == wire.TypeFacts {
			f, err := wire.ParseFacts(payload)
			if err != nil {
				return nil, notMpbondError(err)
			}
			w.mu.Lock()
			w.lastFacts = &f
			w.mu.Unlock()
			w.deliverFacts()
			continue
		}
		if err == nil && t.Skippable() {
			continue
		}
		w.mu.Lock()
		awaited := w.awaitedType
		w.mu.Unlock()
		if err == nil && awaited == 0 && t != wire.TypeRefuse {
			return nil, notMpbondError(unexpectedFrame(t)) // nobody asked
		}
		return checkFrame(t, payload, err, awaited)
	}
}

// OnStalled has f called with each STALLED, by a goroutine that f must not hold
// up.
func (w *Waiting) OnStalled(f func(wire.Token)) {
	w.mu.Lock()
	w.onStalled = f
	pending := w.pendingStalled
	w.mu.Unlock()
	if pending != nil {
		f(*pending)
	}
}

// OnFacts has f called with each FACTS, the newest of those that came before
// included, by a goroutine that f must not hold up.
func (w *Waiting) OnFacts(f func(wire.Facts)) {
	w.mu.Lock()
	w.onFacts = f
	w.mu.Unlock()
	w.deliverFacts()
}

// deliverFacts hands over what came last.
func (w *Waiting) deliverFacts() {
	w.factsMu.Lock()
	defer w.factsMu.Unlock()
	w.mu.Lock()
	f, onFacts := w.lastFacts, w.onFacts
	w.mu.Unlock()
	if f != nil && onFacts != nil {
		onFacts(*f)
	}
}

// markEnded closes done. It is called with mu held.
func (w *Waiting) markEnded(err error) {
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
func (w *Waiting) RemoteAddr() net.Addr { return w.raw.RemoteAddr() }

// Via names the local link that the pipe goes over, as Link.Via does.
func (w *Waiting) Via() string { return localLinkName(w.raw) }

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
	w.markEnded(net.ErrClosed)
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
func (w *Waiting) Join(ctx context.Context, server string, resumeWindow time.Duration) (*Link, error) {
	var token wire.Token
	var key wire.HopKey
	_, _ = rand.Read(token[:]) // never fails
	_, _ = rand.Read(key[:])
	payload, err := w.request(ctx, JoinTimeout, wire.InitJoin{Token: token, Key: key, Window: resumeWindow, Server: server}, wire.TypeInitOK)
	if err != nil {
		return nil, fmt.Errorf("joining by %s: %w", w.name, err)
	}
	ok, err := wire.ParseInitOK(payload)
	if err != nil {
		w.tls.Close()
		return nil, fmt.Errorf("joining by %s: %w", w.name, notMpbondError(err))
	}
	l := newLink(w.newLinkConn(), token, resumeWindow)
	l.radio, l.key = ok.Radio, key
	return l, nil
}

// SendServers tells the helper which servers it may connect to from now on, by what list
// returns, unless it was told just that over this pipe, or the pipe does not wait
// any more: then the next one tells. It takes up to HandshakeTimeout. A pipe to
// which nothing can be written is closed.
func (w *Waiting) SendServers(list func() []string) {
	w.writeMu.Lock()
	defer w.writeMu.Unlock()
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	servers := list() // now, so that of several the newest is the last
	if ended || w.sentServers != nil && slices.Equal(w.sentServers, servers) {
		return
	}
	w.sentServers = append([]string{}, servers...)
	w.writeFrame(wire.Servers{Addresses: servers})
}

// SendTrouble reports to the helper why the primary does not use it, unless that was
// the last report over this pipe, or the pipe does not wait any more. It takes up to
// HandshakeTimeout. current returns the report; it is called when it is this one's turn to
// be written, so that of several calls the last report is the newest.
func (w *Waiting) SendTrouble(current func() wire.Trouble) {
	w.writeMu.Lock()
	defer w.writeMu.Unlock()
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	f := current()
	if ended || f == w.sentTrouble {
		return
	}
	w.sentTrouble = f
	w.writeFrame(f)
}

// writeFrame sends a frame while the pipe waits, which wmu guards. A pipe to which nothing can
// be written is closed.
func (w *Waiting) writeFrame(f wire.Frame) {
	_ = w.raw.SetWriteDeadline(time.Now().Add(HandshakeTimeout))
	_, err := w.tls.Write(wire.Append(nil, f))
	_ = w.raw.SetWriteDeadline(time.Time{})
	if err != nil {
		w.mu.Lock()
		w.markEnded(identity.ExplainTLS(err))
		w.mu.Unlock()
		w.tls.Close()
	}
}

// request ends the waiting: it sends f and returns the payload of the answer, which
// must be of type t. When it fails the pipe is closed.
func (w *Waiting) request(ctx context.Context, timeout time.Duration, f wire.Frame, t wire.Type) (payload []byte, err error) {
	w.writeMu.Lock() // what Tell writes comes before
	defer w.writeMu.Unlock()
	w.mu.Lock()
	if w.ended {
		err := w.err
		w.mu.Unlock()
		if err == nil {
			err = errors.New("it is in use already")
		}
		return nil, err
	}
	w.markEnded(nil)
	w.awaitedType = t
	w.mu.Unlock()
	err = runWithin(ctx, timeout, w.raw, func(context.Context) error {
		if _, err := w.tls.Write(wire.Append(nil, f)); err != nil {
			return err
		}
		a := <-w.replies // comes at the latest when the pipe is closed
		payload = a.payload
		return a.err
	})
	return payload, err
}

func (w *Waiting) newLinkConn() *linkConn {
	return &linkConn{hopConn: hopConn{raw: w.raw, rw: w.tls, r: w.r}}
}

// DialHS makes an HS-path of a connection to a server, at the helper. It owns
// conn from now on. Key is the subflow's, of its Request. The server does not
// answer: a refusal is what the first Read returns.
func DialHS(ctx context.Context, conn Conn, name string, key wire.HopKey) (*HSPath, error) {
	err := runWithin(ctx, HandshakeTimeout, conn, func(context.Context) error {
		_, err := conn.Write(wire.Append(nil, wire.Hello{Version: wire.Version, Name: name}))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("HS-path to %v: %w", conn.RemoteAddr(), err)
	}
	h := newHSPath(conn, wire.NewReader(conn))
	h.signer = &signer{tagger: newTagger(key)}
	return h, nil
}

// LeaveReport leaves a report at a server, over a connection of its own, which it owns.
func LeaveReport(ctx context.Context, conn Conn, name string, f wire.Report) error {
	err := runWithin(ctx, HandshakeTimeout, conn, func(context.Context) error {
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
	err = runWithin(ctx, HandshakeTimeout, conn, func(context.Context) (err error) {
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
