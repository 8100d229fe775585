// Package dial makes the connection that a PS-path or HS-path to a server is: over
// UDP where that is asked for and gets through, else over TCP; and has it go on from
// the new address of its interface. It stands between the roles and the transports,
// of which it knows TCP; who wires the program gives it the other one.
package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
)

// Tuning.
const (
	// udpHeadStart is how long UDP may take alone. Where it answers after one round trip it
	// is first by that, however long that is, and one packet of its handshake may be
	// lost (the next leaves after 100 ms). Where it does not, the first connection is
	// later by this much than TCP alone.
	udpHeadStart = 300 * time.Millisecond
	// lateUDPTimeout is how long UDP may answer when TCP was first, so that one knows whether
	// it gets through: a connection over TCP is the kernel's, one over UDP needs the
	// server's process, which may be busy, or asks for another round trip.
	lateUDPTimeout = 2 * time.Second
	// UDP is left alone on a way by which it did not get through, each time in turn for
	// twice as long: a server that is just starting, or losses, are over soon, and a
	// firewall stays.
	minUDPBackoff, maxUDPBackoff = 30 * time.Second, time.Hour
	// natKeepAlive is tcp.RadioKeepAlive for UDP, whose bindings NATs shall keep for two
	// minutes (RFC 4787 section 4.3). Those that forget sooner let nothing through to the
	// helper until it has sent something.
	natKeepAlive = 110 * time.Second
	// maxRoutes bounds what is remembered: more networks than a device sees in a day.
	maxRoutes = 64
	// Connections that fall silent within earlySilence of their beginning, the
	// maxSilent-th in turn, say that the network lets UDP through at the beginning alone.
	earlySilence = time.Minute
	maxSilent    = 2
)

// Any, in the place of an interface's name, is each of them.
const Any = "any"

// Conn is a connection to a server, or from there to a device; see tcp.Conn, which is
// one.
type Conn interface {
	pipe.Conn
	device.CountedConn
	tunable
	For(peer string)
	Peek(n int) ([]byte, error)
}

// tunable is what can be changed of one; see tcp.Conn.
type tunable interface {
	Pace(unit.Rate) error
	SetNotSentLowat(unit.Bytes) error
	SetKeepAlive(idle time.Duration) error
}

// UDPConn is one over UDP, from the end that dialled.
type UDPConn interface {
	Conn
	// Move goes on from the address that this device has now on the way to the other
	// end. If it fails nothing has changed.
	Move() error
}

// DialUDP connects over UDP to addr, "host:port", as far as Options say something of
// it, until ctx ends.
type DialUDP func(ctx context.Context, addr string, opt tcp.Options) (UDPConn, error)

// CheckCells checks that all goes over UDP by interfaces whose cells are heard, which
// only that can tell the server.
func CheckCells(cells map[string]device.Cell, udpLinks []string) error {
	for link := range cells {
		if !slices.Contains(udpLinks, link) && !slices.Contains(udpLinks, Any) {
			return fault.New(fault.Config, fmt.Errorf("cell names %q, and udp does not", link), "only what goes over UDP tells of cells: name it in `udp` too")
		}
	}
	return nil
}

// Dialer connects to servers. Safe for concurrent use; its variables are to be set
// before.
type Dialer struct {
	UDP      DialUDP        // nil: it cannot
	UDPLinks []string       // interfaces by which it goes over UDP; Any is each
	Usage    *device.Usage  // counts what connections carry; nil: nobody
	Purpose  policy.Purpose // for Usage

	fakeTCP   func(ctx context.Context, addr string, opt tcp.Options) (Conn, error)  // a fake in tests, or nil
	fakeRoute func(ctx context.Context, addr string, opt tcp.Options) (route, error) // a fake in tests, or nil

	mu          sync.Mutex
	udpBackoffs map[route]*udpBackoff
	silences    map[route]silence
}

// route is how a server is reached: what one learns of UDP there may be untrue in
// another network.
type route struct {
	link, server string
	localAddr    netip.Addr
}

// udpBackoff is that UDP did not get through.
type udpBackoff struct {
	until time.Time
	wait  backoff.Backoff
	why   string
}

