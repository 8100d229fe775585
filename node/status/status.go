// SPDX-License-Identifier: Apache-2.0

// Package status describes a bond for the local API: it converts the state from package endpoint
// into the types of package api. Both ends use it.
package status

import (
	"strings"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/core/sched"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// Bond describes a bond. The caller adds its ID and the name of the peer.
func Bond(s endpoint.Status) api.Bond {
	b := api.Bond{Scheduler: s.Scheduler, Streams: s.Streams, StreamsTotal: int64(s.StreamsTotal),
		Flows: s.Flows, FlowsTotal: int64(s.FlowsTotal), DatagramsDropped: int64(s.DatagramsDropped),
		MetaBytes: s.MetaBytes, ReorderBytes: s.ReorderBytes, Subflows: []api.Subflow{},
		WastedBytes: map[string]unit.Bytes{"duplicate_received": s.Duplicate, "reinjected_subflow_lost": s.LostSubflow,
			"reinjected_silent": s.ReinjectedSilent, "reinjected_eta": s.ReinjectedTail, "sent_redundantly": s.Redundant},
		StreamList: Streams(s.StreamList), FlowList: Flows(s.FlowList)}
	for _, sf := range s.Subflows {
		b.Subflows = append(b.Subflows, convertSubflow(sf))
	}
	for _, d := range s.Decisions {
		b.Decisions = append(b.Decisions, describeDecision(d))
	}
	return b
}

// convertSubflow converts a subflow for the API.
func convertSubflow(s endpoint.Subflow) api.Subflow {
	p := api.Subflow{
		ID:        uint32(s.ID),
		Device:    s.Device,
		Kind:      api.Direct,
		State:     api.Up,
		Transport: s.Transport,
		Metered:   s.Terms.Metered,
		RxBytes:   unit.Bytes(s.Received),
		TxBytes:   unit.Bytes(s.Sent),
		RxRate:    s.RxRate,
		TxRate:    s.TxRate,
		SRTTms: toAPIMilliseconds(
			s.SRTT,
		),
		PADms:           toAPIMilliseconds(s.PAD),
		ExpectedStallMs: toAPIMilliseconds(s.ExpectedStall),
		ThroughputBps:   s.Th,
		BacklogBytes:    s.InFlight,
		LastData:        s.LastData,
		Hop:             Hop(s.Hop),
	}
	if s.Helped {
		p.Kind = api.Helped
	}
	if s.SubflowInfo.Silent {
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

// Hop converts the hop of a subflow that begins at this end for the API; nil becomes nil.
func Hop(h *endpoint.Hop) *api.Hop {
	if h == nil {
		return nil
	}
	a := &api.Hop{
		RTTms:           toAPIMilliseconds(h.SRTT),
		MinRTTms:        toAPIMilliseconds(h.MinRTT),
		MTU:             h.PathMTU,
		Packets:         h.Packets,
		Retransmitted:   h.Retransmitted,
		RateBps:         h.NearRate,
		FarRateBps:      h.FarRate,
		FarWaitMs:       toAPIMilliseconds(h.FarWait),
		RejectedReports: h.RejectedReports,
	}
	if h.Congestion != nil {
		c := h.Congestion
		a.Congestion = &api.Congestion{Name: c.Algorithm.String(), Reason: c.Reason.String(), Changes: c.Changes}
	}
	if c := h.Cells; c.State != "" {
		a.PBE = &api.PBE{
			State:           c.State,
			CapacityBps:     c.Capacity,
			FairBps:         c.Fair,
			FollowsFeedback: c.Followed,
			Doubted:         c.Doubted,
		}
	}
	return a
}

// Streams describes streams.
func Streams(list []endpoint.Stream) (streams []api.Stream) {
	for _, s := range list {
		streams = append(
			streams,
			api.Stream{ID: uint64(s.ID), Dest: s.Dest, AppInfo: api.AppInfo(s.App), Mode: s.Mode.String(),
				Priority: s.Priority.String(), Weight: int(s.Weight), DownBytes: s.DownBytes, UpBytes: s.UpBytes,
				Down: convertChoice(s.Down), Up: convertChoice(s.Up)},
		)
	}
	return streams
}

// Flows describes datagram flows.
func Flows(list []endpoint.Flow) (flows []api.Flow) {
	for _, f := range list {
		flows = append(
			flows,
			api.Flow{
				ID:            uint64(f.ID),
				Subflow:       uint32(f.Subflow),
				SecondSubflow: uint32(f.Second),
				AppInfo:       api.AppInfo(f.App),
				Sent: int64(
					f.Sent,
				),
				Received:  int64(f.Received),
				Dropped:   int64(f.Dropped),
				Duplicate: int64(f.Duplicate),
				Moves:     int64(f.Moves),
				LastUsed:  f.LastUsed,
				DownBytes: f.DownBytes,
				UpBytes:   f.UpBytes,
			},
		)
	}
	return flows
}

func convertChoice(c wire.Choice) (a api.StreamChoice) {
	for _, p := range c.Subflows {
		a.Subflows = append(a.Subflows, uint32(p))
	}
	a.Reason, a.Forecast, _ = strings.Cut(c.Reason, "\n")
	return a
}

// describeReason describes why a decision was taken. The scheduler sees only the subflows that
// policy allows: others may be idle.
func describeReason(r sched.Reason) string {
	if r == sched.NoIdleSubflow {
		return "every subflow that policy allows now is busy"
	}
	return r.String()
}

// describeDecision returns a decision of the scheduler for the API.
func describeDecision(d bond.Decision) api.Decision {
	a := api.Decision{T: d.At, RemainingBytes: d.Remaining, DiffBytes: d.Diff, Reason: describeReason(d.Reason)}
	if !d.Wait {
		a.Subflow, a.PADms = uint32(d.Subflow), toAPIMilliseconds(d.PAD)
	}
	return a
}

func toAPIMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
