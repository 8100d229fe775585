// SPDX-License-Identifier: Apache-2.0

// Package dial connects to servers, for PS-paths and HS-paths: over UDP where this is configured
// and works, otherwise over TCP. It also moves a connection over UDP to a new address of its
// interface. It stands between the roles and the transports. It knows TCP; the program passes it
// the UDP transport.
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
	// udpHeadStart is how long UDP is tried alone. It wins if it answers within this time; one lost
	// packet of its handshake is tolerated, since the next one leaves after 100 ms. If UDP does not
	// work, the first connection takes this much longer than with TCP alone.
	udpHeadStart = 300 * time.Millisecond
	// lateUDPTimeout is how long UDP may still answer after TCP has won, to find out whether it
	// works. The kernel answers TCP; UDP needs the server's process, which may be busy, or ask for
	// another round trip.
	lateUDPTimeout = 2 * time.Second
	// Where UDP has failed it is not tried for a while, which doubles with each failure. A server
	// that is starting, or losses, are over soon; a firewall stays.
	minUDPBackoff, maxUDPBackoff = 30 * time.Second, time.Hour
	// natKeepAlive is tcp.RadioKeepAlive for UDP. NATs should keep UDP bindings for two minutes
	// (RFC 4787 section 4.3). A NAT that drops them earlier blocks packets to the helper until it
	// sends some itself.
	natKeepAlive = 110 * time.Second
	// maxRoutes bounds the remembered routes: more networks than a device sees in a day.
	maxRoutes = 64
	// If maxSilent connections in a row fall silent within earlySilence of their start, the network
	// probably lets only the beginning of UDP connections through.
	earlySilence = time.Minute
	maxSilent    = 2
)

// Any, in place of an interface's name, means all interfaces.
const Any = "any"

// Conn is a connection to a server, or from a device at the server; see tcp.Conn, which implements
// it.
type Conn interface {
	pipe.Conn
	device.CountedConn
	tunable
	SetPeerName(peer string)
	Peek(n int) ([]byte, error)
}

// tunable holds the adjustable settings of a Conn; see tcp.Conn.
type tunable interface {
	Pace(unit.Rate) error
	SetNotSentLowat(unit.Bytes) error
	SetKeepAlive(idle time.Duration) error
}

// UDPConn is a connection over UDP at the dialling end.
type UDPConn interface {
	Conn
	// Move continues the connection from this device's current address towards the other end. On
	// failure nothing has changed.
	Move() error
}

// DialUDP connects over UDP to addr, "host:port", until ctx ends. It uses those options that apply
// to UDP.
type DialUDP func(ctx context.Context, addr string, opt tcp.Options) (UDPConn, error)

// CheckCells checks that interfaces with a configured cell use UDP: only UDP carries cell reports
// to the server.
func CheckCells(cells map[string]device.Cell, udpLinks []string) error {
	for link := range cells {
		if !slices.Contains(udpLinks, link) && !slices.Contains(udpLinks, Any) {
			return fault.New(fault.Config, fmt.Errorf("cell is set for %q, but udp is not", link),
				"cell reports need UDP: add the interface to `udp`")
		}
	}
	return nil
}

// Dialer connects to servers. Safe for concurrent use. Set its fields before use.
type Dialer struct {
	UDP      DialUDP        // nil: UDP is not available
	UDPLinks []string       // interfaces that use UDP; Any means all
	Usage    *device.Usage  // counts the traffic of connections; nil: not counted
	Purpose  policy.Purpose // for Usage

	fakeTCP   func(ctx context.Context, addr string, opt tcp.Options) (Conn, error)  // replaces tcp.Dial in tests
	fakeRoute func(ctx context.Context, addr string, opt tcp.Options) (route, error) // replaces findRoute in tests

	mu          sync.Mutex
	udpBackoffs map[route]*udpBackoff
	silences    map[route]silence
}

// route is a path to a server. What is known about UDP on one route need not hold in another
// network.
type route struct {
	link, server string
	localAddr    netip.Addr
}

// udpBackoff records that UDP has failed on a route.
type udpBackoff struct {
	until time.Time
	wait  backoff.Backoff
	why   string
}

// silence counts consecutive connections that soon fell silent. last is the time of the newest.
type silence struct {
	count int
	last  time.Time
}

