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

// initFacts makes what keeps the facts of this device, which tells each of those.
func (r *role) initFacts(onChange ...func(facts.Facts)) error {
	path, err := factsPath()
	if err != nil {
		return err
	}
	changes, stop := watchFile(path)
	sources := []facts.Source{&facts.File{Path: path, Changes: changes, Stop: stop, Log: slog.Default()}}
	if bus := facts.OpenBus(); bus != nil {
		sources = append(sources, bus)
	}
	r.facts = facts.New(append(sources, facts.Sysfs{})...)
	// Who asks for radios holds locks that the keeper's callers may wait for.
	var known atomic.Pointer[facts.Facts]
	r.facts.OnChange(func(f facts.Facts) { known.Store(&f) })
	r.usage.MeterRadios(func(link string, internet bool) wire.Radio { return radioKind(*known.Load(), link, internet) })
	for _, f := range onChange {
		r.facts.OnChange(f)
	}
	return nil
}

// radioKind is the kind of radio of a link of this device. What was told of the link
// by which it reaches the Internet holds for links that do.
func radioKind(f facts.Facts, link string, internet bool) wire.Radio {
	if kind := mydevice.RadioOf(link); kind != wire.RadioNone {
		return kind
	}
	if internet {
		return f.ForLink(link).Radio
	}
	return f.Links[link].Radio
}

// updateFacts takes what the API is told.
func (r *role) updateFacts(reported api.Facts) error {
	f, err := facts.FromAPI(reported)
	if err == nil {
		r.facts.Report(f)
	}
	return err
}

// addDeviceFacts adds to devices, this one and the peers in their order, what is
// known of them, and what their radios took.
func (r *role) addDeviceFacts(list []api.Device, peers []identity.Peer, d runningRole) {
	if s, ok := d.(interface{ Copied(identity.PublicKey) bool }); ok {
		for i, p := range peers {
			list[i+1].KeyCopied = s.Copied(p.Key)
		}
	}
	if r.facts == nil {
		return
	}
	self := r.facts.Facts().ForLink("")
	if h, ok := d.(interface{ Facts() wire.Facts }); ok {
		self = h.Facts()
	}
	list[0].Facts = facts.ToAPI(self)
	for _, u := range r.usage.RadioUsage() {
		list[0].Radios = append(list[0].Radios, api.Radio{Link: u.Link, Kind: u.Radio.String(), Joules: roundMilli(u.Joules)})
	}
	of, ok := d.(interface {
		HelperOf(identity.PublicKey) primary.HelperInfo
	})
	if !ok {
		return
	}
	for i, p := range peers {
		d, h := &list[i+1], of.HelperOf(p.Key)
		d.Facts = facts.ToAPI(h.Facts)
		if p.HasRole(identity.RoleHelper) {
			d.Tier, d.Suspended, d.LastPipe = h.Tier.String(), h.Suspended, h.LastPipe
			if policy.UsesEnergy(h.Radio) {
				d.Radios = []api.Radio{{Link: h.Facts.Link, Kind: h.Radio.String(), Joules: roundMilli(h.RadioEnergy)}}
			}
		}
	}
}
