package main

import (
	"log/slog"

	"mpbond/api"
	"mpbond/device/facts"
	"mpbond/identity"
	"mpbond/wire"
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
	for _, f := range tell {
		r.facts.OnChange(f)
	}
	return nil
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
// known of them.
func (r *role) describeFacts(list []api.Device, peers []identity.Peer, d device) {
	if r.facts == nil {
		return
	}
	self := r.facts.Facts().Of("")
	if h, ok := d.(interface{ Facts() wire.Facts }); ok {
		self = h.Facts()
	}
	list[0].Facts = facts.ToAPI(self)
	of, ok := d.(interface {
		FactsOf(identity.PublicKey) wire.Facts
		StandingOf(identity.PublicKey) (wire.Tier, string)
	})
	if !ok {
		return
	}
	for i, p := range peers {
		d := &list[i+1]
		d.Facts = facts.ToAPI(of.FactsOf(p.Key))
		if p.Is(identity.RoleHelper) {
			var tier wire.Tier
			tier, d.Rests = of.StandingOf(p.Key)
			d.Tier = tier.String()
		}
	}
}
