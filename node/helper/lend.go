package helper

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/estimate"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
)

// Tuning of the manager.
const (
	lendTick = 50 * time.Millisecond // while something is lent
	lendRest = time.Second           // else
	// lentLately is how long a relay counts as one that shares the limit.
	lentLately = time.Second
	// What TCP and IP add to the bytes of a connection: headers of 52 in packets
	// of 1500, and acknowledgements of 52 for each second packet of the other
	// direction.
	headers, acks = 1500. / 1448, 52. / 2896
)

// manager sees to it that the owner of a link keeps priority over those who
// borrow it: it knows what each relay moves over an interface and what the
// owner does, has package policy decide what may be lent, and makes the ends of
// the HS-path keep to it. The sending end of the downlink is the server, which
// is told; of the uplink it is this device, whose ring then pushes back.
//
// What connections outside the bond carry for other devices is lent too: see CountLent.
// The owner's bytes are those of the direct subflows of a primary in this
// process, known at once, and what else the interface's counters show, known a
// little later, whatever program it is.
type manager struct {
	h   *Helper
	own func() map[string]device.Flow // of a primary here; nil without

	counters    func() (map[string]device.Counters, error) // fakes in tests
	interfaceOf func(net.Addr) string

	names  map[string]string          // of interfaces, by local address
	totals map[string]device.Counters // as last read
	seen   map[any]device.Counters    // what a flow had moved when last asked

	mu      sync.Mutex // guards below, and names
	links   map[string]*lentLink
	carried map[carrier]*carried
}

// carrier is a connection outside the bond that carries something for another device: a
// *tcp.Conn, or a fake in tests.
type carrier interface {
	Probe() (estimate.Hop, error)
	LocalAddr() net.Addr
}

// carried is what a carrier had moved when it was last asked.
type carried struct {
	device.Counters
	at time.Time // when it last moved something
}

// lentLink is an interface that is lent.
type lentLink struct {
	down, up lentLane
	asked    uint64 // bytes that the direct subflows sent
}

// lentLane is one direction of it: bytes moved in all, headers included.
type lentLane struct {
	lent, owned float64
	rest        policy.Rest
	lender      policy.Lender
	grant       policy.Grant
}

// lent is what the manager knows of a relay.
type lent struct {
	link     string // interface of the HS-path, "" if it is not managed
	moved    time.Time
	down, up unit.Rate // limits
	telling  atomic.Bool
}

func newManager(h *Helper) *manager {
	return &manager{h: h, counters: device.ReadCounters, interfaceOf: networkOf, names: map[string]string{},
		seen: map[any]device.Counters{}, links: map[string]*lentLink{}, carried: map[carrier]*carried{}}
}

// ShareWith has the manager know what a primary in this process moves over its
// direct subflows, each by a key that is never used again. It is to be called
// before Run.
func (h *Helper) ShareWith(own func() map[string]device.Flow) { h.manager.own = own }

// CountLent returns a ledger for connections that carry something for other devices without
// a bond, as onloading does: what they move counts as lent, not as the owner's. They are
// passed on to next, which may be nil.
func (h *Helper) CountLent(next tcp.Ledger) tcp.Ledger { return lentLedger{h, next} }

type lentLedger struct {
	h    *Helper
	next tcp.Ledger
}

// Opened implements tcp.Ledger.
func (l lentLedger) Opened(c *tcp.Conn) {
	l.h.manager.addCarrier(c)
	if l.next != nil {
		l.next.Opened(c)
	}
}

// Closing implements tcp.Ledger.
func (l lentLedger) Closing(c *tcp.Conn) {
	l.h.manager.removeCarrier(c)
	if l.next != nil {
		l.next.Closing(c)
	}
}

func (m *manager) addCarrier(c carrier) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.carried[c] = &carried{}
}

// removeCarrier counts what c has moved since the last tick, too.
func (m *manager) removeCarrier(c carrier) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.carried[c]; n != nil {
		m.countCarrier(c, n, time.Now())
		delete(m.carried, c)
	}
}

