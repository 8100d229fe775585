package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"mpbond/api"
	mydevice "mpbond/device"
	"mpbond/identity"
	"mpbond/policy"
	"mpbond/trace"
	"mpbond/unit"
)

// useCaps has the role keep its links to the caps of its policy. Self reports
// whether a name there means this device; spent, if not nil, is told of a link that
// may carry nothing more, "" for all. It is to be called before serve.
func (r *role) useCaps(self func(name string) bool, rules func() *policy.Rules, spent func(link string, a policy.Allowance)) {
	r.caps = mydevice.NewCaps(r.usage, self, func() map[string]policy.Caps { return rules().Caps() },
		func(link string, before, now policy.Allowance) {
			r.tellCap(link, before, now)
			if now.Level == policy.CapReached && spent != nil {
				spent(link, now)
			}
		})
	r.capsOf = rules
}

// allowed is what a link may still carry. It is for a role to ask while it runs.
func (r *role) allowed(link string) policy.Allowance { return r.caps.Of(link) }

// tellCap tells people and readers of events that the level of a link's cap has
// changed.
func (r *role) tellCap(link string, before, now policy.Allowance) {
	link = cmp.Or(link, allLinks)
	e := trace.Event{Device: link, Reason: now.Period, Text: now.String()}
	switch {
	case now.Level == policy.CapReached:
		e.Kind = trace.CapReached
		slog.Warn("a cap is used up", "link", link, "cap", now)
	case before.Level == policy.CapReached:
		e.Kind = trace.CapOver
		slog.Info("a link may be used again", "link", link, "cap", now)
	case now.Level == policy.CapWarned:
		e.Kind = trace.CapWarning
		slog.Warn("a cap is nearly used up", "link", link, "cap", now)
	default:
		return
	}
	r.rec.Add(e)
}

// allLinks stands for the links of a device together.
const allLinks = "all links"

// kept is why the caps of a name are not kept now, nil if they are.
func (r *role) kept(name string) error {
	err := r.caps.Kept(name)
	if peer, ok := r.trust.LookupName(name); errors.Is(err, mydevice.ErrNoLink) && ok && peer.Is(identity.RoleHelper) {
		err = errors.New("caps of a helper are set in policy.toml there")
	}
	return err
}

// warnCaps warns of caps that are not kept, once for each policy that comes into
// force, until ctx ends.
func (r *role) warnCaps(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for warned := (*policy.Rules)(nil); ; {
		if now := r.capsOf(); now != warned {
			warned = now
			for name := range now.Caps() {
				if err := r.kept(name); err != nil {
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
		if err := r.kept(name); err != nil {
			state, text = api.CapNotKept, fmt.Sprintf("the %s cap of %v is not kept: %v", a.Period, a.Cap, err)
		}
		list = append(list, api.Cap{Name: name, Period: a.Period, CapBytes: unit.Bytes(a.Cap), UsedBytes: a.Used, StopBytes: a.Stop, RoomBytes: a.Room,
			State: state, Until: a.Until, Text: text})
	}
	slices.SortFunc(list, func(a, b api.Cap) int { return strings.Compare(a.Name, b.Name) })
	return list
}
