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
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/loglimit"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// What a code endures. A stranger who tries all of it is right once in 2^33.
const (
	// Lifetime is how long a code holds.
	Lifetime = 10 * time.Minute
	// maxTries is how often a code may be tried in vain, maxTriesOfOne how often
	// from one tcp.Source, so that who tries all it can leaves some to the owner.
	maxTries, maxTriesOfOne = 100, 5
	// maxCalls bounds the calls that Serve attends to at once, maxCallsOfOne those
	// from one source, and maxCallsPerMinute those that one source may begin in a
	// minute.
	maxCalls, maxCallsOfOne, maxCallsPerMinute = 16, 4, 60
)

// State is what has become of a code.
type State string

// States.
const (
	None     State = ""         // there never was one
	Open     State = "open"     // may be used
	Paired   State = "paired"   // was used
	Expired  State = "expired"  // its time is over
	UsedUp   State = "used_up"  // was tried in vain too often
	Replaced State = "replaced" // by another one, or by the end of the program
)

// Invitation is a code and what has become of it.
type Invitation struct {
	Secret string
	Until  time.Time
	State  State
	// Met is the device that was paired, in state Paired.
	Met identity.Peer
}

// Acceptor is the device that shows a code. One code holds at a time. Safe for
// concurrent use.
type Acceptor struct {
	self     Self
	log      *slog.Logger
	refusals *loglimit.Limiter // the log, for what strangers cause

	mu     sync.Mutex
	inv    Invitation
	tries  int                  // left
	used   map[netip.Prefix]int // of them, in vain or under way, by source
	trying int                  // under way
	taken  bool                 // by a caller that has proved to know the code
	timer  *time.Timer
	ended  chan struct{} // closed when the code holds no longer
}

// NewAcceptor makes one without a code.
func NewAcceptor(self Self, log *slog.Logger) *Acceptor {
	return &Acceptor{self: self, log: log, refusals: loglimit.New(log)}
}

// Open makes a new code; one that holds is replaced. Ended is closed when it
// holds no longer.
func (a *Acceptor) Open() (inv Invitation, ended <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(Replaced)
	a.inv = Invitation{Secret: NewSecret(), Until: time.Now().Add(Lifetime).Round(0), State: Open}
	a.tries, a.used, a.trying, a.taken, a.ended = maxTries, map[netip.Prefix]int{}, 0, false, make(chan struct{})
	secret := a.inv.Secret
	a.timer = time.AfterFunc(Lifetime, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.inv.Secret == secret {
			a.end(Expired)
		}
	})
	return a.inv, a.ended
}

// Close ends the code.
func (a *Acceptor) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(Replaced)
}

// Invitation is the last code.
func (a *Acceptor) Invitation() Invitation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inv
}

// end ends a code that holds. It is called with mu held.
func (a *Acceptor) end(s State) {
	if a.inv.State != Open {
		return
	}
	a.inv.State = s
	a.timer.Stop()
	close(a.ended)
}

// Serve attends to calls at l until ctx ends, or until l is closed: then it
// returns when the calls under way have ended. It closes l.
func (a *Acceptor) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	defer l.Close()
	gate := tcp.NewGate(maxCalls, maxCallsOfOne, maxCallsPerMinute)
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		leave := gate.Admit(c.RemoteAddr())
		if leave == nil {
			c.Close()
			continue
		}
		calls.Go(func() {
			defer leave()
			a.Answer(ctx, c)
		})
	}
}

// Answer attends to one call, whose first frame is a PAIR, and closes conn.
func (a *Acceptor) Answer(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	p, err := a.answer(ctx, conn)
	if err == io.EOF { // a caller has found a quicker way
		return
	}
	if err != nil {
		a.refusals.Log(slog.LevelWarn, string(fault.KindOf(err)), "not paired", "from", conn.RemoteAddr(), "err", err, "hint", fault.HintOf(err))
		return
	}
	a.log.Info("paired", "device", p.Name, "roles", p.Roles, "id", p.Key.ID())
}

func (a *Acceptor) answer(ctx context.Context, conn net.Conn) (p identity.Peer, err error) {
	_ = conn.SetDeadline(time.Now().Add(stepTimeout))
	hello, err := readPair(conn)
	if err != nil {
		return p, err
	}
	c, err := newChannel(ctx, tls.Server(conn, a.self.Key.Server(wire.PairALPN, func(identity.PublicKey) bool { return true })))
	if err != nil {
		return p, err
	}
	if hello.Version != wire.Version {
		err := fmt.Errorf("the caller speaks protocol version %d, this device version %d", hello.Version, wire.Version)
		c.refuse(wire.CodeVersion, fmt.Sprintf("%v: %s", err, hintVersion))
		return p, fault.New(fault.Protocol, err, hintVersion)
	}
	t, err := a.prove(c, tcp.Source(conn.RemoteAddr()))
	if err != nil {
		return p, err
	}
	_ = conn.SetDeadline(time.Now().Add(meetTimeout))
	m := met{key: c.peer, remote: conn.RemoteAddr()}
	if m.about, err = a.meet(c); err != nil {
		_, _ = a.settle(t, nil)
		return p, err
	}
	if p, err = a.settle(t, &m); err != nil {
		code := wire.CodeInternal
		if err == errEnded {
			code = wire.CodeClosed
		}
		c.refuse(code, err.Error())
		return p, err
	}
	if err := c.send(wire.PairDone{}); err != nil {
		a.log.Warn("the other device may not know that it is paired", "device", p.Name, "err", err, "hint", "if so pair the two again")
	}
	return p, nil
}

