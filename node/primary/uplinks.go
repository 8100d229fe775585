package primary

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"mpbond/control/device"
	"mpbond/control/policy"
)

// autoInterfaces in Config.Interfaces stands for the interfaces that have a
// default route, whichever these are at the time.
const autoInterfaces = "auto"

// uplinkInterval is how often uplinks are looked at, besides when the system says
// that routes have changed.
const uplinkInterval = time.Second

var errUplinkUnused = errors.New("the interface is not in use any more")

// uplinks are the interfaces of this device that reach the Internet. run finds them as they
// come and go, has policy choose, and opens and closes what carries subflows over each: keep
// is called with a context that ends, with errUplinkUnused, when the interface is no longer to be
// used. While there is one alone, or none, or none can be listed, the name is "": the system's
// routes decide. An uplink that is not found any more goes on until another one is up, so that
// the bond is never without a subflow. Safe for concurrent use; no other lock is taken while
// its own is held.
type uplinks struct {
	listInterfaces func() ([]string, error)
	isMetered      func(name string) bool // data over it costs money
	supervise      func(ctx context.Context, name string)
	log            *slog.Logger

	mu  sync.Mutex
	all map[string]*uplink
	wg  sync.WaitGroup // of keep
}

// uplink is one interface. uplinks.mu must be held.
type uplink struct {
	subflows int // subflows by it
	since    time.Time
	reason   string                  // why it is open or not
	stop     context.CancelCauseFunc // closes its subflows; nil while it shall have none
}

// runUplinks keeps the uplinks that policy chooses until ctx ends and nothing is left of them.
func (u *uplinks) runUplinks(ctx context.Context) {
	defer u.wg.Wait()
	changed, err := device.WatchUplinks(ctx)
	if err != nil {
		u.log.Debug("changes of interfaces are noticed late", "err", err)
	}
	t := time.NewTicker(uplinkInterval)
	defer t.Stop()
	logged := false
	for {
		if err := u.updateUplinks(ctx, time.Now()); err != nil && !logged {
			logged = true
			u.log.Info("interfaces are not found: the system's routes decide", "err", err)
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
func (u *uplinks) updateUplinks(ctx context.Context, now time.Time) error {
	found, err := u.listInterfaces()
	named, any := u.hasUplinks()
	if len(found) == 0 || len(found) == 1 && !named {
		found = []string{""}
	}
	if err == nil || !any { // what is open stays while one cannot look
		u.applyChoice(ctx, now, found)
	}
	return err
}

// hasUplinks reports whether there is an uplink with a name, of which the last one keeps its
// subflow, and whether there is any.
func (u *uplinks) hasUplinks() (named, any bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for name := range u.all {
		named = named || name != ""
	}
	return named, len(u.all) > 0
}

// applyChoice opens and closes, so that what is open is what policy chooses of those found.
func (u *uplinks) applyChoice(ctx context.Context, now time.Time, found []string) {
	list := make([]policy.Uplink, len(found))
	for i, name := range found {
		list[i] = policy.Uplink{Name: name, Metered: u.isMetered(name)}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, one := range u.all {
		if !slices.Contains(found, name) && !u.isAwaited(name, found) {
			u.closeUplink(name, one, "it has no default route any more")
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
		one.reason = c.Reason
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
}

// isAwaited reports whether an uplink that is not found any more carries on until one of
// those that are found does, so that the bond is never without a subflow: the system's
// routes until an interface is up, and interfaces that are up until a subflow by the
// system's routes is, as when a VPN comes. mu must be held.
func (u *uplinks) isAwaited(name string, found []string) bool {
	if slices.ContainsFunc(found, u.isUp) {
		return false
	}
	return name == "" || slices.Contains(found, "") && u.isUp(name)
}

// isUp reports whether a subflow goes by an interface. mu must be held.
func (u *uplinks) isUp(name string) bool {
	one := u.all[name]
	return one != nil && one.subflows > 0
}

// closeUplink has what is kept over an uplink end. mu must be held.
func (u *uplinks) closeUplink(name string, one *uplink, reason string) {
	if one.stop != nil {
		u.log.Info("interface not in use", "interface", name, "reason", reason)
		one.stop(errUplinkUnused)
		one.stop = nil
	}
}

// countSubflow counts a subflow more or less by an interface.
func (u *uplinks) countSubflow(name string, by int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one := u.all[name]; one != nil {
		was := one.subflows > 0
		if one.subflows = max(one.subflows+by, 0); was != (one.subflows > 0) {
			one.since = time.Now()
		}
	}
}

// uplinkFinder lists the interfaces by which the Internet is reached.
type uplinkFinder struct {
	server *serverPeer
	mark   int // of sockets
	routes device.Routes
}

// findUplinks lists them without tunnels, whose bytes go by another of these; none if the system
// reaches the server by none of them: it is this device itself, on a local network, or
// behind a VPN.
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

// routesReachServer reports whether the system's routes lead to an address of the server by
// one of some interfaces, or to none of its addresses at all.
func (f *uplinkFinder) routesReachServer(links []string) bool {
	server, _ := f.server.current()
	ctx, cancel := context.WithTimeout(context.Background(), uplinkInterval)
	defer cancel()
	elsewhere := false
	for _, a := range server.Addresses {
		link, ok := f.routes.LinkVia(ctx, a, f.mark)
		if ok && slices.Contains(links, link) {
			return true
		}
		elsewhere = elsewhere || ok
	}
	return !elsewhere
}
