// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"sync/atomic"
	"time"

	"mpbond/api"
	"mpbond/base/identity"
	mydevice "mpbond/control/device"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/link/wire"
	"mpbond/node/primary"
	"mpbond/node/server"
)

// initDeviceFacts makes the keeper of this device's facts, which calls each of onChange when they
// change.
func (r *role) initDeviceFacts(onChange ...func(facts.Facts)) error {
	path, err := deviceFactsPath()
	if err != nil {
		return err
	}
	changes, stop := watchFileChanges(path)
	sources := []facts.Source{&facts.File{Path: path, Changes: changes, Stop: stop, Log: slog.Default()}}
	if bus := facts.OpenBus(slog.Default()); bus != nil {
		sources = append(sources, bus)
	}
	r.facts = facts.New(append(sources, facts.Sysfs{})...)
	// The meter is called with locks held for which callers of the keeper may wait, so it reads
	// a copy instead of asking the keeper.
	var known atomic.Pointer[facts.Facts]
	r.facts.OnChange(func(f facts.Facts) { known.Store(&f) })
	r.usage.MeterRadios(func(link string, internet bool) wire.Radio {
		return linkRadioKind(*known.Load(), link,
			internet)
	})
	for _, f := range onChange {
		r.facts.OnChange(f)
	}
	return nil
}

// linkRadioKind returns the kind of radio of a link of this device. If the link leads to the
// Internet, reported facts about the device's Internet link apply to it.
func linkRadioKind(f facts.Facts, link string, internet bool) wire.Radio {
	if kind := mydevice.RadioOf(link); kind != wire.RadioNone {
		return kind
	}
	if internet {
		return f.ForLink(link).Radio
	}
	return f.Links[link].Radio
}

// storeReportedFacts stores facts that an app reported by the API.
func (r *role) storeReportedFacts(reported api.Facts) error {
	f, err := facts.FromAPI(reported, time.Now())
	if err == nil {
		r.facts.Report(f)
	}
	return err
}

// Optional interfaces of a running role.
type (
	// keyCopyReporter reports whether two devices use the same key.
	keyCopyReporter interface {
		IsKeyCopied(identity.PublicKey) bool
	}
	// cellConsumer reports whether the cells of this device's modems matter now.
	cellConsumer interface{ WantsCells() bool }
	// factsReporter returns the facts of this device.
	factsReporter interface{ Facts() wire.Facts }
	// helperReporter returns what a primary knows of a helper.
	helperReporter interface {
		HelperState(identity.PublicKey) primary.HelperInfo
	}
)

var (
	_ keyCopyReporter = (*server.Server)(nil)
	_ cellConsumer    = primaryRole{}
	_ cellConsumer    = dualRole{}
	_ factsReporter   = helperRole{}
	_ factsReporter   = dualRole{}
	_ helperReporter  = primaryRole{}
	_ helperReporter  = dualRole{}
)

// addDeviceFacts adds facts and radio energy to a list of this device and peers in their order.
func (r *role) addDeviceFacts(list []api.Device, peers []identity.Peer, d runningRole) {
	if s, ok := d.(keyCopyReporter); ok {
		for i, p := range peers {
			list[i+1].KeyCopied = s.IsKeyCopied(p.Key)
		}
	}
	if r.facts == nil {
		return
	}
	self := r.facts.Facts().ForLink("")
	if h, ok := d.(factsReporter); ok {
		self = h.Facts()
	}
	list[0].Facts = facts.ToAPI(self)
	for _, u := range r.usage.RadioUsage() {
		list[0].Radios = append(list[0].Radios, api.Radio{Link: u.Link, Kind: u.Radio.String(),
			Joules: roundMilli(u.Joules)})
	}
	of, ok := d.(helperReporter)
	if !ok {
		return
	}
	for i, p := range peers {
		d, h := &list[i+1], of.HelperState(p.Key)
		d.Facts = facts.ToAPI(h.Facts)
		if p.HasRole(identity.RoleHelper) {
			d.Tier, d.Suspended, d.LastPipe = h.Tier.String(), h.Suspended, h.LastPipe
			if policy.UsesEnergy(h.Radio) {
				d.Radios = []api.Radio{{Link: h.Facts.Link, Kind: h.Radio.String(), Joules: roundMilli(h.RadioEnergy)}}
			}
		}
	}
}