// errUDPLate is the reason for TCP on a route where UDP works.
var errUDPLate = errors.New("UDP answered later than TCP")

// Dial connects to addr, "host:port", over TCP with opt, except opt.Ledger. It uses UDP instead if
// that is configured for the interface and has not failed there recently. TCP starts when UDP has
// not answered after udpHeadStart, and its result then decides. After TCP has won, Dial keeps
// waiting for UDP in the background for some seconds, to know whether to try it next time. Errors
// are faults.
func (d *Dialer) Dial(ctx context.Context, addr string, opt tcp.Options) (Conn, error) {
	opt.Ledger = d.Usage.LedgerFor(d.Purpose)
	if w, ok := d.shouldTryUDP(ctx, addr, opt); ok {
		return d.raceUDP(ctx, w, opt)
	}
	return d.dialTCP(ctx, addr, opt)
}

// dialTCP dials by TCP, or by fakeTCP in tests.
func (d *Dialer) dialTCP(ctx context.Context, addr string, opt tcp.Options) (Conn, error) {
	if d.fakeTCP != nil {
		return d.fakeTCP(ctx, addr, opt)
	}
	c, err := tcp.Dial(ctx, addr, opt)
	if err != nil {
		return nil, err // avoids a nil *tcp.Conn in the interface
	}
	return c, nil
}

