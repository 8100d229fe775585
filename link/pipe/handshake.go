// SPDX-License-Identifier: Apache-2.0

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

// Timeouts.
const (
	// HandshakeTimeout bounds TLS and HELLO together, so that a silent caller is cut off.
	HandshakeTimeout = 5 * time.Second
	// JoinTimeout bounds INIT_MP_JOIN: the helper needs up to HandshakeTimeout to reach the server.
	JoinTimeout = 2 * HandshakeTimeout
)

const hintUpdate = "install the same release of mpbond on both devices"

// runWithTimeout runs f. It closes c if f fails, or takes longer than ctx or d.
func runWithTimeout(ctx context.Context, d time.Duration, c io.Closer, f func(context.Context) error) error {
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
		return fault.New(fault.Timeout, fmt.Errorf("no answer within %v", d),
			"check that mpbond runs there and that the link works")
	}
	return identity.ExplainTLS(err)
}

// expectPipeFrame reads the next frame, which must be of type t. A refusal is returned as a fault
// that wraps the wire.Refuse.
func expectPipeFrame(r *wire.Reader, t wire.Type) ([]byte, error) {
	got, payload, err := r.Next()
	return checkFrame(got, payload, err, t)
}

// checkFrame is expectPipeFrame for a frame that was already read.
func checkFrame(got wire.Type, payload []byte, err error, t wire.Type) ([]byte, error) {
	switch {
	case errors.Is(err, io.EOF):
		return nil, fault.New(fault.Protocol, errors.New("the other end closed the connection"),
			"its log shows the reason")
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
		return nil, explainPipeRefusal(f)
	}
	return nil, notMpbondError(unexpectedFrame(got))
}

func notMpbondError(err error) error {
	return fault.New(fault.Protocol, err, "check address and port: something other than mpbond answers there")
}

