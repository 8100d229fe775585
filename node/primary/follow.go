package primary

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"time"

	"mpbond/api"
	"mpbond/control/device"
	"mpbond/link/wire"
	"mpbond/node/dial"
)

// errSilent is that a subflow was given up, since nothing came by it.
var errSilent = errors.New("silent")

// silent is err if that is why a subflow was given up, else nil.
func silent(err error) error {
	if errors.Is(err, errSilent) {
		return err
	}
	return nil
}

// addresses are this device's own, and those that it had before.
type addresses struct {
	list  func() (map[netip.Addr]bool, error) // device.Addresses; a fake in tests
	known map[netip.Addr]bool
	now   map[netip.Addr]bool // as listed last
	other bool                // they have changed since changed was called
}

// changed reports whether the addresses have changed since it was called last.
func (a *addresses) changed() bool {
	other := a.other
	a.other = false
	return other
}

// lost returns a function that tells whether an address is no longer this device's;
// one that no interface ever had is of another kind.
func (a *addresses) lost() func(net.Addr) bool {
	present, err := a.list()
	if err != nil {
		return func(net.Addr) bool { return false } // what is there stays while one cannot look
	}
	for ip := range present {
		a.known[ip] = true
	}
	a.other = a.other || a.now != nil && !maps.Equal(a.now, present)
	a.now = present
	return func(local net.Addr) bool {
		at, err := netip.ParseAddrPort(local.String())
		ip := at.Addr().Unmap().WithZone("")
		return err == nil && a.known[ip] && !present[ip]
	}
}

// follow has direct subflows whose interface has got another address go on from there,
// if they can: those over UDP.
func (p *Primary) follow(lost func(net.Addr) bool) {
	type one struct {
		id wire.PathID
		n  *linkName
	}
	p.mu.Lock()
	s, list := p.cur, []one(nil)
	for id, n := range s.names {
		if n.conn != nil {
			list = append(list, one{id, n})
		}
	}
	p.mu.Unlock()
	for _, o := range list {
		before := o.n.conn.LocalAddr()
		if !lost(before) {
			continue
		}
		err := dial.Move(o.n.conn)
		if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, dial.ErrElsewhere) {
			continue // it is given up as silent
		}
		p.mu.Lock()
		o.n.last = time.Now()
		if err == nil {
			o.n.moved++
		}
		p.mu.Unlock()
		if err != nil {
			p.log.Debug("subflow has lost its address", "path", o.id, "err", err)
		} else {
			p.log.Info("subflow goes on from another address", "path", o.id, "before", before, "now", o.n.conn.LocalAddr())
		}
	}
}

// moves tells whether a silent subflow may have something to say soon: it went on from
// another address, or looks for one.
func (p *Primary) moves(s *session, id wire.PathID, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := s.names[id]
	return n != nil && now.Sub(n.last) < silentLimit
}

// newAddresses begins with those that there are now.
func newAddresses() *addresses {
	a := &addresses{list: device.Addresses, known: map[netip.Addr]bool{}}
	a.lost()
	return a
}

// describeWays adds to direct subflows why they do not go over UDP, and how many times
// they went on from another address.
func (p *Primary) describeWays(s *session, list []api.Path) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range list {
		n := s.names[wire.PathID(list[i].ID)]
		if n == nil || n.conn == nil {
			continue
		}
		list[i].Migrated = n.moved
		if list[i].Transport != "udp" {
			list[i].Fallback = p.paths.Why(n.link, n.conn.LocalAddr())
		}
	}
}
