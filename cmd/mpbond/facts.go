package main

import (
	"log/slog"
	"sync/atomic"

	"mpbond/api"
	"mpbond/base/identity"
	mydevice "mpbond/control/device"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/link/wire"
	"mpbond/node/primary"
)

// keepFacts makes what keeps the facts of this device, which tells each of those.
func (r *role) keepFacts(tell ...func(facts.Facts)) error {
	path, err := factsPath()
	if err != nil {
		return err
	}
	changes, stop := watch(path)
	sources := []facts.Source{&facts.File{Path: path, Changes: changes, Stop: stop, Log: slog.Default()}}
	if bus := facts.OpenBus(); bus != nil {
		sources = append(sources, bus)
	}
	r.facts = facts.New(append(sources, facts.Sysfs{})...)
	// Who asks for radios holds locks that the keeper's callers may wait for.
	var known atomic.Pointer[facts.Facts]
	r.facts.OnChange(func(f facts.Facts) { known.Store(&f) })
	r.usage.Meter(func(link string, internet bool) wire.Radio { return radioOf(*known.Load(), link, internet) })
	for _, f := range tell {
		r.facts.OnChange(f)
	}
	return nil
}

// radioOf is the kind of radio of a link of this device. What was told of the link
// by which it reaches the Internet holds for links that do.
func radioOf(f facts.Facts, link string, internet bool) wire.Radio {
	if kind := mydevice.RadioOf(link); kind != wire.RadioNone {
		return kind
	}
	if internet {
		return f.Of(link).Radio
	}
	return f.Links[link].Radio
}

// tellFacts takes what the API is told.
func (r *role) tellFacts(told api.Facts) error {
	f, err := facts.FromAPI(told)
	if err == nil {
		r.facts.Tell(f)
	}
	return err
}

// describeFacts adds to devices, this one and the peers in their order, what is
// known of them, and what their radios took.
func (r *role) describeFacts(list []api.Device, peers []identity.Peer, d device) {
	if s, ok := d.(interface{ Copied(identity.PublicKey) bool }); ok {
		for i, p := range peers {
			list[i+1].Copied = s.Copied(p.Key)
		}
	}
	if r.facts == nil {
		return
	}
	self := r.facts.Facts().Of("")
	if h, ok := d.(interface{ Facts() wire.Facts }); ok {
		self = h.Facts()
	}
	list[0].Facts = facts.ToAPI(self)
	for _, u := range r.usage.Radios() {
		list[0].Radios = append(list[0].Radios, api.Radio{Link: u.Link, Kind: u.Radio.String(), Joules: milli(u.Joules)})
	}
	of, ok := d.(interface {
		HelperOf(identity.PublicKey) primary.HelperState
	})
	if !ok {
		return
	}
	for i, p := range peers {
		d, h := &list[i+1], of.HelperOf(p.Key)
		d.Facts = facts.ToAPI(h.Facts)
		if p.Is(identity.RoleHelper) {
			d.Tier, d.Rests, d.LastPipe = h.Tier.String(), h.Rests, h.LastPipe
			if policy.Costs(h.Radio) {
				d.Radios = []api.Radio{{Link: h.Facts.Link, Kind: h.Radio.String(), Joules: milli(h.Took)}}
			}
		}
	}
}
