package primary

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"mpbond/api"
	"mpbond/device"
	"mpbond/paths"
	"mpbond/tcp"
	"mpbond/wire"
)

// dial connects to the server, over UDP where that is asked for and gets through.
func (p *Primary) dial(ctx context.Context, iface, addr string) (paths.Conn, error) {
	return p.paths.Dial(ctx, addr, tcp.Options{Congestion: p.cfg.Congestion, Interface: iface, UserTimeout: userTimeout, Mark: p.cfg.mark()})
}

// errSilent is that a subflow was given up, since nothing came by it.
var errSilent = errors.New("silent")

const (
	// A subflow that falls silent within soonSilent, for the mostSilent-th time in turn,
	// says that the network lets UDP through at the beginning alone.
	soonSilent = time.Minute
	mostSilent = 2
)

// silences counts, for one keeper, subflows in turn that soon fell silent.
type silences int

// ended takes why the subflow of a connection has ended, that began at a time.
func (n *silences) ended(p *Primary, c net.Conn, began time.Time, err error) {
	if !errors.Is(err, errSilent) || time.Since(began) > soonSilent {
		*n = 0
	} else if *n++; *n >= mostSilent {
		p.paths.Lost(c, err)
	}
}

// addresses are this device's own, and those that it had before.
type addresses struct {
	list  func() (map[netip.Addr]bool, error) // device.Addresses; a fake in tests
	known map[netip.Addr]bool
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
		if err := paths.Move(o.n.conn); err != nil {
			p.log.Debug("subflow has lost its address", "path", o.id, "err", err)
			continue // the next look finds it again, until it is given up as silent
		}
		p.log.Info("subflow goes on from another address", "path", o.id, "before", before, "now", o.n.conn.LocalAddr())
		p.mu.Lock()
		o.n.moved++
		p.mu.Unlock()
	}
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
			list[i].Fallback = p.paths.Why(n.link)
		}
	}
}
