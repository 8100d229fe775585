package primary

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mpbond/control/device"
	"mpbond/control/policy"
)

// autoInterfaces in Config.Interfaces stands for the interfaces that have a
// default route, whichever these are at the time.
const autoInterfaces = "auto"

// uplinkEvery is how often uplinks are looked at, besides when the system says
// that routes have changed.
const uplinkEvery = time.Second

var errNotWanted = errors.New("the interface is not in use any more")

// uplink is an interface of this device, found or named. Its variables are
// guarded by Primary.mu.
type uplink struct {
	up     int // subflows by it
	since  time.Time
	reason string                  // why it is open or not
	end    context.CancelCauseFunc // closes its subflows; nil while it shall have none
}

// keepUplinks keeps direct subflows over the interfaces that policy chooses. While
// there is one alone, or none, a subflow goes by the system's routes; so it does
// where interfaces cannot be listed.
func (p *Primary) keepUplinks(ctx context.Context) {
	changed, err := device.WatchUplinks(ctx)
	if err != nil {
		p.log.Debug("changes of interfaces are noticed late", "err", err)
	}
	t := time.NewTicker(uplinkEvery)
	defer t.Stop()
	logged := false
	for {
		if err := p.updateUplinks(ctx, time.Now()); err != nil && !logged {
			logged = true
			p.log.Info("interfaces are not found: the system's routes decide", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-changed:
		}
	}
}

// updateUplinks looks at the interfaces once, and opens and closes as policy chooses.
func (p *Primary) updateUplinks(ctx context.Context, now time.Time) error {
	found, err := p.findUplinks()
	if len(found) == 0 || len(found) == 1 && !p.hasNamed() {
		found = []string{""}
	}
	if err == nil || !p.hasUplinks() { // what is open stays while one cannot look
		p.chooseUplinks(ctx, now, found)
	}
	return err
}

// ownUplinks lists the interfaces by which the Internet is reached, without tunnels,
// whose bytes go by another of these; none if the system reaches the server by none
// of them: it is this device itself, on a local network, or behind a VPN.
func (p *Primary) ownUplinks() ([]string, error) {
	found, err := device.Uplinks()
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, device.IsTunnel)
	if len(found) < 2 || p.reachedBy(found) {
		return found, nil
	}
	return nil, nil
}

// reachedBy reports whether the system's routes lead to an address of the server by
// one of some interfaces, or to none of its addresses at all.
func (p *Primary) reachedBy(links []string) bool {
	server, _ := p.server.get()
	ctx, cancel := context.WithTimeout(context.Background(), uplinkEvery)
	defer cancel()
	elsewhere := false
	for _, a := range server.Addresses {
		link, ok := p.ways.Via(ctx, a, p.cfg.mark())
		if ok && slices.Contains(links, link) {
			return true
		}
		elsewhere = elsewhere || ok
	}
	return !elsewhere
}

// hasNamed reports whether a subflow by a named interface has been used: the last one of
// several keeps its subflow.
func (p *Primary) hasNamed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.uplinks {
		if name != "" {
			return true
		}
	}
	return false
}

func (p *Primary) hasUplinks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.uplinks) > 0
}

// chooseUplinks opens and closes, so that what is open is what policy chooses.
func (p *Primary) chooseUplinks(ctx context.Context, now time.Time, found []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, u := range p.uplinks {
		if !slices.Contains(found, name) {
			if p.isAwaited(name, found) {
				continue
			}
			p.closeUplink(name, u, "it has no default route any more")
			delete(p.uplinks, name)
		}
	}
	list := make([]policy.Uplink, len(found))
	for i, name := range found {
		u := p.uplinks[name]
		if u == nil {
			u = &uplink{since: now}
			p.uplinks[name] = u
		}
		list[i] = policy.Uplink{Name: name, Metered: p.standings.costsByDefault(name), Open: u.end != nil, Up: u.up > 0, Since: u.since}
	}
	for i, c := range policy.Uplinks(now, list) {
		name := found[i]
		u := p.uplinks[name]
		u.reason = c.Reason
		switch {
		case c.Open && u.end == nil && !p.ending:
			p.log.Info("interface in use", "interface", name, "reason", c.Reason)
			p.openUplink(ctx, name, u)
		case !c.Open:
			p.closeUplink(name, u, c.Reason)
		}
	}
}

// isAwaited reports whether an uplink that is not found any more carries on until one of
// those that are found does, so that the bond is never without a subflow: the system's
// routes until an interface is up, and interfaces that are up until a subflow by the
// system's routes is, as when a VPN comes. mu must be held.
func (p *Primary) isAwaited(name string, found []string) bool {
	if slices.ContainsFunc(found, p.isUp) {
		return false
	}
	return name == "" || slices.Contains(found, "") && p.isUp(name)
}

// isUp reports whether a subflow goes by an interface. mu must be held.
func (p *Primary) isUp(name string) bool {
	u := p.uplinks[name]
	return u != nil && u.up > 0
}

func (p *Primary) openUplink(ctx context.Context, name string, u *uplink) {
	kept, end := context.WithCancelCause(ctx)
	u.end = end
	for range max(p.cfg.Subflows, 1) {
		p.wg.Go(func() {
			defer end(nil)
			p.keepDirect(kept, name)
		})
	}
}

func (p *Primary) closeUplink(name string, u *uplink, reason string) {
	if u.end != nil {
		p.log.Info("interface not in use", "interface", name, "reason", reason)
		u.end(errNotWanted)
		u.end = nil
	}
}

// uplinkChanged tells that there is a subflow more or less by an interface.
func (p *Primary) uplinkChanged(name string, by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u := p.uplinks[name]; u != nil {
		was := u.up > 0
		if u.up = max(u.up+by, 0); was != (u.up > 0) {
			u.since = time.Now()
		}
	}
}

// DirectFlows tells what the direct subflows have moved so far, each by a key
// that is never used again.
func (p *Primary) DirectFlows() map[string]device.Flow {
	p.mu.Lock()
	s := p.cur
	p.mu.Unlock()
	flows := map[string]device.Flow{}
	for id, f := range s.e.DirectFlows() {
		flows[fmt.Sprintf("%v/%d", s.id, id)] = device.Flow(f)
	}
	return flows
}
