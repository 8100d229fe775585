// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/wire"
	"mpbond/node/choice"
	"mpbond/node/endpoint"
)

// mostAdvised is the largest size that advice is given for.
const mostAdvised = unit.Bytes(1e12)

// Advice returns forecasts for transfers. It uses what is known and sends nothing.
func (p *Primary) Advice(r api.AdviceRequest) (a api.Advice, err error) {
	if r.Bytes < 0 || r.Bytes > mostAdvised {
		return a, fault.New(fault.Usage, fmt.Errorf("a size of %d bytes", r.Bytes),
			fmt.Sprintf("give one from 1 byte to %v", mostAdvised))
	}
	list := p.bond.currentSession().endpoint.Candidates()
	if len(list) == 0 {
		return a, fault.New(fault.NotFound, errors.New("no subflow is up: there is nothing to advise on"),
			"see `mpbond status`")
	}
	p.places.refreshPlaceRates(list, &p.locations)
	if r.App != "" {
		if list, a.Rule, err = p.policy.candidatesForApp(r.App, list); err != nil {
			return a, err
		}
	}
	transfers := policy.UsualTransfers()
	if r.Bytes > 0 {
		transfers = []policy.Transfer{{Size: r.Bytes, Up: r.Upload}}
	}
	ways := map[bool][]policy.Subflow{}
	for _, up := range [...]bool{false, true} {
		ways[up] = p.places.subflowsForDirection(list, up)
	}
	for i, c := range list {
		a.Subflows = append(a.Subflows, describeAdvisedSubflow(c, &ways[false][i], &ways[true][i]))
	}
	for _, t := range transfers {
		a.Transfers = append(a.Transfers, describeAdvice(policy.Advise(ways[t.Up], t), list))
	}
	return a, nil
}

// candidatesForApp returns those of the candidates that the rules allow to an app, and what the rules
// say. Rules that ask for more than the app's executable do not apply. It fails if the app is not
// carried by subflows that advice is about.
func (p *Policy) candidatesForApp(app string, list []endpoint.NamedCandidate) (some []endpoint.NamedCandidate,
	rule string, err error) {
	v := p.verdictFor(p.Rules(), policy.Connection{Process: &policy.Process{Exe: app, UID: policy.NoUID}})
	class := p.currentSubflows().explainClass(v.Mode, v.Class)
	for _, c := range list {
		if slices.Contains(class.Subflows, uint32(c.ID)) {
			some = append(some, c)
		}
	}
	rule = v.Reason + "; " + class.Reason
	if v.Mode != policy.ModeBond || len(some) == 0 {
		return nil, "", fault.New(fault.NotFound, fmt.Errorf("there is nothing to advise on for %s: %s", app, rule),
			"see `mpbond policy`")
	}
	return some, rule, nil
}

// PastForecasts returns the latest forecasts of answers, and what came of them.
func (p *Primary) PastForecasts() (h api.PastForecasts) {
	list, median := p.history.listForecasts()
	h.MedianErrorPercent, h.Forecasts = 100*median, []api.CheckedForecast{}
	for _, f := range list {
		h.Forecasts = append(h.Forecasts, api.CheckedForecast{At: f.At, Bytes: f.Bytes, Subflows: f.Subflows,
			Seconds: f.Took.Seconds(), ExpectedSeconds: f.Expected.Seconds()})
	}
	return h
}

// placeRates holds what each device's subflows carried at this location before, readable without a
// lock. Safe for concurrent use.
type placeRates struct {
	known atomic.Pointer[map[string]policy.SubflowRecord]
	// The last refreshIfOld. Only one call may run at a time.
	at    time.Time
	count int // of devices
}

// placeRefreshInterval is how often the rates of the same devices are looked up again.
const placeRefreshInterval = 5 * time.Second

// refreshIfOld looks up the rates of devices if others were looked up before, or long ago.
func (r *placeRates) refreshIfOld(now time.Time, devices []endpoint.NamedCandidate, memory *locationMemory) {
	if len(devices) != r.count || now.Sub(r.at) >= placeRefreshInterval {
		r.refreshPlaceRates(devices, memory)
		r.at, r.count = now, len(devices)
	}
}

// refreshPlaceRates looks up the rates of devices.
func (r *placeRates) refreshPlaceRates(devices []endpoint.NamedCandidate, memory *locationMemory) {
	var names []string
	for _, c := range devices {
		names = append(names, c.Device)
	}
	known := memory.ratesAtLocation(names...)
	r.known.Store(&known)
}

// ratesOf returns the rates of a device, zero if they are unknown.
func (r *placeRates) ratesOf(device string) (seen policy.SubflowRecord) {
	if known := r.known.Load(); known != nil {
		return (*known)[device]
	}
	return seen
}

// subflowsForDirection returns the candidates as package policy sees them, for a direction. The primary
// measures only what it sends. Towards itself it knows the rates that it saw at this place before.
func (r *placeRates) subflowsForDirection(list []endpoint.NamedCandidate, upload bool) (all []policy.Subflow) {
	for _, c := range list {
		if !upload {
			seen := r.ratesOf(c.Device)
			c.Known, c.Delay = false, c.RTT/2
			c.Terms.Rate, c.Terms.RTT = seen.Down, time.Duration(seen.RTTms*float64(time.Millisecond))
		}
		all = append(all, choice.PolicySubflow(c.Candidate))
	}
	return all
}

// describeAdvisedSubflow returns a subflow for the API.
func describeAdvisedSubflow(c endpoint.NamedCandidate, down, up *policy.Subflow) api.AdvisedSubflow {
	s := api.AdvisedSubflow{ID: uint32(c.ID), Device: c.Device, Kind: api.Direct, Asleep: up.IsAsleep(),
		DownBps: down.Rate, UpBps: up.Rate, DownGuessed: down.Window > 0, UpGuessed: up.Window > 0,
		RTTms: float64(c.RTT.Microseconds()) / 1e3, LossPercent: 100 * c.Loss}
	if c.Helped {
		s.Kind = api.Helped
	}
	if c.Terms.Radio != wire.RadioNone {
		s.Radio = c.Terms.Radio.String()
	}
	if c.Terms.Tier != wire.TierPrimary {
		s.Tier = c.Terms.Tier.String()
	}
	return s
}

// describeAdvice returns advice for the API.
func describeAdvice(a policy.Advice, list []endpoint.NamedCandidate) api.AdvisedTransfer {
	t := api.AdvisedTransfer{Name: a.Name, Bytes: a.Size, Upload: a.Up, EverySeconds: a.Every.Seconds(),
		Reason: a.Reason, OtherFromBytes: a.OtherFrom}
	for _, x := range a.Alternatives {
		set := api.AdvisedSet{Seconds: x.Time.Seconds(), Joules: float64(x.Energy), WhyNot: x.WhyNot}
		for s := x.Subflows; s != 0; s &= s - 1 {
			set.Subflows = append(set.Subflows, uint32(list[bits.TrailingZeros64(s)].ID))
		}
		t.Sets = append(t.Sets, set)
	}
	return t
}
