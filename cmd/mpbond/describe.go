// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/node/helper"
	"mpbond/node/refusal"
)

// toAPIEvent converts an event of the trace for the API.
func toAPIEvent(e trace.Event) api.Event {
	c := api.Event{T: e.Time(), Kind: string(e.Kind), Bond: e.Bond, Device: e.Device, Subflow: e.Subflow,
		Stream: e.Stream, Flow: e.Flow,
		Bytes: e.Length, GapMs: float64(e.Gap.Microseconds()) / 1000, Reason: e.Reason, Text: e.Text}
	switch e.Kind {
	case trace.StreamClose:
		c.Bytes = unit.Bytes(e.Offset)
	case trace.RelayUp, trace.RelayDown:
		c.Relay = e.Count
	case trace.FlowClose:
		c.Count = e.Count
	}
	return c
}

// listKnownDevices returns this device, as st describes it, and the devices that it trusts.
func listKnownDevices(st api.Status, peers []identity.Peer, relayed []api.BondSubflow) []api.Device {
	self := api.Device{Name: st.Name, ID: st.ID, Self: true, Roles: []string{st.Role}, Online: true}
	if st.Role == "dual" {
		self.Roles = []string{string(identity.RolePrimary), string(identity.RoleHelper)}
	}
	list := []api.Device{self}
	for _, p := range peers {
		d := api.Device{Name: p.Name, ID: p.Key.ID().String(), Paused: p.Paused, Addresses: p.Addresses,
			Roles: listRoleNames(p.Roles)}
		for _, pipe := range st.Pipes {
			if pipe.Device == p.Name && (pipe.State == api.PipeCarries || pipe.State == api.PipeWaits ||
				pipe.State == api.PipeBusy) {
				d.Pipes++
			}
		}
		for _, r := range st.Refused {
			if r.Device == p.Name {
				d.Refused = r.Reason
			}
		}
		list = append(list, d)
	}
	// addSubflow counts a subflow for the device at index i of list, if i is not negative.
	addSubflow := func(i int, p api.Subflow) {
		if i < 0 || p.ID == 0 {
			return
		}
		d := &list[i]
		d.Subflows++
		d.RxBytes += p.RxBytes
		d.TxBytes += p.TxBytes
		d.RxRate += p.RxRate
		d.TxRate += p.TxRate
	}
	findDevice := func(name string) int {
		return slices.IndexFunc(list, func(d api.Device) bool { return !d.Self && d.Name == name })
	}
	for _, b := range st.Bonds {
		for _, p := range b.Subflows {
			addSubflow(findDevice(b.Peer), p)
			switch {
			case st.Role == string(identity.RoleServer): // device names are the primary's here
			case p.Kind == api.Helped:
				addSubflow(findDevice(p.Device), p)
			default:
				addSubflow(0, p)
			}
		}
	}
	for _, s := range relayed {
		addSubflow(findDevice(s.Peer), s.Subflow)
		addSubflow(0, s.Subflow)
	}
	for i := range list {
		d := &list[i]
		if d.Online = d.Online || d.Pipes > 0 || d.Subflows > 0; d.Subflows > 0 {
			d.Refused = ""
		}
	}
	return list
}

// toAPIRefusals converts records of refused devices for the API.
func toAPIRefusals(list []refusal.Record) (all []api.Refusal) {
	for _, r := range list {
		all = append(all, api.Refusal{Device: r.Device, Address: r.Address, Here: r.Here, Reason: r.Reason,
			Hint: r.Hint, Since: r.Since, Last: r.Last, Count: r.Count})
	}
	return all
}

// listHelperPipes returns a helper's pipes for the API.
func listHelperPipes(s helper.Status) []api.Pipe {
	states := map[string]string{"waiting": api.PipeWaits, "busy": api.PipeBusy, "retrying": api.PipeRetrying}
	list := []api.Pipe{}
	for _, p := range s.Pipes {
		state := states[p.State]
		if state == "" {
			state = api.PipeStarting
		}
		list = append(list, api.Pipe{Device: p.Primary, Address: p.Address, State: state, Error: p.Error,
			Hint: p.Hint, Trouble: p.Trouble})
	}
	return list
}

// listRelayedSubflows returns the subflows that a helper relays, for the API.
func listRelayedSubflows(s helper.Status, self string) []api.BondSubflow {
	list := []api.BondSubflow{}
	for _, f := range s.Subflows {
		list = append(list, api.BondSubflow{Peer: f.Primary,
			Subflow: api.Subflow{ID: uint32(f.Number), Device: self, Kind: api.Helped, State: api.Up,
				Transport: f.Transport, Fallback: f.Fallback, Migrated: f.Migrated, RxBytes: unit.Bytes(f.Down.Bytes),
				TxBytes: unit.Bytes(f.Up.Bytes), RxRate: f.DownBps, TxRate: f.UpBps,
				BacklogBytes: unit.Bytes(f.Up.Buffered + f.Down.Buffered)}})
	}
	return list
}