// shouldTryUDP reports whether to try UDP, and on which route.
func (d *Dialer) shouldTryUDP(ctx context.Context, addr string, opt tcp.Options) (w route, ok bool) {
	named := func(link string) bool { return slices.Contains(d.UDPLinks, Any) || slices.Contains(d.UDPLinks, link) }
	if d.UDP == nil || len(d.UDPLinks) == 0 || opt.Interface != "" && !named(opt.Interface) {
		return w, false
	}
	w, err := d.findRoute(ctx, addr, opt)
	if err != nil || !named(w.link) {
		return w, false // TCP will report the problem
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.udpBackoffs[w]
	return w, r == nil || !time.Now().Before(r.until)
}

// findRoute returns the route that a connection would take now. It sends nothing, except to resolve
// a name.
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

// dialResult is the result of an attempt.
type dialResult struct {
	c   Conn
	err error
}

// raceUDP connects over UDP, or over TCP if UDP is too slow.
func (d *Dialer) raceUDP(ctx context.Context, w route, opt tcp.Options) (Conn, error) {
	udp, giveUp := context.WithCancel(context.WithoutCancel(ctx)) // may outlive this call
	defer context.AfterFunc(ctx, giveUp)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	overUDP, overTCP := make(chan dialResult, 1), chan dialResult(nil)
	go func() {
		c, err := d.UDP(udp, w.server, opt)
		if err != nil {
			overUDP <- dialResult{nil, err} // avoids a nil UDPConn in the interface
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
			giveUp() // does not affect an established connection
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

// awaitLateUDP waits for an attempt over UDP that lost against TCP, and closes it. If it succeeded,
// it ends the backoff of UDP.
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

// discardAttempt waits for a cancelled attempt and closes its connection, if any. attempt may be
// nil.
func discardAttempt(attempt chan dialResult) {
	if attempt == nil {
		return
	}
	if r := <-attempt; r.err == nil {
		_ = r.c.Abort()
	}
}

// RedialUDP connects over UDP alone, if that is configured and its backoff has ended. It is for
// connections that use TCP because UDP failed. It returns nil if UDP is not to be tried now, or
// still fails.
func (d *Dialer) RedialUDP(ctx context.Context, addr string, opt tcp.Options) Conn {
	w, ok := d.shouldTryUDP(ctx, addr, opt)
	if !ok {
		return nil
	}
	c, err := d.UDP(ctx, addr, opt)
	if err != nil {
		if context.Cause(ctx) != context.Canceled { // it had enough time
			d.recordUDPFailure(w, err)
		}
		return nil
	}
	d.recordUDPWorks(w)
	return d.newMovingConn(c, w, opt)
}

// recordUDPWorks clears the backoff of UDP on a route.
func (d *Dialer) recordUDPWorks(w route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.udpBackoffs, w)
}

// recordUDPFailure starts or extends the backoff of UDP on a route.
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
		return // several failed at once
	}
	r.until, r.why = now.Add(r.wait.Double(minUDPBackoff, maxUDPBackoff)), why.Error()
}

// WhyTCP returns why connections from local by an interface use TCP although UDP is configured; ""
// if UDP was not tried. An empty link means all interfaces.
func (d *Dialer) WhyTCP(link string, local net.Addr) (why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, _ := netip.ParseAddrPort(local.String())
	here := func(w route) bool {
		if link != "" && w.link != link {
			return false
		}
		// TCP may use the server's address of the other family
		return w.localAddr == at.Addr() || w.localAddr.Is4() != at.Addr().Is4()
	}
	var last time.Time
	for w, r := range d.udpBackoffs {
		if here(w) && r.until.After(last) {
			last, why = r.until, r.why
			if left := time.Until(r.until); left > 0 {
				why = fmt.Sprintf("%s; UDP is tried again in %v", why, left.Round(time.Second))
			}
		}
	}
	return why
}

// ReportSilent reports that nothing arrived over an established connection. UDP then backs off on
// its route, because some networks let only the beginning through. For TCP it does nothing.
func (d *Dialer) ReportSilent(c net.Conn, why error) {
	if c, ok := c.(*movingConn); ok {
		d.mu.Lock()
		w := c.route
		d.mu.Unlock()
		d.recordUDPFailure(w, why)
	}
}

// ReportEnded reports the end of a connection that began at began. silent is the reason if it was
// given up because nothing arrived any more, otherwise nil. If several connections over UDP in a
// row soon fall silent, UDP backs off. For TCP it does nothing.
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
	case s.count == 0 || began.After(s.last): // otherwise it fell silent together with another one
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

// forgetOldest removes the oldest entry if the map is full.
func forgetOldest[T any](routes map[route]T, timeOf func(T) time.Time) {
	if len(routes) >= maxRoutes {
		delete(routes, slices.MinFunc(slices.Collect(maps.Keys(routes)),
			func(a, b route) int { return timeOf(routes[a]).Compare(timeOf(routes[b])) }))
	}
}

// ErrElsewhere means that the server is now reached by another interface.
var ErrElsewhere = errors.New("the server is now reached by another interface")

// movingConn is a counted connection over UDP that can move.
type movingConn struct {
	countedConn
	dialer *Dialer
	opt    tcp.Options
	route  route // localAddr is guarded by dialer.mu
}

// newMovingConn wraps and counts a connection.
func (d *Dialer) newMovingConn(c Conn, w route, opt tcp.Options) *movingConn {
	end := d.Usage.CountConn(c, d.Purpose, opt.Interface, c.LocalAddr())
	return &movingConn{countedConn{c, d.Usage, end}, d, opt, w}
}

// Move implements UDPConn. It returns ErrElsewhere if the connection would move to another link,
// since traffic is counted for one link.
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

// moveTimeout bounds the search for the new address, which sends nothing.
const moveTimeout = time.Second

// Move moves a connection to the current address of its interface. For TCP it returns
// errors.ErrUnsupported.
func Move(c net.Conn) error {
	if m, ok := c.(interface{ Move() error }); ok {
		return m.Move()
	}
	return errors.ErrUnsupported
}

// RadioKeepAlive returns how long an HS-path, or a direct subflow over a cellular link, may be idle
// before either end sends a keep-alive. Nothing else may wake the radio of an unused device.
func RadioKeepAlive(c net.Conn) time.Duration {
	if c.LocalAddr().Network() == "udp" {
		return natKeepAlive
	}
	return tcp.RadioKeepAlive
}

// Count counts the traffic of an accepted UDP connection until it closes, for the interface with
// its local address.
func Count(c Conn, u *device.Usage, p policy.Purpose) Conn {
	return &countedConn{c, u, u.CountConn(c, p, "", c.LocalAddr())}
}

type countedConn struct {
	Conn
	usage        *device.Usage
	stopCounting func()
}

// Read implements net.Conn.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.usage.NoteCarrying()
	}
	return n, err
}

// Write implements net.Conn.
func (c *countedConn) Write(p []byte) (int, error) {
	c.usage.NoteCarrying()
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.stopCounting() // written data is still sent
	return c.Conn.Close()
}

// Abort closes the connection at once.
func (c *countedConn) Abort() error {
	defer c.stopCounting() // written data is no longer sent
	return c.Conn.Abort()
}
