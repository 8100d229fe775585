// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/pace"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/estimate"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
)

// Tuning of linkShare.
const (
	shareInterval = 50 * time.Millisecond // while links are shared
	idleInterval  = time.Second           // otherwise
	// activeTime is how long after its last bytes a relay counts as active.
	activeTime = time.Second
	// Overhead of TCP and IP: headers of 52 bytes in packets of 1500, and acknowledgements of 52
	// bytes for every second packet of the other direction.
	headerFactor, ackFactor = 1500. / 1448, 52. / 2896
)

// linkShare gives the owner of a link priority over devices that share it. It counts the bytes of
// each relay and shared connection over an interface, and those of the owner. Package policy
// decides how much may be shared, and linkShare limits both ends of the HS-paths. The server sends
// the downlink and receives HOP_LIMIT; this device sends the uplink, and its ring applies
// back-pressure. The owner's bytes are those of a primary's direct subflows in this process, known
// at once, and the rest of the interface's counters, known a little later. Callers add relays and
// connections when they open and remove them when they close; they keep owning them. The only
// goroutines are those that send limits; runShareLoop waits for them. Safe for concurrent use.
type linkShare struct {
	clock       *pace.Clock
	log         *slog.Logger
	ownSubflows func() map[string]device.ConnBytes // of a primary here; nil without; set before runShareLoop

	readCounters func() (map[string]device.Counters, error) // fakes in tests
	interfaceOf  func(net.Addr) string

	sends sync.WaitGroup // limits on their way to servers

	mu             sync.Mutex                 // guards the fields below
	interfaceNames map[string]string          // by local address
	totals         map[string]device.Counters // at the last reading
	lastCounters   map[any]device.Counters    // of each flow, at the last update
	links          map[string]*sharedLink
	relays         map[*sharedRelay]struct{}
	conns          map[sharedConn]*sharedConnCount
}

// sharedConn is a connection outside the bond that serves another device: a *tcp.Conn, or a fake in
// tests.
type sharedConn interface {
	Probe() (estimate.Hop, error)
	LocalAddr() net.Addr
}

// sharedConnCount is the byte count of a sharedConn at the last update.
type sharedConnCount struct {
	device.Counters
	movedAt time.Time // when it last moved something
}

// sharedLink is an interface that is shared.
type sharedLink struct {
	down, up  sharedDirection
	ownerSent uint64 // bytes that the owner's direct subflows sent
}

// sharedDirection is one direction of a link. It counts all bytes with headers.
type sharedDirection struct {
	sharedBytes, directBytes float64 // of relays for others; of the owner's direct subflows
	otherTraffic             policy.OtherTraffic
	limiter                  policy.LinkShare
	grant                    policy.ShareDecision
}

// sharedRelay is the linkShare's view of a relay.
type sharedRelay struct {
	pipe     *pipe.Link
	hs       *pipe.HSPath
	link     string // interface of the HS-path; "": not limited
	movedAt  time.Time
	down, up unit.Rate // limits
	sending  atomic.Bool
}

func newLinkShare(clock *pace.Clock, log *slog.Logger) *linkShare {
	return &linkShare{
		clock:          clock,
		log:            log,
		readCounters:   device.ReadCounters,
		interfaceOf:    sharedInterfaceOf,
		interfaceNames: map[string]string{},
		lastCounters:   map[any]device.Counters{},
		links:          map[string]*sharedLink{},
		relays:         map[*sharedRelay]struct{}{},
		conns:          map[sharedConn]*sharedConnCount{},
	}
}

// addSharedRelay counts and limits a relay between two hops until removeSharedRelay.
func (s *linkShare) addSharedRelay(p *pipe.Link, hs *pipe.HSPath) *sharedRelay {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &sharedRelay{pipe: p, hs: hs}
	s.relays[r] = struct{}{}
	return r
}

func (s *linkShare) removeSharedRelay(r *sharedRelay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.relays, r)
}

// newShareLedger returns a ledger that counts its connections as shared and passes them on to next,
// which may be nil.
func (s *linkShare) newShareLedger(next tcp.Ledger) tcp.Ledger { return shareLedger{s, next} }

type shareLedger struct {
	share *linkShare
	next  tcp.Ledger
}

// Opened implements tcp.Ledger.
func (l shareLedger) Opened(c *tcp.Conn) {
	l.share.addSharedConn(c)
	if l.next != nil {
		l.next.Opened(c)
	}
}

// Carrying implements tcp.Ledger.
func (l shareLedger) Carrying() {
	if l.next != nil {
		l.next.Carrying()
	}
}

// Closing implements tcp.Ledger.
func (l shareLedger) Closing(c *tcp.Conn) {
	l.share.removeSharedConn(c)
	if l.next != nil {
		l.next.Closing(c)
	}
}

func (s *linkShare) addSharedConn(c sharedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = &sharedConnCount{}
}

