// SPDX-License-Identifier: Apache-2.0

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

// enforceCaps applies the caps of the policy to this device's links and to other devices. isSelf
// reports whether a name in the policy means this device. Each of onReached is called when a cap is
// reached. It must be called before serveRoleAndAPI.
func (r *role) enforceCaps(isSelf func(name string) bool, rules func() *policy.Rules,
	onReached ...func(target mydevice.CapTarget, a policy.Allowance)) {
	r.caps = mydevice.NewCaps(r.usage, func(name string) mydevice.CapTarget { return r.resolveCapTarget(isSelf, name) },
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

// resolveCapTarget returns what the caps of a name limit. If a device is both primary and helper
// here, it is the traffic that this device carries for it, since that costs the owner of this
// device.
func (r *role) resolveCapTarget(isSelf func(name string) bool, name string) mydevice.CapTarget {
	peer, known := r.trust.LookupName(name)
	switch {
	case name == allOnloadName:
		return mydevice.CapTarget{Purpose: policy.ForOnload}
	case isSelf(name):
		return mydevice.CapTarget{}
	case known && r.name != "primary" && peer.HasRole(identity.RolePrimary):
		return mydevice.CapTarget{Peer: peer.Key.ID().String(), Purpose: policy.ForHSPath}
	case known && r.name != "helper" && peer.HasRole(identity.RoleHelper):
		return mydevice.CapTarget{Peer: peer.Key.ID().String(), Purpose: policy.ForPipe}
	}
	return mydevice.CapTarget{Link: name}
}

// remainingAllowance returns what a link, or another device, may still carry. It works only while
// the role runs.
func (r *role) remainingAllowance(target mydevice.CapTarget) policy.Allowance {
	return r.caps.AllowanceOf(target)
}

// reportCapChange logs and records that the level of a cap has changed.
func (r *role) reportCapChange(name string, before, now policy.Allowance) {
	e := trace.Event{Device: name, Reason: now.Period, Text: now.String()}
	switch {
	case now.Level == policy.CapReached:
		e.Kind = trace.CapReached
		slog.Warn("cap reached", "of", name, "cap", now)
	case before.Level == policy.CapReached:
		e.Kind = trace.CapCleared
		slog.Info("cap over", "of", name, "cap", now)
	case now.Level == policy.CapWarned:
		e.Kind = trace.CapWarning
		slog.Warn("cap nearly reached", "of", name, "cap", now)
	default:
		return
	}
	r.rec.Add(e)
}

// allLinksName is the name, in events and logs, of all links of a device together.
const allLinksName = "all links"

// warnUnenforcedCaps warns of caps that cannot be enforced, once for each new policy, until ctx
// ends.
func (r *role) warnUnenforcedCaps(ctx context.Context) {
	t := r.clock.NewTicker(time.Second)
	defer t.Stop()
	for warned := (*policy.Rules)(nil); ; {
		if now := r.capRules(); now != warned {
			warned = now
			for name := range now.Caps() {
				if err := r.caps.CheckEnforced(name); err != nil {
					slog.Warn("cap not enforced", "name", name, "err", err)
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

// listRoleCaps returns the caps for the API, sorted by name.
func (r *role) listRoleCaps() []api.Cap {
	if r.caps == nil {
		return nil
	}
	var list []api.Cap
	for name, a := range r.caps.ListAllowances() {
		state, text := a.Level.String(), a.String()
		if err := r.usage.Problem(); err != nil {
			text += "; a restart would lose the count: " + err.Error()
		}
		if err := r.caps.CheckEnforced(name); err != nil {
			state, text = api.CapNotCounted, fmt.Sprintf("the %s cap of %v is not enforced: %v", a.Period, a.Cap, err)
		}
		list = append(list, api.Cap{Name: name, Period: a.Period, CapBytes: unit.Bytes(a.Cap), UsedBytes: a.Used,
			StopBytes: a.StopBytes, RoomBytes: a.Room,
			State: state, Until: a.Until, Text: text})
	}
	slices.SortFunc(list, func(a, b api.Cap) int { return strings.Compare(a.Name, b.Name) })
	return list
}