// explainPipeRefusal turns a refusal into a fault.
func explainPipeRefusal(f wire.Refuse) error {
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

// receiveHello reads a HELLO from r. If its version differs it answers with a REFUSE on w.
func receiveHello(r *wire.Reader, w io.Writer) (name string, err error) {
	payload, err := expectPipeFrame(r, wire.TypeHello)
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

// Waiting is the primary's end of a pipe that no subflow uses yet. Any goroutine may call its
// methods.
type Waiting struct {
	raw  Conn
	tls  *tls.Conn
	r    *wire.Reader
	peer identity.PublicKey
	name string
	rtt  time.Duration

	replies chan reply
	done    chan struct{}

	writeMu     sync.Mutex   // held while writing on the waiting pipe; locked before mu
	sentServers []string     // last SERVERS sent, nil before the first; guarded by writeMu
	sentTrouble wire.Trouble // last TROUBLE sent; guarded by writeMu

	mu             sync.Mutex // guards the fields below
	ended          bool       // done is closed
	err            error
	awaitedType    wire.Type // type of the awaited answer, 0 for none
	onStalled      func(wire.Token)
	pendingStalled *wire.Token // came before onStalled was set
	onFacts        func(wire.Facts)
	lastFacts      *wire.Facts // the newest

	factsMu sync.Mutex // held while facts are passed on, so that the newest come last; locked before mu
}

// reply is the awaited frame, or the error that replaces it.
type reply struct {
	payload []byte
	err     error
}

// Accept accepts a pipe over a connection that a helper has made. cfg is from
// identity.Key.ServerConfig with wire.PipeALPN. Accept owns conn from now on. It fails after
// HandshakeTimeout. Its errors are faults.
func Accept(ctx context.Context, conn Conn, cfg *tls.Config) (*Waiting, error) {
	w := &Waiting{raw: conn, tls: tls.Server(conn, cfg), replies: make(chan reply, 1), done: make(chan struct{})}
	err := runWithTimeout(ctx, HandshakeTimeout, conn, func(ctx context.Context) (err error) {
		if err := w.tls.HandshakeContext(ctx); err != nil {
			return err
		}
		if w.peer, err = identity.PeerKey(w.tls.ConnectionState()); err != nil {
			return err
		}
		w.r = wire.NewReader(w.tls)
		if w.name, err = receiveHello(w.r, w.tls); err != nil {
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
	go w.readWaitingFrames()
	return w, nil
}

// readWaitingFrames reads the frames that a waiting pipe may get: STALLED, FACTS and the answer to
// a request. It also notices a break while no request is open.
func (w *Waiting) readWaitingFrames() {
	payload, err := w.readUntilReply()
	err = identity.ExplainTLS(err)
	if err != nil {
		w.mu.Lock()
		w.markWaitingEnded(err)
		w.mu.Unlock()
		w.tls.Close()
	}
	w.replies <- reply{payload, err}
}

// readUntilReply handles frames until the awaited answer comes, or an error.
func (w *Waiting) readUntilReply() ([]byte, error) {
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
			return nil, notMpbondError(unexpectedFrame(t)) // no request was sent
		}
		return checkFrame(t, payload, err, awaited)
	}
}

// OnStalled sets the function that is called with each STALLED. The function must not block.
func (w *Waiting) OnStalled(f func(wire.Token)) {
	w.mu.Lock()
	w.onStalled = f
	pending := w.pendingStalled
	w.mu.Unlock()
	if pending != nil {
		f(*pending)
	}
}

// OnFacts sets the function that is called with each FACTS, including the newest that came before.
// The function must not block.
func (w *Waiting) OnFacts(f func(wire.Facts)) {
	w.mu.Lock()
	w.onFacts = f
	w.mu.Unlock()
	w.deliverFacts()
}

// deliverFacts passes on the newest facts.
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

// markWaitingEnded closes done. mu must be held.
func (w *Waiting) markWaitingEnded(err error) {
	if !w.ended {
		w.ended, w.err = true, err
		close(w.done)
	}
}

// Peer returns the helper's key, as proved by TLS.
func (w *Waiting) Peer() identity.PublicKey { return w.peer }

// Name returns the name that the helper gives itself. It is for display only, not for trust.
func (w *Waiting) Name() string { return w.name }

// RemoteAddr returns the helper's address on this pipe.
func (w *Waiting) RemoteAddr() net.Addr { return w.raw.RemoteAddr() }

// Via returns a name for the local link of the pipe, as Link.Via does.
func (w *Waiting) Via() string { return localLinkName(w.raw) }

// RTT returns the smallest round trip seen in the handshake, 0 if the carrier does not report it.
func (w *Waiting) RTT() time.Duration { return w.rtt }

// Done returns a channel that is closed when the pipe no longer waits: it broke or was closed, or
// Join or Link.Resume has taken it. See Err.
func (w *Waiting) Done() <-chan struct{} { return w.done }

// Err returns why the pipe broke, net.ErrClosed after Close, and nil while it waits or after Join
// has taken it.
func (w *Waiting) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close closes the pipe, unless Join has taken it: Join ends with its context, and later the Link
// is closed.
func (w *Waiting) Close() error {
	w.mu.Lock()
	ended := w.ended
	w.markWaitingEnded(net.ErrClosed)
	w.mu.Unlock()
	if ended {
		return nil
	}
	return w.tls.Close()
}

// Join asks the helper to connect the pipe to server, "host:port". It may be called once and takes
// at most JoinTimeout. When it fails the pipe is closed. A refusal is a fault that wraps the
// wire.Refuse. If a pipe of the returned Link breaks, the Link waits for another one for
// resumeTimeout.
func (w *Waiting) Join(ctx context.Context, server string, resumeTimeout time.Duration) (*Link, error) {
	var token wire.Token
	var key wire.HopKey
	_, _ = rand.Read(token[:]) // never fails
	_, _ = rand.Read(key[:])
	payload, err := w.exchangeRequest(ctx, JoinTimeout, wire.InitJoin{Token: token, Key: key, ResumeTimeout: resumeTimeout,
		Server: server}, wire.TypeInitOK)
	if err != nil {
		return nil, fmt.Errorf("joining through %s: %w", w.name, err)
	}
	ok, err := wire.ParseInitOK(payload)
	if err != nil {
		w.tls.Close()
		return nil, fmt.Errorf("joining through %s: %w", w.name, notMpbondError(err))
	}
	l := newSubflowLink(w.newWaitingLinkConn(), token, resumeTimeout)
	l.radio, l.key = ok.Radio, key
	return l, nil
}

// SendServers sends the helper the list of servers that it may connect to. list returns it. Nothing
// is sent if the list has not changed, or if the pipe no longer waits; then the next waiting pipe
// sends it. It takes up to HandshakeTimeout. If writing fails the pipe is closed.
func (w *Waiting) SendServers(list func() []string) {
	w.writeMu.Lock()
	defer w.writeMu.Unlock()
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	servers := list() // read under writeMu, so that the last call sends the newest list
	if ended || w.sentServers != nil && slices.Equal(w.sentServers, servers) {
		return
	}
	w.sentServers = append([]string{}, servers...)
	w.writeFrame(wire.Servers{Addresses: servers})
}

// SendTrouble sends the helper the reason why the primary does not use it. Nothing is sent if the
// reason has not changed, or if the pipe no longer waits. It takes up to HandshakeTimeout. current
// returns the report. It is called in the order of writing, so that the newest report is sent last.
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

// writeFrame sends a frame while the pipe waits. writeMu must be held. If writing fails the pipe is
// closed.
func (w *Waiting) writeFrame(f wire.Frame) {
	_ = w.raw.SetWriteDeadline(time.Now().Add(HandshakeTimeout))
	_, err := w.tls.Write(wire.Append(nil, f))
	_ = w.raw.SetWriteDeadline(time.Time{})
	if err != nil {
		w.mu.Lock()
		w.markWaitingEnded(identity.ExplainTLS(err))
		w.mu.Unlock()
		w.tls.Close()
	}
}

// exchangeRequest ends the waiting. It sends f and returns the payload of the answer, which must be
// of type t. When it fails the pipe is closed.
func (w *Waiting) exchangeRequest(ctx context.Context, timeout time.Duration, f wire.Frame,
	t wire.Type) (payload []byte, err error) {
	w.writeMu.Lock() // after what SendServers writes
	defer w.writeMu.Unlock()
	w.mu.Lock()
	if w.ended {
		err := w.err
		w.mu.Unlock()
		if err == nil {
			err = errors.New("the pipe is already in use")
		}
		return nil, err
	}
	w.markWaitingEnded(nil)
	w.awaitedType = t
	w.mu.Unlock()
	err = runWithTimeout(ctx, timeout, w.raw, func(context.Context) error {
		if _, err := w.tls.Write(wire.Append(nil, f)); err != nil {
			return err
		}
		a := <-w.replies // comes at the latest when the pipe is closed
		payload = a.payload
		return a.err
	})
	return payload, err
}

func (w *Waiting) newWaitingLinkConn() *linkConn {
	return &linkConn{hopConn: hopConn{raw: w.raw, rw: w.tls, r: w.r}}
}

// DialHS makes an HS-path of a connection from helper to server. It owns conn from now on. key is
// the key of the subflow, from its Request. The server does not answer: a refusal appears as the
// error of the first Read.
func DialHS(ctx context.Context, conn Conn, name string, key wire.HopKey) (*HSPath, error) {
	err := runWithTimeout(ctx, HandshakeTimeout, conn, func(context.Context) error {
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

// LeaveReport leaves a report at a server, over a connection made for this report. It owns conn.
func LeaveReport(ctx context.Context, conn Conn, name string, f wire.Report) error {
	err := runWithTimeout(ctx, HandshakeTimeout, conn, func(context.Context) error {
		_, err := conn.Write(wire.Append(wire.Append(nil, wire.Hello{Version: wire.Version, Name: name}), f))
		return err
	})
	conn.Close()
	if err != nil {
		return fmt.Errorf("report to %v: %w", conn.RemoteAddr(), err)
	}
	return nil
}

// AcceptHS makes an HS-path of a connection at the server, whose first byte was peeked as
// wire.TypeHello. It returns the name that the helper gives itself. Nothing proves the helper's
// identity: it only carries ciphertext of a subflow whose ends authenticate each other. Its reports
// and limits have no effect before Authenticate. AcceptHS owns conn from now on and fails after
// HandshakeTimeout. Its errors are faults.
func AcceptHS(ctx context.Context, conn Conn) (h *HSPath, name string, err error) {
	r := wire.NewReader(conn)
	err = runWithTimeout(ctx, HandshakeTimeout, conn, func(context.Context) (err error) {
		name, err = receiveHello(r, conn)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("HS-path from %v: %w", conn.RemoteAddr(), err)
	}
	h = newHSPath(conn, r)
	h.auth = new(verifier)
	return h, name, nil
}