// removeSharedConn removes c and counts its bytes since the last update.
func (s *linkShare) removeSharedConn(c sharedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.conns[c]; n != nil {
		s.countSharedBytes(c, n, time.Now())
		delete(s.conns, c)
	}
}

// countSharedBytes adds the bytes of c since the last update to its interface, if that is shared.
// mu must be held.
func (s *linkShare) countSharedBytes(c sharedConn, n *sharedConnCount, now time.Time) {
	p, err := c.Probe()
	if err != nil {
		return
	}
	before := n.Counters
	n.Counters = device.Counters{Rx: max(p.WireIn, before.Rx), Tx: max(p.WireOut, before.Tx)}
	if n.Counters == before {
		return
	}
	n.movedAt = now
	if link := s.links[s.interfaceName(c.LocalAddr())]; link != nil {
		link.down.sharedBytes += float64(n.Rx - before.Rx)
		link.up.sharedBytes += float64(n.Tx - before.Tx)
	}
}

// runShareLoop updates limits until ctx ends, and waits for its goroutines.
func (s *linkShare) runShareLoop(ctx context.Context) {
	defer s.sends.Wait()
	t := s.clock.NewTicker(s.updateShareLimits(time.Now()))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(s.updateShareLimits(time.Now()))
		}
	}
}

// updateShareLimits counts and decides once. It returns the wait before the next update.
func (s *linkShare) updateShareLimits(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[any]device.Counters{}
	for r := range s.relays {
		s.countRelay(r, now, seen)
	}
	for c, n := range s.conns {
		s.countSharedBytes(c, n, now)
	}
	if len(s.links) == 0 {
		s.lastCounters = seen
		return idleInterval
	}
	s.readTotals()
	if s.ownSubflows != nil {
		s.countOwner(s.ownSubflows(), seen)
	}
	s.lastCounters = seen
	for name, link := range s.links {
		link.down.updateGrant(now, s.totals[name].Rx, link.ownerSent)
		link.up.updateGrant(now, s.totals[name].Tx, 0)
	}
	s.divideGrants(now)
	if len(s.relays) == 0 {
		clear(s.links)
		return idleInterval
	}
	return shareInterval
}

// readTotals reads the counters of interfaces. An interface with unreadable counters keeps its
// last values. mu must be held.
func (s *linkShare) readTotals() {
	totals, err := s.readCounters()
	if err != nil && !errors.Is(err, os.ErrPermission) && !errors.Is(err, os.ErrNotExist) {
		s.log.Debug("no counters of interfaces", "err", err)
	}
	for name, c := range s.totals {
		if _, ok := totals[name]; !ok {
			if totals == nil {
				totals = map[string]device.Counters{}
			}
			totals[name] = c
		}
	}
	s.totals = totals
}

// countOwner adds the bytes of the owner's direct subflows since the last update. mu must be held.
func (s *linkShare) countOwner(flows map[string]device.ConnBytes, seen map[any]device.Counters) {
	for key, f := range flows {
		rx, tx := s.movedSince(key, device.Counters{Rx: f.Rx, Tx: f.Tx}, seen)
		if link := s.links[s.interfaceName(f.Local)]; link != nil {
			link.addPayload(rx, tx, func(d *sharedDirection) *float64 { return &d.directBytes })
			link.ownerSent += uint64(tx)
		}
	}
}

// countRelay adds the bytes of a relay since the last update to its interface. mu must be held.
func (s *linkShare) countRelay(r *sharedRelay, now time.Time, seen map[any]device.Counters) {
	if r.link == "" {
		if r.link = s.interfaceName(r.hs.LocalAddr()); r.link == "" {
			return
		}
	}
	link := s.links[r.link]
	if link == nil {
		link = &sharedLink{}
		s.links[r.link] = link
	}
	if rx, tx := s.countHopBytes(link, r.hs, seen); rx+tx > 0 {
		r.movedAt = now
	}
	if s.interfaceName(r.pipe.LocalAddr()) == r.link { // a pipe may have moved to another interface
		s.countHopBytes(link, r.pipe, seen)
	}
}

// countHopBytes adds the bytes of one hop of a relay to an interface. Retransmissions of an HS-path
// count each time, as in the interface's counters; otherwise they would look like the owner's
// traffic. Without WireIn, received bytes count when they are in order.
func (s *linkShare) countHopBytes(link *sharedLink, hop pipe.Hop, seen map[any]device.Counters) (rx, tx float64) {
	p, err := hop.Probe()
	switch {
	case err == nil && p.WireOut > 0:
		rx, tx = s.movedSince(hop, device.Counters{Rx: p.WireIn, Tx: p.WireOut}, seen)
		link.down.sharedBytes += rx
		link.up.sharedBytes += tx
		return rx, tx
	case err == nil && p.Received > 0:
		rx, tx = s.movedSince(
			hop,
			device.Counters{Rx: p.Received, Tx: p.Acked + uint64(max(p.Queue-p.Unsent, 0))},
			seen,
		)
	default:
		rx, tx = s.movedSince(hop, device.Counters{Rx: hop.Received(), Tx: hop.Sent()}, seen)
	}
	link.addPayload(rx, tx, func(d *sharedDirection) *float64 { return &d.sharedBytes })
	return rx, tx
}