// countCarrier adds what c has moved since it was last asked to its interface, if that is
// managed. mu must be held.
func (m *manager) countCarrier(c carrier, n *carried, now time.Time) {
	p, err := c.Probe()
	if err != nil {
		return
	}
	before := n.Counters
	n.Counters = device.Counters{Rx: max(p.WireIn, before.Rx), Tx: max(p.WireOut, before.Tx)}
	if n.Counters == before {
		return
	}
	n.at = now
	if link := m.links[m.name(c.LocalAddr())]; link != nil {
		link.down.lent += float64(n.Rx - before.Rx)
		link.up.lent += float64(n.Tx - before.Tx)
	}
}

// run manages until ctx ends. All waits for what it has started.
func (m *manager) run(ctx context.Context, all *sync.WaitGroup) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			t.Reset(m.tick(now, all))
		}
	}
}

// tick decides once and returns when to do so again.
func (m *manager) tick(now time.Time, all *sync.WaitGroup) time.Duration {
	m.h.mu.Lock()
	relays := make(map[*relay]*lent, len(m.h.relays))
	for r, f := range m.h.relays {
		relays[r] = &f.lent
	}
	m.h.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[any]device.Counters{}
	for r, l := range relays {
		m.count(r, l, now, seen)
	}
	for c, n := range m.carried {
		m.countCarrier(c, n, now)
	}
	if len(m.links) == 0 {
		m.seen = seen
		return lendRest
	}
	totals, err := m.counters()
	if err != nil && !errors.Is(err, os.ErrPermission) && !errors.Is(err, os.ErrNotExist) {
		m.h.log.Debug("no counters of interfaces", "err", err)
	}
	for name, c := range m.totals { // one that cannot be read now has not gone back to 0
		if _, ok := totals[name]; !ok {
			if totals == nil {
				totals = map[string]device.Counters{}
			}
			totals[name] = c
		}
	}
	m.totals = totals
	if m.own != nil {
		for key, f := range m.own() {
			rx, tx := m.moved(key, device.Counters{Rx: f.Rx, Tx: f.Tx}, seen)
			if link := m.links[m.name(f.Local)]; link != nil {
				link.add(rx, tx, func(d *lentLane) *float64 { return &d.owned })
				link.asked += uint64(tx)
			}
		}
	}
	m.seen = seen
	for name, link := range m.links {
		link.down.decide(now, totals[name].Rx, link.asked)
		link.up.decide(now, totals[name].Tx, 0)
	}
	m.divide(now, relays, all)
	if len(relays) == 0 {
		clear(m.links)
		return lendRest
	}
	return lendTick
}

// count adds what a relay has moved since the last tick to its interface.
func (m *manager) count(r *relay, l *lent, now time.Time, seen map[any]device.Counters) {
	if l.link == "" {
		if l.link = m.name(r.hs.LocalAddr()); l.link == "" {
			return
		}
	}
	link := m.links[l.link]
	if link == nil {
		link = &lentLink{}
		m.links[l.link] = link
	}
	if rx, tx := m.lend(link, r.hs, seen); rx+tx > 0 {
		l.moved = now
	}
	if m.name(r.pipe.LocalAddr()) == l.link { // a pipe may be replaced by one over another interface
		m.lend(link, r.pipe, seen)
	}
}

// lend adds what one hop of a relay has moved over an interface. What an
// HS-path sent again because it was lost counts each time, as it does in the
// interface's counter: else it would look like the owner's. What comes in counts
// when it is in order.
func (m *manager) lend(link *lentLink, hop *pipe.Link, seen map[any]device.Counters) (rx, tx float64) {
	p, err := hop.Probe()
	switch {
	case err == nil && p.WireOut > 0:
		rx, tx = m.moved(hop, device.Counters{Rx: p.WireIn, Tx: p.WireOut}, seen)
		link.down.lent += rx
		link.up.lent += tx
		return rx, tx
	case err == nil && p.Received > 0:
		rx, tx = m.moved(hop, device.Counters{Rx: p.Received, Tx: p.Acked + uint64(max(p.Queue-p.Unsent, 0))}, seen)
	default:
		rx, tx = m.moved(hop, device.Counters{Rx: hop.Received(), Tx: hop.Sent()}, seen)
	}
	link.add(rx, tx, func(d *lentLane) *float64 { return &d.lent })
	return rx, tx
}

