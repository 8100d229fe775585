// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/loglimit"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// Limits of a code. An attacker that uses up all tries guesses it with a chance of 1 in 2^33.
const (
	// Lifetime is how long a code is valid.
	Lifetime = 10 * time.Minute
	// maxTries bounds the failed tries of a code. maxTriesPerSource bounds those from one
	// tcp.SourceOf, so that one attacker leaves tries to the owner.
	maxTries, maxTriesPerSource = 100, 5
	// maxCalls bounds the concurrent calls of Serve, maxCallsPerSource those from one source.
	// maxCallsPerMinute bounds the calls that one source may begin in a minute.
	maxCalls, maxCallsPerSource, maxCallsPerMinute = 16, 4, 60
)

// State is the state of a code.
type State string

// States.
const (
	None     State = ""         // no code was made yet
	Open     State = "open"     // valid
	Paired   State = "paired"   // used
	Expired  State = "expired"  // its lifetime is over
	UsedUp   State = "used_up"  // too many failed tries
	Replaced State = "replaced" // replaced by another code, or the program has ended
)

// Invitation is a code and its state.
type Invitation struct {
	Secret string
	Until  time.Time
	State  State
	// Peer is the device that was paired. Set in state Paired.
	Peer identity.Peer
}

// Acceptor is the device that shows a code. At most one code is valid at a time. Safe for
// concurrent use.
type Acceptor struct {
	self Self
	log  *slog.Logger
	// Fleet answers the codes of a fleet; nil: there is none. Set it before use.
	Fleet    Fleet
	refusals *loglimit.Limiter // rate-limited log for events that unknown callers cause

	mu            sync.Mutex
	invitation    Invitation
	triesLeft     int                  // remaining tries
	triesBySource map[netip.Prefix]int // tries by source, failed or running
	triesRunning  int                  // running tries
	codeTaken     bool                 // a caller has proved that it knows the code
	timer         *time.Timer
	ended         chan struct{} // closed when the code is no longer valid
}

// NewAcceptor returns an Acceptor without a code.
func NewAcceptor(self Self, log *slog.Logger) *Acceptor {
	return &Acceptor{self: self, log: log, refusals: loglimit.New(log)}
}

// NewCode makes a new code and replaces a valid one. ended is closed when the new code is no longer
// valid.
func (a *Acceptor) NewCode() (inv Invitation, ended <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endCodeValidity(Replaced)
	a.invitation = Invitation{Secret: NewSecret(), Until: time.Now().Add(Lifetime).Round(0), State: Open}
	a.triesLeft, a.triesBySource, a.triesRunning = maxTries, map[netip.Prefix]int{}, 0
	a.codeTaken, a.ended = false, make(chan struct{})
	secret := a.invitation.Secret
	a.timer = time.AfterFunc(Lifetime, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.invitation.Secret == secret {
			a.endCodeValidity(Expired)
		}
	})
	return a.invitation, a.ended
}

// Close ends the validity of the code.
func (a *Acceptor) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endCodeValidity(Replaced)
}

// Invitation returns the last code.
func (a *Acceptor) Invitation() Invitation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.invitation
}

// endCodeValidity sets the state of a valid code to s. mu must be held.
func (a *Acceptor) endCodeValidity(s State) {
	if a.invitation.State != Open {
		return
	}
	a.invitation.State = s
	a.timer.Stop()
	close(a.ended)
}

// Serve handles calls at l until ctx ends or l is closed. It then waits for the running calls. It
// closes l.
func (a *Acceptor) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	defer l.Close()
	admission := tcp.NewAdmissionLimit(maxCalls, maxCallsPerSource, maxCallsPerMinute)
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		release := admission.Admit(c.RemoteAddr())
		if release == nil {
			c.Close()
			continue
		}
		calls.Go(func() {
			defer release()
			a.ServeConn(ctx, c)
		})
	}
}

// ServeConn handles one call, which begins with a PAIR frame, and closes conn.
func (a *Acceptor) ServeConn(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	p, err := a.pairWithCaller(ctx, conn)
	if err == io.EOF || errors.Is(err, syscall.ECONNRESET) { // the caller has connected by another address
		return
	}
	if err != nil {
		a.refusals.Log(slog.LevelWarn, string(fault.KindOf(err)), "not paired", "from", conn.RemoteAddr(),
			"err", err, "hint", fault.HintOf(err))
		return
	}
	a.log.Info("paired", "device", p.Name, "roles", p.Roles, "id", p.Key.ID())
}