// silence is that connections, so many in turn, soon fell silent, the last one then.
type silence struct {
	count int
	last  time.Time
}

// errUDPLate is why a connection goes over TCP where UDP gets through.
var errUDPLate = errors.New("UDP answered later than TCP")

// Dial connects to addr, "host:port", by TCP as opt says, but for the Ledger; and over
// UDP, if that is asked for of the interface by which it goes and did not fail there
// lately. TCP begins when UDP has not answered within a short time; what it then
// finds, good or bad, is what counts. If it is good, that UDP answers is still waited
// for in the background, some seconds at most, to know whether the next one is to try
// it. Errors are faults.
func (d *Dialer) Dial(ctx context.Context, addr string, opt tcp.Options) (Conn, error) {
	opt.Ledger = d.Usage.LedgerFor(d.Purpose)
	if w, ok := d.shouldTryUDP(ctx, addr, opt); ok {
		return d.raceUDP(ctx, w, opt)
	}
	return d.dialTCP(ctx, addr, opt)
}

func (d *Dialer) dialTCP(ctx context.Context, addr string, opt tcp.Options) (Conn, error) {
	if d.fakeTCP != nil {
		return d.fakeTCP(ctx, addr, opt)
	}
	c, err := tcp.Dial(ctx, addr, opt)
	if err != nil {
		return nil, err // not a nil *tcp.Conn in an interface
	}
	return c, nil
}

// shouldTryUDP tells whether UDP is to be tried, and by which way.
func (d *Dialer) shouldTryUDP(ctx context.Context, addr string, opt tcp.Options) (w route, ok bool) {
	named := func(link string) bool { return slices.Contains(d.UDPLinks, Any) || slices.Contains(d.UDPLinks, link) }
	if d.UDP == nil || len(d.UDPLinks) == 0 || opt.Interface != "" && !named(opt.Interface) {
		return w, false
	}
	w, err := d.findRoute(ctx, addr, opt)
	if err != nil || !named(w.link) {
		return w, false // TCP will tell what is the matter
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.udpBackoffs[w]
	return w, r == nil || !time.Now().Before(r.until)
}

// findRoute is by which way a connection would go now. Nothing is sent, but to resolve a
// name.
func (d *Dialer) findRoute(ctx context.Context, addr string, opt tcp.Options) (route, error) {
	if d.fakeRoute != nil {
		return d.fakeRoute(ctx, addr, opt)
	}
	c, err := (&net.Dialer{Control: opt.Bind}).DialContext(ctx, "udp", addr)
	if err != nil {
		return route{}, err
	}
	defer c.Close()
	at, _ := netip.ParseAddrPort(c.LocalAddr().String())
	return route{cmp.Or(opt.Interface, device.NetworkOf(c.LocalAddr())), addr, at.Addr()}, nil
}

// dialResult is what came of an attempt.
type dialResult struct {
	c   Conn
	err error
}

// raceUDP connects over UDP, or over TCP if that is later by more than it may be.
func (d *Dialer) raceUDP(ctx context.Context, w route, opt tcp.Options) (Conn, error) {
	udp, giveUp := context.WithCancel(context.WithoutCancel(ctx)) // it may go on when this has returned
	defer context.AfterFunc(ctx, giveUp)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	overUDP, overTCP := make(chan dialResult, 1), chan dialResult(nil)
	go func() {
		c, err := d.UDP(udp, w.server, opt)
		if err != nil {
			overUDP <- dialResult{nil, err} // no nil UDPConn in an interface
			return
		}
		overUDP <- dialResult{c, nil}
	}()
	startTCP := func() {
		overTCP = make(chan dialResult, 1)
		go func() {
			c, err := d.dialTCP(ctx, w.server, opt)
			overTCP <- dialResult{c, err}
		}()
	}
	headStartTimer := time.NewTimer(udpHeadStart)
	defer headStartTimer.Stop()
	why := fmt.Errorf("no answer over UDP within %v", udpHeadStart)
	for {
		select {
		case r := <-overUDP:
			giveUp() // what is made stays
			if r.err == nil {
				cancel()
				discardAttempt(overTCP)
				d.recordUDPWorks(w)
				return d.newMovingConn(r.c, w, opt), nil
			}
			why, overUDP = r.err, nil
			if overTCP == nil {
				startTCP()
			}
		case <-headStartTimer.C:
			if overTCP == nil {
				startTCP()
			}
		case r := <-overTCP:
			if r.err == nil {
				d.recordUDPFailure(w, why)
				if overUDP != nil {
					go d.awaitLateUDP(w, overUDP, giveUp)
				}
				return r.c, nil
			}
			giveUp()
			discardAttempt(overUDP)
			return nil, r.err
		}
	}
}

// awaitLateUDP ends an attempt over UDP that TCP was faster than, and takes back that UDP rests
// if it got through.
func (d *Dialer) awaitLateUDP(w route, attempt chan dialResult, giveUp func()) {
	defer giveUp()
	defer time.AfterFunc(lateUDPTimeout, giveUp).Stop()
	r := <-attempt
	if r.err != nil {
		return
	}
	_ = r.c.Abort()
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.udpBackoffs[w]; r != nil {
		r.wait.Reset()
		r.until, r.why = time.Now(), errUDPLate.Error()
	}
}

// discardAttempt waits for an attempt that was cancelled, and ends what came of it. Nil is none.
func discardAttempt(attempt chan dialResult) {
	if attempt == nil {
		return
	}
	if r := <-attempt; r.err == nil {
		_ = r.c.Abort()
	}
}

// RedialUDP connects over UDP alone, if that is asked for and does not rest: for who goes
// over TCP since it did not get through. Nil is that it is not to be tried now, or
// does not get through yet.
func (d *Dialer) RedialUDP(ctx context.Context, addr string, opt tcp.Options) Conn {
	w, ok := d.shouldTryUDP(ctx, addr, opt)
	if !ok {
		return nil
	}
	c, err := d.UDP(ctx, addr, opt)
	if err != nil {
		if context.Cause(ctx) != context.Canceled { // it had its time
			d.recordUDPFailure(w, err)
		}
		return nil
	}
	d.recordUDPWorks(w)
	return d.newMovingConn(c, w, opt)
}

// recordUDPWorks forgets that UDP did not get through.
func (d *Dialer) recordUDPWorks(w route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.udpBackoffs, w)
}