// moved is how much more a flow has moved than at the last tick, 0 for one that
// was not there then.
func (m *manager) moved(key any, c device.Counters, seen map[any]device.Counters) (rx, tx float64) {
	before, known := m.seen[key]
	const wrapped = 1 << 32 // the kernel counts packets in 32 bits: so much back is no small error
	if !known || before.Rx > c.Rx+wrapped || before.Tx > c.Tx+wrapped {
		before = c
	}
	seen[key] = device.Counters{Rx: max(c.Rx, before.Rx), Tx: max(c.Tx, before.Tx)} // Tx may fall a little
	return float64(seen[key].Rx - before.Rx), float64(seen[key].Tx - before.Tx)
}

// name is the interface that has a local address, "" if that is not a network's.
func (m *manager) name(local net.Addr) string {
	if local == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(local.String())
	if err != nil {
		return ""
	}
	name, ok := m.names[host]
	if !ok {
		if len(m.names) > 100 {
			clear(m.names) // addresses have changed a lot
		}
		name = m.interfaceOf(local)
		m.names[host] = name
	}
	return name
}

// networkOf is the interface that has a local address, but for loopback, which
// nobody need share.
func networkOf(local net.Addr) string {
	if a, err := netip.ParseAddrPort(local.String()); err != nil || a.Addr().IsLoopback() {
		return ""
	}
	return device.InterfaceOf(local)
}

// add counts payload that came and left.
func (l *lentLink) add(rx, tx float64, of func(*lentLane) *float64) {
	*of(&l.down) += rx*headers + tx*acks
	*of(&l.up) += tx*headers + rx*acks
}

// decide has the policy decide. Total is the interface's counter, 0 if there is
// none.
func (d *lentLane) decide(now time.Time, total, asked uint64) {
	own := uint64(d.owned)
	if total > 0 {
		own += d.rest.Observe(now, total, uint64(d.owned+d.lent))
	}
	d.grant = d.lender.Observe(now, policy.Moved{Own: own, Lent: uint64(d.lent), Total: total, Asked: asked})
}

// divide gives each relay its part of what may be lent. What carriers move is a part too,
// though nothing limits them.
func (m *manager) divide(now time.Time, relays map[*relay]*lent, all *sync.WaitGroup) {
	active := map[string]int{}
	for _, l := range relays {
		if now.Sub(l.moved) < lentLately {
			active[l.link]++
		}
	}
	for c, n := range m.carried {
		if now.Sub(n.at) < lentLately {
			active[m.name(c.LocalAddr())]++
		}
	}
	for r, l := range relays {
		link := m.links[l.link]
		if link == nil {
			continue
		}
		n := unit.Rate(max(active[l.link], 1))
		adjust(&l.down, link.down.grant, n)
		adjust(&l.up, link.up.grant, n)
		// Not behind what is told: a hop that takes nothing, being paced, would
		// keep its pace for as long as what it has takes at that pace.
		_ = r.hs.Pace(l.up) // whoever reads or writes there learns of its end
		if !l.telling.CompareAndSwap(false, true) {
			continue // it holds up nobody else
		}
		down := l.down
		all.Go(func() {
			defer l.telling.Store(false)
			_ = r.hs.SendLimit(down)
		})
	}
}

// adjust makes a limit what is granted, shared by n, unless it is nearly that.
func adjust(limit *unit.Rate, g policy.Grant, n unit.Rate) {
	want := unit.Rate(0)
	if g.Limited {
		want = max(g.Limit/n, 1)
	}
	if want == 0 || *limit == 0 || max(want, *limit)-min(want, *limit) > *limit/10 {
		*limit = want
	}
}

// Lent tells what may be lent of an interface now.
type Lent struct {
	Interface string
	Down, Up  policy.Grant
}

func (m *manager) status() (list []Lent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, l := range m.links {
		list = append(list, Lent{name, l.down.grant, l.up.grant})
	}
	slices.SortFunc(list, func(a, b Lent) int { return strings.Compare(a.Interface, b.Interface) })
	return list
}
