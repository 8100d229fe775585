package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/base/unit"
	mydevice "mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/core/trace"
)

// useCaps has the role keep its links, and other devices, to the caps of its policy.
// Self reports whether a name there means this device; each of spent is told of what
// may carry nothing more. It is to be called before serve.
func (r *role) useCaps(self func(name string) bool, rules func() *policy.Rules, spent ...func(of mydevice.Bounded, a policy.Allowance)) {
	r.caps = mydevice.NewCaps(r.usage, func(name string) mydevice.Bounded { return r.bounded(self, name) },
		func() map[string]policy.Caps { return r.onload.addCaps(rules().Caps()) },
		func(name string, of mydevice.Bounded, before, now policy.Allowance) {
			if of == (mydevice.Bounded{}) {
				name = allLinks
			}
			r.tellCap(name, before, now)
			if now.Level == policy.CapReached {
				for _, tell := range spent {
					tell(of, now)
				}
			}
		})
	r.capsOf = rules
}

// bounded is what caps by a name bound. Of a device that is both helped and helps,
// that is what this one carries for it, which costs its owner.
func (r *role) bounded(self func(name string) bool, name string) mydevice.Bounded {
	peer, known := r.trust.LookupName(name)
	switch {
	case name == allOnloading:
		return mydevice.Bounded{By: policy.ForOnload}
	case self(name):
		return mydevice.Bounded{}
	case known && r.name != "primary" && peer.Is(identity.RolePrimary):
		return mydevice.Bounded{Peer: peer.Key.ID().String(), By: policy.ForPath}
	case known && r.name != "helper" && peer.Is(identity.RoleHelper):
		return mydevice.Bounded{Peer: peer.Key.ID().String(), By: policy.ForPipe}
	}
	return mydevice.Bounded{Link: name}
}

// allowed is what a link, or another device, may still carry. It is for a role to ask
// while it runs.
func (r *role) allowed(of mydevice.Bounded) policy.Allowance { return r.caps.Of(of) }

// tellCap tells people and readers of events that the level of a cap has changed.
func (r *role) tellCap(name string, before, now policy.Allowance) {
	e := trace.Event{Device: name, Reason: now.Period, Text: now.String()}
	switch {
	case now.Level == policy.CapReached:
		e.Kind = trace.CapReached
		slog.Warn("a cap is used up", "of", name, "cap", now)
	case before.Level == policy.CapReached:
		e.Kind = trace.CapOver
		slog.Info("a cap is over", "of", name, "cap", now)
	case now.Level == policy.CapWarned:
		e.Kind = trace.CapWarning
		slog.Warn("a cap is nearly used up", "of", name, "cap", now)
	default:
		return
	}
	r.rec.Add(e)
}

// allLinks stands for the links of a device together.
const allLinks = "all links"

// warnCaps warns of caps that are not kept, once for each policy that comes into
// force, until ctx ends.
func (r *role) warnCaps(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for warned := (*policy.Rules)(nil); ; {
		if now := r.capsOf(); now != warned {
			warned = now
			for name := range now.Caps() {
				if err := r.caps.Kept(name); err != nil {
					slog.Warn("a cap is not kept", "name", name, "why", err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// capList is what the API tells of caps.
func (r *role) capList() []api.Cap {
	if r.caps == nil {
		return nil
	}
	var list []api.Cap
	for name, a := range r.caps.List() {
		state, text := a.Level.String(), a.String()
		if err := r.usage.Problem(); err != nil {
			text += "; a restart would forget it: " + err.Error()
		}
		if err := r.caps.Kept(name); err != nil {
			state, text = api.CapNotKept, fmt.Sprintf("the %s cap of %v is not kept: %v", a.Period, a.Cap, err)
		}
		list = append(list, api.Cap{Name: name, Period: a.Period, CapBytes: unit.Bytes(a.Cap), UsedBytes: a.Used, StopBytes: a.Stop, RoomBytes: a.Room,
			State: state, Until: a.Until, Text: text})
	}
	slices.SortFunc(list, func(a, b api.Cap) int { return strings.Compare(a.Name, b.Name) })
	return list
}
