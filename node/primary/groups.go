package primary

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/pipe"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// groupsEvery is how often groups are brought up to date, besides when subflows
// come and go: a pipe may have changed, or a subflow fallen silent.
const groupsEvery = 100 * time.Millisecond

// planned is a group of the bond's plan: what rules treat alike. Guarded by
// Primary.mu.
type planned struct {
	id    wire.GroupID
	treat *policy.Treatment
	key   string     // of treat
	now   wire.Group // as the bond was told
	told  bool       // it was, this session
	empty time.Time  // since when there is no subflow for it; zero: there is one
}

// linkName is what a subflow goes over, as rules name it, besides its device.
// Guarded by Primary.mu.
type linkName struct {
	own    bool   // it is an own link
	local  string // address that pipe was found for
	pipe   string
	link   string      // the own interface
	conn   net.Conn    // of a direct subflow
	moved  int         // how many times that went on from another address
	last   time.Time   // when it did, or lacked one, last
	helper *helperSlot // nil: it is direct
	tier   wire.Tier   // that it joined with
	rx, tx unit.Bytes  // that a helper's radio was metered for
}

var errTooMany = errors.New("the connections that are open are of too many different kinds of rules, also of rules that are in force no more")

// groupOf is the number of the group for what a rule says; nil is group 0. Mu is
// held.
func (p *Primary) groupOf(t *policy.Treatment) (wire.GroupID, error) {
	if t == nil {
		return 0, nil
	}
	i := slices.IndexFunc(p.groups, func(g *planned) bool { return g.treat == t })
	if i < 0 { // the file was read anew, or another rule says the same
		key := t.Key()
		i = slices.IndexFunc(p.groups, func(g *planned) bool { return g.key == key })
	}
	if i >= 0 {
		p.groups[i].treat = t
		return p.groups[i].id, nil
	}
	if len(p.groups) == wire.MaxGroups {
		used := p.cur.e.Groups()
		p.groups = slices.DeleteFunc(p.groups, func(g *planned) bool { return !used[g.id] })
	}
	if len(p.groups) == wire.MaxGroups {
		return 0, wire.Reset{Code: wire.CodeLimit, Text: errTooMany.Error()}
	}
	p.newest++
	p.groups = append(p.groups, &planned{id: p.newest, treat: t, key: t.Key()})
	p.replan()
	return p.newest, nil
}

// replan tells the bond what has changed about groups. Mu is held.
func (p *Primary) replan() {
	if len(p.groups) == 0 {
		return
	}
	routes := p.routes()
	changed := false
	plan := make([]wire.Group, 0, len(p.groups))
	for _, g := range p.groups {
		was := wire.PathID(0)
		if len(g.now.Paths) > 0 {
			was = g.now.Paths[0]
		}
		n := g.treat.Group(g.id, routes, was)
		plan = append(plan, n)
		if g.told && slices.Equal(n.Paths, g.now.Paths) {
			continue
		}
		g.now, g.told, changed = n, true, true
		switch {
		case !n.Limited || len(n.Paths) > 0:
			g.empty = time.Time{}
		case g.empty.IsZero():
			g.empty = time.Now()
		}
	}
	if changed {
		p.cur.e.SetPlan(plan)
	}
}

// routes are the subflows as rules name them. Mu is held.
func (p *Primary) routes() (list []policy.Route) {
	for _, a := range p.cur.e.Status(false).Subflows {
		id := a.ID
		n := p.cur.names[id]
		if n == nil {
			continue // it is just joining
		}
		r := policy.Route{ID: id, Own: !a.Helped, Names: p.routeNames(a.Device, n), Tier: n.tier, Silent: a.PathInfo.Silent, Delay: a.PAD}
		if l := p.cur.links[id]; l != nil && !l.Broken() {
			r.Pipe = n.pipeOf(l)
		}
		list = append(list, r)
	}
	return list
}

// routeNames are those by which rules may mean the device of a subflow. Mu is held.
func (p *Primary) routeNames(device string, n *linkName) []string {
	names := []string{device}
	if n.own {
		names = append(append(names, p.ownNames()...), n.link)
	}
	return names
}

func (n *linkName) pipeOf(l *pipe.Link) string {
	if at := l.LocalAddr(); at.String() != n.local {
		n.local = at.String()
		if n.pipe = device.InterfaceOf(at); n.pipe == "" && l.Radio() == wire.RadioBluetooth || strings.HasPrefix(l.RemoteAddr().Network(), "rfcomm") {
			n.pipe = "bluetooth"
		}
	}
	return n.pipe
}

// nameLink notes what a subflow goes over. Mu is held.
func (p *Primary) nameLink(s *session, id wire.PathID, c net.Conn) {
	n := &linkName{}
	if s.links[id] == nil {
		n.own, n.link, n.conn = true, device.InterfaceOf(c.LocalAddr()), c
	}
	s.names[id] = n
}

// keepGroups keeps groups up to date until ctx ends, and ends streams whose group
// has had no subflow for too long, but for new ones, which wait a while as others
// do; see awaitSubflow.
func (p *Primary) keepGroups(ctx context.Context) {
	t := time.NewTicker(groupsEvery)
	defer t.Stop()
	giveUp := time.Duration(p.cfg.GiveUp)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		p.mu.Lock()
		p.replan()
		for _, g := range p.groups {
			if gone := time.Since(g.empty); !g.empty.IsZero() && gone > giveUp {
				p.cur.e.FailGroup(g.id, min(giveUp, leastPatience), wire.Reset{Code: wire.CodeTimeout,
					Text: fmt.Sprintf("no device that policy allows for it has worked for %v", gone.Round(time.Second))})
			}
		}
		p.mu.Unlock()
	}
}

// bondOnly is a stream that rules keep to some devices, so that it must not be
// connected without the bond where the server cannot reach its destination.
type bondOnly struct{ *endpoint.Conn }

// OnlyBond implements intercept.BondOnly.
func (bondOnly) OnlyBond() {}