// movedSince returns the bytes of a flow since the last update, 0 for a new flow. mu must be held.
func (s *linkShare) movedSince(key any, c device.Counters, seen map[any]device.Counters) (rx, tx float64) {
	before, known := s.lastCounters[key]
	const wrapped = 1 << 32 // the kernel counts packets in 32 bits: so large a step back is a wrap
	if !known || before.Rx > c.Rx+wrapped || before.Tx > c.Tx+wrapped {
		before = c
	}
	seen[key] = device.Counters{Rx: max(c.Rx, before.Rx), Tx: max(c.Tx, before.Tx)} // both may fall a little
	return float64(seen[key].Rx - before.Rx), float64(seen[key].Tx - before.Tx)
}

// interfaceName returns the interface with a local address, "" if there is none. mu must be held.
func (s *linkShare) interfaceName(local net.Addr) string {
	if local == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(local.String())
	if err != nil {
		return ""
	}
	name, ok := s.interfaceNames[host]
	if !ok {
		if len(s.interfaceNames) > 100 {
			clear(s.interfaceNames) // addresses have changed a lot
		}
		name = s.interfaceOf(local)
		s.interfaceNames[host] = name
	}
	return name
}

// sharedInterfaceOf returns the interface with a local address, "" for loopback, which is not
// shared.
func sharedInterfaceOf(local net.Addr) string {
	if a, err := netip.ParseAddrPort(local.String()); err != nil || a.Addr().IsLoopback() {
		return ""
	}
	return device.InterfaceOf(local)
}

// addPayload counts received and sent payload.
func (l *sharedLink) addPayload(rx, tx float64, of func(*sharedDirection) *float64) {
	*of(&l.down) += rx*headerFactor + tx*ackFactor
	*of(&l.up) += tx*headerFactor + rx*ackFactor
}

// updateGrant asks policy how much may be shared. total is the interface's counter, 0 if there is
// none.
func (d *sharedDirection) updateGrant(now time.Time, total, ownerSent uint64) {
	owner := uint64(d.directBytes)
	if total > 0 {
		owner += d.otherTraffic.Observe(now, total, uint64(d.directBytes+d.sharedBytes))
	}
	d.grant = d.limiter.Observe(
		now,
		policy.LinkBytes{Owner: owner, Shared: uint64(d.sharedBytes), Total: total, Requested: ownerSent},
	)
}

// divideGrants divides what may be shared equally among active relays. Active shared connections
// count as parts too, though nothing limits them. mu must be held.
func (s *linkShare) divideGrants(now time.Time) {
	active := map[string]int{}
	for r := range s.relays {
		if now.Sub(r.movedAt) < activeTime {
			active[r.link]++
		}
	}
	for c, n := range s.conns {
		if now.Sub(n.movedAt) < activeTime {
			active[s.interfaceName(c.LocalAddr())]++
		}
	}
	for r := range s.relays {
		link := s.links[r.link]
		if link == nil {
			continue
		}
		n := unit.Rate(max(active[r.link], 1))
		adjustLimit(&r.down, link.down.grant, n)
		adjustLimit(&r.up, link.up.grant, n)
		// Our own end first: a paced hop that is idle would keep its pace until its queue is sent.
		_ = r.hs.Pace(r.up) // its reader or writer notices if it has ended
		if !r.sending.CompareAndSwap(false, true) {
			continue // the last limit is still being sent
		}
		down := r.down
		s.sends.Go(func() {
			defer r.sending.Store(false)
			_ = r.hs.SendLimit(down)
		})
	}
}

// adjustLimit sets a limit to an n-th of the grant, unless it is close to that.
func adjustLimit(limit *unit.Rate, g policy.ShareDecision, n unit.Rate) {
	want := unit.Rate(0)
	if g.Limited {
		want = max(g.Limit/n, 1)
	}
	if want == 0 || *limit == 0 || max(want, *limit)-min(want, *limit) > *limit/10 {
		*limit = want
	}
}

// ShareStatus is what may be shared of an interface now.
type ShareStatus struct {
	Interface string
	Down, Up  policy.ShareDecision
}

// listSharedLinks returns what may be shared, sorted by interface.
func (s *linkShare) listSharedLinks() (list []ShareStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.links {
		list = append(list, ShareStatus{name, l.down.grant, l.up.grant})
	}
	slices.SortFunc(list, func(a, b ShareStatus) int { return strings.Compare(a.Interface, b.Interface) })
	return list
}