// recordUDPFailure leaves UDP alone on a way for a while.
func (d *Dialer) recordUDPFailure(w route, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	r := d.udpBackoffs[w]
	if r == nil {
		if d.udpBackoffs == nil {
			d.udpBackoffs = map[route]*udpBackoff{}
		}
		forgetOldest(d.udpBackoffs, func(r *udpBackoff) time.Time { return r.until })
		r = &udpBackoff{}
		d.udpBackoffs[w] = r
	}
	if now.Before(r.until) {
		return // several at once
	}
	r.until, r.why = now.Add(r.wait.Double(minUDPBackoff, maxUDPBackoff)), why.Error()
}

// WhyTCP says why what goes by an interface from a local address goes over TCP though UDP
// is asked for there; "" if that was not tried. An empty link is all interfaces.
func (d *Dialer) WhyTCP(link string, local net.Addr) (why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, _ := netip.ParseAddrPort(local.String())
	here := func(w route) bool {
		if link != "" && w.link != link {
			return false
		}
		return w.localAddr == at.Addr() || w.localAddr.Is4() != at.Addr().Is4() // TCP may have taken the server's other address
	}
	var last time.Time
	for w, r := range d.udpBackoffs {
		if here(w) && r.until.After(last) {
			last, why = r.until, r.why
			if left := time.Until(r.until); left > 0 {
				why = fmt.Sprintf("%s; UDP rests for another %v", why, left.Round(time.Second))
			}
		}
	}
	return why
}

// ReportSilent tells that nothing came by a connection that was made, so that UDP is left
// alone on its way: some networks let through the beginning alone. Over TCP it does
// nothing.
func (d *Dialer) ReportSilent(c net.Conn, why error) {
	if c, ok := c.(*movingConn); ok {
		d.mu.Lock()
		w := c.route
		d.mu.Unlock()
		d.recordUDPFailure(w, why)
	}
}