// pairWithCaller pairs with the caller at conn: it verifies the proof of the code, exchanges
// identities and stores the device.
func (a *Acceptor) pairWithCaller(ctx context.Context, conn net.Conn) (p identity.Peer, err error) {
	_ = conn.SetDeadline(time.Now().Add(stepTimeout))
	hello, err := readPairFrame(conn)
	if err != nil {
		return p, err
	}
	c, err := openPairingChannel(ctx, tls.Server(conn, a.self.Key.ServerConfig(wire.PairALPN,
		func(identity.PublicKey) bool { return true })))
	if err != nil {
		return p, err
	}
	if hello.Version != wire.Version {
		err := fmt.Errorf("the caller speaks protocol version %d, this device version %d", hello.Version, wire.Version)
		c.sendPairingRefusal(wire.CodeVersion, fmt.Sprintf("%v: %s", err, hintVersion))
		return p, fault.New(fault.Protocol, err, hintVersion)
	}
	if c.peer == a.self.Key.Public() {
		return p, errOwnCode
	}
	first, payload, err := c.nextPairingFrame(wire.TypePairStep, wire.TypePairCode)
	if err != nil {
		return p, err
	}
	if first == wire.TypePairCode {
		code, err := wire.ParsePairCode(payload)
		if err != nil {
			return p, fault.New(fault.Protocol, err, hintVersion)
		}
		return a.pairByFleetCode(ctx, c, code.String())
	}
	t, err := a.verifyCaller(c, tcp.SourceOf(conn.RemoteAddr()), payload)
	if err != nil {
		return p, err
	}
	_ = conn.SetDeadline(time.Now().Add(identityTimeout))
	m := peerInfo{key: c.peer, remoteAddr: conn.RemoteAddr()}
	if m.identity, err = a.exchangeIdentities(c); err != nil {
		_, _ = a.finishPairing(t, nil)
		return p, err
	}
	if p, err = a.finishPairing(t, &m); err != nil {
		code := wire.CodeInternal
		if err == errCodeEnded {
			code = wire.CodeClosed
		}
		c.sendPairingRefusal(code, err.Error())
		return p, err
	}
	if err := c.sendPairingFrame(wire.PairDone{}); err != nil {
		a.log.Warn("the other device may not know that it is paired", "device", p.Name, "err", err, "hint",
			"if so, pair the two again")
	}
	return p, nil
}

// readPairFrame reads a PAIR frame and no byte more.
func readPairFrame(r io.Reader) (f wire.Pair, err error) {
	var h [wire.HeaderLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return f, err
	}
	n := binary.BigEndian.Uint32(h[:]) & 0xffffff
	if wire.Type(h[0]) != wire.TypePair || n > 64 {
		return f, fault.New(fault.Protocol, fmt.Errorf("%v of %d bytes came instead of a %v", wire.Type(h[0]),
			n, wire.TypePair), "only `mpbond pair` should connect here")
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return f, err
	}
	return wire.ParsePair(b)
}

// codeTry is one try of a code.
type codeTry struct {
	secret string
	from   netip.Prefix
	peer   identity.PublicKey
}

var (
	errNoCode       = errors.New("no code is valid")
	errTooManyTries = errors.New("the code was tried too often from this address")
	errCodeTaken    = errors.New("another device is being paired with this code")
)

// noCodeError returns the error for a caller when no code is valid. last is the state of the last
// code.
func noCodeError(last State) error {
	text := map[State]string{
		Expired: fmt.Sprintf("the code has expired: it was valid for %d minutes", int(Lifetime.Minutes())),
		Paired:  "the code was used already, for another device",
		UsedUp:  "the code was tried in vain too often",
	}[last]
	if text == "" {
		text = "no code is shown there now"
	}
	return &endedCodeError{text}
}

// endedCodeError is errNoCode with its own text.
type endedCodeError struct{ text string }

func (e *endedCodeError) Error() string { return e.text }

// Is reports whether target is errNoCode.
func (e *endedCodeError) Is(target error) bool { return target == errNoCode }

