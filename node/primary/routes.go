package primary

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// classesEvery is how often classes are brought up to date, besides when subflows
// come and go: a pipe may have changed, or a subflow fallen silent.
const classesEvery = 100 * time.Millisecond

// linkName is what a subflow goes over, as rules name it, besides its device.
// Guarded by Primary.mu.
type linkName struct {
	own     bool   // it is an own link
	local   string // address that pipe was found for
	pipe    string
	conn    net.Conn  // of a direct subflow
	moved   int       // how many times that went on from another address
	last    time.Time // when it did, or lacked one, last
	carrier           // the helper, or the own interface
	tier    wire.Tier // that it joined with
}

// classOf returns the traffic class of what a rule says; nil is class 0. mu must be held.
func (p *Primary) classOf(t *policy.Treatment) (wire.GroupID, error) {
	id, added, err := p.classes.number(t, p.cur.e.Groups)
	if added {
		p.replan()
	}
	return id, err
}

// replan sends the bond what has changed about classes. mu must be held.
func (p *Primary) replan() {
	if len(p.classes.list) == 0 {
		return
	}
	if plan, changed := p.classes.plan(p.routes(), time.Now()); changed {
		p.cur.e.SetPlan(plan)
	}
}

// routing returns what there is to carry something now.
func (p *Primary) routing() routing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return routing{p.routes(), p.classes.first()}
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
		names = append(append(names, p.names.all()...), n.link)
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

// keepClasses keeps classes up to date until ctx ends, and ends streams whose class
// has had no subflow for too long, but for new ones, which wait a while as others
// do; see awaitSubflow.
func (p *Primary) keepClasses(ctx context.Context) {
	t := time.NewTicker(classesEvery)
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
		for _, c := range p.classes.emptyFor(time.Now(), giveUp) {
			p.cur.e.FailGroup(c.id, min(giveUp, leastPatience), wire.Reset{Code: wire.CodeTimeout,
				Text: fmt.Sprintf("no device that policy allows for it has worked for %v", c.gone.Round(time.Second))})
		}
		p.mu.Unlock()
	}
}