// readPair reads a PAIR and nothing of what follows it.
func readPair(r io.Reader) (f wire.Pair, err error) {
	var h [wire.HeaderLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return f, err
	}
	n := binary.BigEndian.Uint32(h[:]) & 0xffffff
	if wire.Type(h[0]) != wire.TypePair || n > 64 {
		return f, fault.New(fault.Protocol, fmt.Errorf("%v of %d bytes came instead of a %v", wire.Type(h[0]), n, wire.TypePair), "only mpbond pair should call here")
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return f, err
	}
	return wire.ParsePair(b)
}

// try is one try of a code.
type try struct {
	secret string
	from   netip.Prefix
	peer   identity.PublicKey
}

var (
	errNoCode  = errors.New("no code holds")
	errTooMany = errors.New("the code was tried too often from there")
	errTaken   = errors.New("another device is being paired by the code")
)

// noCode is why no code holds, by what became of the last one. It is shown to the caller.
func noCode(of State) error {
	words := map[State]string{
		Expired: fmt.Sprintf("the code has expired: it held for %d minutes", int(Lifetime.Minutes())),
		Paired:  "the code was used already, for another device",
		UsedUp:  "the code was tried in vain too often",
	}[of]
	if words == "" {
		words = "no code is shown there now"
	}
	return &endedCode{words}
}

// endedCode is an errNoCode in words of its own.
type endedCode struct{ words string }

func (e *endedCode) Error() string { return e.words }

// Is reports whether target is errNoCode.
func (e *endedCode) Is(target error) bool { return target == errNoCode }

// begin uses one try up.
func (a *Acceptor) begin(from netip.Prefix, peer identity.PublicKey) (try, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Round(0).After(a.inv.Until) { // the timer stands still while this device sleeps
		a.end(Expired)
	}
	switch {
	case a.inv.State != Open:
		return try{}, noCode(a.inv.State)
	case a.taken:
		return try{}, errTaken
	case a.tries == 0 || a.used[from] >= maxTriesOfOne: // of 0 some are under way
		return try{}, errTooMany
	}
	a.tries--
	a.used[from]++
	a.trying++
	return try{a.inv.Secret, from, peer}, nil
}

// judge ends a try. A right one is given back, and takes the code.
func (a *Acceptor) judge(t try, right bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inv.State != Open || a.inv.Secret != t.secret {
		return errNoCode // any more
	}
	a.trying--
	if right {
		a.tries++
		a.used[t.from]--
		if a.taken {
			return errTaken
		}
		a.taken = true
		return nil
	}
	if a.tries == 0 && a.trying == 0 && !a.taken {
		a.end(UsedUp)
	}
	return errWrongCode
}

// settle ends what a right try has begun: who was met is written down, unless
// the code has ended meanwhile. If that fails, or none was met (nil), the code
// holds on.
func (a *Acceptor) settle(t try, m *met) (p identity.Peer, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inv.State != Open || a.inv.Secret != t.secret {
		return p, errEnded
	}
	a.taken = false
	if m == nil {
		return p, nil
	}
	if p, err = a.self.keep(*m); err == nil {
		a.end(Paired)
		a.inv.Met = p
	}
	return p, err
}

var errEnded = fault.New(fault.UnknownDevice, errors.New("the code has ended meanwhile"), "pair with the new one")

// prove lets the caller prove that it knows the code. After it without an error
// settle must be called.
func (a *Acceptor) prove(c *channel, from netip.Prefix) (try, error) {
	if c.peer == a.self.Key.Public() {
		return try{}, errItself
	}
	ke1, err := c.step(1)
	if err != nil {
		return try{}, err
	}
	t, err := a.begin(from, c.peer)
	if err != nil {
		code := wire.CodeLimit
		if errors.Is(err, errNoCode) {
			code = wire.CodeClosed
		}
		c.refuse(code, err.Error())
		return t, err
	}
	right, err := a.exchange(c, t, ke1)
	if judged := a.judge(t, right); judged != nil {
		c.refuse(wire.CodeForbidden, "the code is wrong, or holds no longer")
		return t, cmp.Or(err, judged)
	}
	return t, nil
}

// exchange is the key exchange from the acceptor's first message on.
func (a *Acceptor) exchange(c *channel, t try, ke1 []byte) (right bool, err error) {
	proof, ke2, err := answer(parties{c.peer, a.self.Key.Public(), c.binding}, t.secret, ke1)
	if err != nil {
		return false, fault.New(fault.Protocol, err, "")
	}
	if err := c.send(wire.PairStep{Number: 2, Bytes: ke2}); err != nil {
		return false, err
	}
	ke3, err := c.step(3)
	if err != nil {
		return false, fmt.Errorf("the caller does not prove that it knows the code: %w", err)
	}
	return proof.check(ke3) == nil, nil
}

// meet tells the caller who this is, and learns who it is.
func (a *Acceptor) meet(c *channel) (wire.PairAbout, error) {
	// Its roles are not known yet; servers are for helpers, and no device needs
	// to be told them for nothing.
	if err := c.send(a.self.introduce(wanted(a.self.About().Roles))); err != nil {
		return wire.PairAbout{}, err
	}
	return c.about()
}