// ReportEnded tells that a connection has ended which began at a time; silent is that it was
// given up since nothing came by it any more, and nil another end. Where connections
// over UDP soon fall silent, one after the other, UDP is left alone. Over TCP it does
// nothing.
func (d *Dialer) ReportEnded(c net.Conn, began time.Time, silent error) {
	m, ok := c.(*movingConn)
	if !ok {
		return
	}
	d.mu.Lock()
	w, now := m.route, time.Now()
	s := d.silences[w]
	switch {
	case silent == nil || now.Sub(began) > earlySilence:
		delete(d.silences, w)
		s.count = 0
	case s.count == 0 || began.After(s.last): // else it fell silent together with another one
		if d.silences == nil {
			d.silences = map[route]silence{}
		}
		forgetOldest(d.silences, func(s silence) time.Time { return s.last })
		s = silence{s.count + 1, now}
		d.silences[w] = s
	}
	d.mu.Unlock()
	if s.count >= maxSilent {
		d.recordUDPFailure(w, silent)
	}
}

// forgetOldest forgets the oldest of what is remembered, if there is much.
func forgetOldest[T any](of map[route]T, at func(T) time.Time) {
	if len(of) >= maxRoutes {
		delete(of, slices.MinFunc(slices.Collect(maps.Keys(of)), func(a, b route) int { return at(of[a]).Compare(at(of[b])) }))
	}
}

// ErrElsewhere is that the way to the server goes by another interface now.
var ErrElsewhere = errors.New("the way to the server goes by another interface now")

// movingConn is a connection over UDP that is counted, and may move.
type movingConn struct {
	countedConn
	dialer *Dialer
	opt    tcp.Options
	route  route // local is guarded by d.mu
}

// newMovingConn counts a connection.
func (d *Dialer) newMovingConn(c Conn, w route, opt tcp.Options) *movingConn {
	return &movingConn{countedConn{c, d.Usage.CountConn(c, d.Purpose, opt.Interface, c.LocalAddr())}, d, opt, w}
}

// Move implements UDPConn. What is counted is of one link: ErrElsewhere is that it
// would be by another one.
func (c *movingConn) Move() error {
	ctx, cancel := context.WithTimeout(context.Background(), moveTimeout)
	defer cancel()
	w, err := c.dialer.findRoute(ctx, c.RemoteAddr().String(), c.opt)
	if err != nil {
		return err
	}
	if w.link != c.route.link {
		return ErrElsewhere
	}
	if err := c.Conn.(UDPConn).Move(); err != nil {
		return err
	}
	c.dialer.mu.Lock()
	defer c.dialer.mu.Unlock()
	c.route.localAddr = w.localAddr
	return nil
}

// moveTimeout bounds the look for another address, which asks nobody.
const moveTimeout = time.Second

// Move has a connection go on from the address that its interface has now. One over
// TCP cannot: errors.ErrUnsupported.
func Move(c net.Conn) error {
	if m, ok := c.(interface{ Move() error }); ok {
		return m.Move()
	}
	return errors.ErrUnsupported
}

// RadioKeepAlive is how long an HS-path, or a direct subflow over a cellular link, is idle
// before either end sends a keep-alive: nothing else may wake the radio of a device that
// is not used.
func RadioKeepAlive(c net.Conn) time.Duration {
	if c.LocalAddr().Network() == "udp" {
		return natKeepAlive
	}
	return tcp.RadioKeepAlive
}

// Count has a connection that came over UDP counted until it is closed, by who has
// its local address.
func Count(c Conn, u *device.Usage, p policy.Purpose) Conn {
	return &countedConn{c, u.CountConn(c, p, "", c.LocalAddr())}
}

type countedConn struct {
	Conn
	stopCounting func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.stopCounting() // what was written is still sent
	return c.Conn.Close()
}

// Abort ends it at once.
func (c *countedConn) Abort() error {
	defer c.stopCounting() // what was written is not sent any more
	return c.Conn.Abort()
}
