// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"mpbond/base/pace"
	"mpbond/control/device"
	"mpbond/control/policy"
)

// autoInterfaces in Config.Interfaces selects the interfaces that currently have a default route.
const autoInterfaces = "auto"

// uplinkInterval is how often uplinks are listed.
const uplinkInterval = time.Second

var errUplinkUnused = errors.New("the interface is no longer used")

// uplinks manages the interfaces of this device that reach the Internet. runUplinks lists them as
// they come and go, lets policy choose, and starts and stops supervise for each. supervise gets a
// context that ends with errUplinkUnused when the interface is no longer used. With one interface,
// with none, or if they cannot be listed, the name is "": the system's routes decide. An uplink
// that has disappeared stays until another one is up, so that the bond keeps a subflow. Safe for
// concurrent use; no other lock is taken while mu is held.
type uplinks struct {
	listInterfaces func() ([]string, error)
	isMetered      func(name string) bool // its data costs money
	supervise      func(ctx context.Context, name string)
	clock          *pace.Clock
	log            *slog.Logger

	mu  sync.Mutex
	all map[string]*uplink
	wg  sync.WaitGroup // of supervise
}

// uplink is one interface. uplinks.mu must be held.
type uplink struct {
	subflows int // current count
	since    time.Time
	reason   string                  // why it is open or not
	stop     context.CancelCauseFunc // ends its subflows; nil while it has none
}

// runUplinks opens and closes uplinks as policy chooses, until ctx ends and all have ended.
func (u *uplinks) runUplinks(ctx context.Context) {
	defer u.wg.Wait()
	t := u.clock.NewTicker(uplinkInterval)
	defer t.Stop()
	logged := false
	for {
		if err := u.updateUplinks(ctx, time.Now()); err != nil && !logged {
			logged = true
			u.log.Info("cannot list interfaces: using the system's routes", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// updateUplinks lists the interfaces once and applies the choice of policy.
func (u *uplinks) updateUplinks(ctx context.Context, now time.Time) error {
	found, err := u.listInterfaces()
	named, any := u.hasUplinks()
	if len(found) == 0 || len(found) == 1 && !named {
		found = []string{""}
	}
	if err == nil || !any { // without a list, open uplinks stay
		if u.applyUplinkChoice(ctx, now, found) {
			u.clock.Wake()
		}
	}
	return err
}

// hasUplinks reports whether there is a named uplink and whether there is any. The last named
// uplink keeps its subflow.
func (u *uplinks) hasUplinks() (named, any bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for name := range u.all {
		named = named || name != ""
	}
	return named, len(u.all) > 0
}

// applyUplinkChoice opens and closes uplinks so that they match the choice of policy among found. It
// reports whether time alone changes the choice within some seconds.
func (u *uplinks) applyUplinkChoice(ctx context.Context, now time.Time, found []string) (isPassing bool) {
	list := make([]policy.Uplink, len(found))
	for i, name := range found {
		list[i] = policy.Uplink{Name: name, Metered: u.isMetered(name)}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, one := range u.all {
		if !slices.Contains(found, name) && !u.isUplinkAwaited(name, found) {
			u.closeUplink(name, one, "it no longer has a default route")
			delete(u.all, name)
		}
	}
	for i, name := range found {
		one := u.all[name]
		if one == nil {
			one = &uplink{since: now}
			u.all[name] = one
		}
		list[i].Open, list[i].Up, list[i].Since = one.stop != nil, one.subflows > 0, one.since
	}
	for i, c := range policy.Uplinks(now, list) {
		name := found[i]
		one := u.all[name]
		one.reason, isPassing = c.Reason, isPassing || c.IsPassing
		switch {
		case c.Open && one.stop == nil && ctx.Err() == nil:
			u.log.Info("interface in use", "interface", name, "reason", c.Reason)
			kept, end := context.WithCancelCause(ctx)
			one.stop = end
			u.wg.Go(func() {
				defer end(nil)
				u.supervise(kept, name)
			})
		case !c.Open:
			u.closeUplink(name, one, c.Reason)
		}
	}
	return isPassing
}

// isUplinkAwaited reports whether an uplink that has disappeared stays until a found one is up, so
// that the bond keeps a subflow. The system's routes stay until an interface is up. Interfaces that
// are up stay until a subflow over the system's routes is up, as when a VPN starts. mu must be
// held.
func (u *uplinks) isUplinkAwaited(name string, found []string) bool {
	if slices.ContainsFunc(found, u.hasUplinkSubflow) {
		return false
	}
	return name == "" || slices.Contains(found, "") && u.hasUplinkSubflow(name)
}

// hasUplinkSubflow reports whether an interface has a subflow. mu must be held.
func (u *uplinks) hasUplinkSubflow(name string) bool {
	one := u.all[name]
	return one != nil && one.subflows > 0
}

// closeUplink ends the subflows over an uplink. mu must be held.
func (u *uplinks) closeUplink(name string, one *uplink, reason string) {
	if one.stop != nil {
		u.log.Info("interface not in use", "interface", name, "reason", reason)
		one.stop(errUplinkUnused)
		one.stop = nil
	}
}

// countSubflow adds by to the subflow count of an interface.
func (u *uplinks) countSubflow(name string, by int) {
	if u.changeSubflowCount(name, by) {
		u.clock.Wake() // policy may decide otherwise some seconds from now
	}
}

// changeSubflowCount does the work of countSubflow. It reports whether the interface has its first
// subflow, or lost its last one.
func (u *uplinks) changeSubflowCount(name string, by int) (changed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := u.all[name]
	if one == nil {
		return false
	}
	was := one.subflows > 0
	one.subflows = max(one.subflows+by, 0)
	if changed = was != (one.subflows > 0); changed {
		one.since = time.Now()
	}
	return changed
}

// uplinkFinder lists the interfaces that reach the Internet.
type uplinkFinder struct {
	server *serverPeer
	mark   int // firewall mark of sockets
	routes device.Routes
}

// findUplinks lists the interfaces without tunnels: their bytes go over another one of these. It
// returns none if the routes to the server use none of them: the server is on this device or a
// local network, or behind a VPN.
func (f *uplinkFinder) findUplinks() ([]string, error) {
	found, err := device.Uplinks()
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, device.IsTunnel)
	if len(found) < 2 || f.routesReachServer(found) {
		return found, nil
	}
	return nil, nil
}

// routesReachServer reports whether the system's routes lead to an address of the server over one
// of ifaces, or to none of its addresses at all.
func (f *uplinkFinder) routesReachServer(ifaces []string) bool {
	server, _ := f.server.currentServer()
	ctx, cancel := context.WithTimeout(context.Background(), uplinkInterval)
	defer cancel()
	elsewhere := false
	for _, a := range server.Addresses {
		iface, ok := f.routes.LinkVia(ctx, a, f.mark)
		if ok && slices.Contains(ifaces, iface) {
			return true
		}
		elsewhere = elsewhere || ok
	}
	return !elsewhere
}