// beginCodeTry counts a try of the code by a peer at an address and returns it for finishCodeTry.
// It returns an error if the code may not be tried now.
func (a *Acceptor) beginCodeTry(from netip.Prefix, peer identity.PublicKey) (codeTry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Round(0).After(a.invitation.Until) { // the timer stops while this device sleeps
		a.endCodeValidity(Expired)
	}
	switch {
	case a.invitation.State != Open:
		return codeTry{}, noCodeError(a.invitation.State)
	case a.codeTaken:
		return codeTry{}, errCodeTaken
	case a.triesLeft == 0 || a.triesBySource[from] >= maxTriesPerSource: // some of the tries are still running
		return codeTry{}, errTooManyTries
	}
	a.triesLeft--
	a.triesBySource[from]++
	a.triesRunning++
	return codeTry{a.invitation.Secret, from, peer}, nil
}

// finishCodeTry ends a try. A successful try is given back and reserves the code.
func (a *Acceptor) finishCodeTry(t codeTry, right bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.invitation.State != Open || a.invitation.Secret != t.secret {
		return errNoCode // the code has changed
	}
	a.triesRunning--
	if right {
		a.triesLeft++
		a.triesBySource[t.from]--
		if a.codeTaken {
			return errCodeTaken
		}
		a.codeTaken = true
		return nil
	}
	if a.triesLeft == 0 && a.triesRunning == 0 && !a.codeTaken {
		a.endCodeValidity(UsedUp)
	}
	return errWrongCode
}

// finishPairing ends a successful try: it stores the peer, unless the code is no longer valid. If
// m is nil or storing fails, the code remains valid.
func (a *Acceptor) finishPairing(t codeTry, m *peerInfo) (p identity.Peer, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.invitation.State != Open || a.invitation.Secret != t.secret {
		return p, errCodeEnded
	}
	a.codeTaken = false
	if m == nil {
		return p, nil
	}
	if p, err = a.self.storePairedPeer(*m); err == nil {
		a.endCodeValidity(Paired)
		a.invitation.Peer = p
	}
	return p, err
}

var errCodeEnded = fault.New(fault.UnknownDevice, errors.New("the code is no longer valid"), "pair with the new one")

// verifyCaller lets the caller, whose first message is step, prove that it knows the code. If it returns no
// error, finishPairing must be called.
func (a *Acceptor) verifyCaller(c *channel, from netip.Prefix, step []byte) (codeTry, error) {
	ke1, err := parsePairStep(step, 1)
	if err != nil {
		return codeTry{}, err
	}
	t, err := a.beginCodeTry(from, c.peer)
	if err != nil {
		code := wire.CodeLimit
		if errors.Is(err, errNoCode) {
			code = wire.CodeClosed
		}
		c.sendPairingRefusal(code, err.Error())
		return t, err
	}
	p := newProofContext(c.peer, a.self.Key.Public(), c.binding)
	right := false
	r, err := register(p, t.secret)
	if err == nil {
		right, err = a.exchangeKeys(c, p, r, ke1)
	}
	if codeErr := a.finishCodeTry(t, right); codeErr != nil {
		c.sendPairingRefusal(wire.CodeForbidden, "the code is wrong or no longer valid")
		return t, cmp.Or(err, codeErr)
	}
	return t, nil
}

// exchangeKeys runs the key exchange, beginning with the acceptor's first message.
func (a *Acceptor) exchangeKeys(c *channel, p proofContext, r Registration, ke1 []byte) (right bool, err error) {
	proof, ke2, err := answerProof(p, r, ke1)
	if err != nil {
		return false, fault.New(fault.Protocol, err, "")
	}
	if err := c.sendPairingFrame(wire.PairStep{Number: 2, Bytes: ke2}); err != nil {
		return false, err
	}
	ke3, err := c.readPairStep(3)
	if err != nil {
		return false, fmt.Errorf("the caller has not proved that it knows the code: %w", err)
	}
	return proof.verifyProof(ke3) == nil, nil
}

// exchangeIdentities sends our identity to the caller and receives theirs.
func (a *Acceptor) exchangeIdentities(c *channel) (wire.PairIdentity, error) {
	// The caller's roles are not known yet. Only helpers need the list of servers, so it is sent
	// only if the caller can be one.
	if err := c.sendPairingFrame(a.self.identityFor(rolesOfUse(a.self.About().Roles))); err != nil {
		return wire.PairIdentity{}, err
	}
	return c.readIdentity()
}
