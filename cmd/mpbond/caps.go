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

// enforceCaps has the role keep its links, and other devices, to the caps of its policy.
// Self reports whether a name there means this device; each of spent is told of what
// may carry nothing more. It is to be called before serve.
func (r *role) enforceCaps(isSelf func(name string) bool, rules func() *policy.Rules, onReached ...func(target mydevice.CapTarget, a policy.Allowance)) {
	r.caps = mydevice.NewCaps(r.usage, func(name string) mydevice.CapTarget { return r.capTarget(isSelf, name) },
		func() map[string]policy.Caps { return r.onload.addOnloadCap(rules().Caps()) },
		func(name string, target mydevice.CapTarget, before, now policy.Allowance) {
			if target == (mydevice.CapTarget{}) {
				name = allLinksName
			}
			r.reportCapChange(name, before, now)
			if now.Level == policy.CapReached {
				for _, notify := range onReached {
					notify(target, now)
				}
			}
		})
	r.capRules = rules
}

// capTarget is what caps by a name bound. Of a device that is both helped and helps,
// that is what this one carries for it, which costs its owner.
func (r *role) capTarget(isSelf func(name string) bool, name string) mydevice.CapTarget {
	peer, known := r.trust.LookupName(name)
	switch {
	case name == allOnloadName:
		return mydevice.CapTarget{Purpose: policy.ForOnload}
	case isSelf(name):
		return mydevice.CapTarget{}
	case known && r.name != "primary" && peer.HasRole(identity.RolePrimary):
		return mydevice.CapTarget{Peer: peer.Key.ID().String(), Purpose: policy.ForPath}
	case known && r.name != "helper" && peer.HasRole(identity.RoleHelper):
		return mydevice.CapTarget{Peer: peer.Key.ID().String(), Purpose: policy.ForPipe}
	}
	return mydevice.CapTarget{Link: name}
}

// remainingAllowance is what a link, or another device, may still carry. It is for a role to ask
// while it runs.
func (r *role) remainingAllowance(target mydevice.CapTarget) policy.Allowance {
	return r.caps.AllowanceOf(target)
}

// reportCapChange tells people and readers of events that the level of a cap has changed.
func (r *role) reportCapChange(name string, before, now policy.Allowance) {
	e := trace.Event{Device: name, Reason: now.Period, Text: now.String()}
	switch {
	case now.Level == policy.CapReached:
		e.Kind = trace.CapReached
		slog.Warn("a cap is used up", "of", name, "cap", now)
	case before.Level == policy.CapReached:
		e.Kind = trace.CapCleared
		slog.Info("a cap is over", "of", name, "cap", now)
	case now.Level == policy.CapWarned:
		e.Kind = trace.CapWarning
		slog.Warn("a cap is nearly used up", "of", name, "cap", now)
	default:
		return
	}
	r.rec.Add(e)
}

// allLinksName stands for the links of a device together.
const allLinksName = "all links"

// warnUnenforcedCaps warns of caps that are not kept, once for each policy that comes into
// force, until ctx ends.
func (r *role) warnUnenforcedCaps(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for warned := (*policy.Rules)(nil); ; {
		if now := r.capRules(); now != warned {
			warned = now
			for name := range now.Caps() {
				if err := r.caps.CheckEnforced(name); err != nil {
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

// listCaps is what the API tells of caps.
func (r *role) listCaps() []api.Cap {
	if r.caps == nil {
		return nil
	}
	var list []api.Cap
	for name, a := range r.caps.ListAllowances() {
		state, text := a.Level.String(), a.String()
		if err := r.usage.Problem(); err != nil {
			text += "; a restart would forget it: " + err.Error()
		}
		if err := r.caps.CheckEnforced(name); err != nil {
			state, text = api.CapNotCounted, fmt.Sprintf("the %s cap of %v is not kept: %v", a.Period, a.Cap, err)
		}
		list = append(list, api.Cap{Name: name, Period: a.Period, CapBytes: unit.Bytes(a.Cap), UsedBytes: a.Used, StopBytes: a.StopBytes, RoomBytes: a.Room,
			State: state, Until: a.Until, Text: text})
	}
	slices.SortFunc(list, func(a, b api.Cap) int { return strings.Compare(a.Name, b.Name) })
	return list
}
