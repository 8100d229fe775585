// Package status describes a bond for the local API: it turns the plain state that
// package endpoint returns into the types of package api. Both ends use it.
package status

import (
	"time"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// Bond describes a bond. The caller adds its name and that of the device at the other end.
func Bond(s endpoint.Status) api.Bond {
	b := api.Bond{Scheduler: s.Scheduler, Streams: s.Streams, StreamsTotal: int64(s.StreamsTotal),
		Flows: s.Flows, FlowsTotal: int64(s.FlowsTotal), DatagramsDropped: int64(s.DatagramsDropped),
		MetaBytes: s.MetaBytes, ReorderBytes: s.ReorderBytes, Paths: []api.Path{},
		WastedBytes: map[string]unit.Bytes{"duplicate_received": s.Duplicate, "resent_path_lost": s.LostPath,
			"resent_silent": s.Silent, "resent_eta": s.Eta, "resent_redundant": s.Redundant},
		StreamList: Streams(s.StreamList), FlowList: Flows(s.FlowList)}
	for _, sf := range s.Subflows {
		b.Paths = append(b.Paths, path(sf))
	}
	for _, d := range s.Decisions {
		b.Decisions = append(b.Decisions, decision(d))
	}
	return b
}

func path(s endpoint.Subflow) api.Path {
	p := api.Path{ID: uint32(s.ID), Device: s.Device, Kind: api.Direct, State: api.Up, Transport: s.Transport, Metered: s.Terms.Metered,
		RxBytes: unit.Bytes(s.Received), TxBytes: unit.Bytes(s.Sent), RxRate: s.RxRate, TxRate: s.TxRate,
		SRTTms: ms(s.SRTT), PADms: ms(s.PAD), ThroughputBps: s.Th, BacklogBytes: s.InFlight, LastData: s.LastData, Hop: Hop(s.Hop)}
	if s.Helped {
		p.Kind = api.Helped
	}
	if s.PathInfo.Silent {
		p.State = api.Silent
	}
	if s.Terms.Radio != wire.RadioNone {
		p.Radio = s.Terms.Radio.String()
	}
	if s.Terms.Tier != wire.TierPrimary {
		p.Tier = s.Terms.Tier.String()
	}
	return p
}

// Hop describes the hop of a subflow that begins at this end; nil for nil.
func Hop(h *endpoint.Hop) *api.Hop {
	if h == nil {
		return nil
	}
	a := &api.Hop{RTTms: ms(h.SRTT), MinRTTms: ms(h.MinRTT), MTU: h.PathMTU, Packets: h.Packets, Resent: h.Resent, RateBps: h.NearRate,
		FarRateBps: h.FarRate, FarWaitMs: ms(h.FarWait), RejectedReports: h.RejectedReports}
	if c := h.Cells; c.State != "" {
		a.PBE = &api.PBE{State: c.State, CapacityBps: c.Capacity, FairBps: c.Fair, Fresh: c.Fresh, Doubted: c.Doubted}
	}
	return a
}

// Streams describes streams.
func Streams(list []endpoint.Stream) (streams []api.Stream) {
	for _, s := range list {
		streams = append(streams, api.Stream{ID: uint64(s.ID), Dest: s.Dest, Owner: api.Owner(s.Owner), Mode: s.Mode.String(),
			Priority: s.Class.String(), Weight: int(s.Weight), DownBytes: s.DownBytes, UpBytes: s.UpBytes, Down: choice(s.Down), Up: choice(s.Up)})
	}
	return streams
}

// Flows describes datagram flows.
func Flows(list []endpoint.Flow) (flows []api.Flow) {
	for _, f := range list {
		flows = append(flows, api.Flow{ID: uint64(f.ID), Path: uint32(f.Path), Second: uint32(f.Second), Owner: api.Owner(f.Owner),
			Sent: int64(f.Sent), Received: int64(f.Received), Dropped: int64(f.Dropped), Duplicate: int64(f.Duplicate),
			Moves: int64(f.Moves), LastUsed: f.Used, DownBytes: f.DownBytes, UpBytes: f.UpBytes})
	}
	return flows
}

func choice(c wire.Choice) (a api.StreamChoice) {
	for _, p := range c.Paths {
		a.Paths = append(a.Paths, uint32(p))
	}
	a.Reason = c.Reason
	return a
}

func decision(d bond.Decision) api.Decision {
	a := api.Decision{T: d.At, RemainingBytes: d.Remaining, DiffBytes: d.Diff, Reason: d.Reason.String()}
	if !d.Wait {
		a.Path = uint32(d.Path)
		for _, p := range d.Seen {
			if p.ID == d.Path {
				a.PADms = ms(p.PAD)
			}
		}
	}
	return a
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
