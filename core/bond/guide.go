// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Guide decides which subflows a stream may use now. It weighs costs that the bond does not know,
// such as energy and money. The scheduler chooses among the allowed subflows. The bond calls it
// often; it must not block.
type Guide interface {
	// AllowSubflows sets Allowed in the subflows that may be used and returns the reason. They are
	// the live ones, by rising ID. It must not keep a reference to them. If it allows none, all are
	// allowed.
	AllowSubflows(subflows []GuideSubflow, d Demand) string
}

// GuideSubflow is a subflow as a Guide sees it.
type GuideSubflow struct {
	ID    wire.SubflowID
	Rate  unit.Rate // its throughput
	Known bool      // Rate was measured while it was the limit; else it is a guess
	RTT   time.Duration
	Delay time.Duration // PAD
	Idle  time.Duration // time since it last carried anything in either direction
	InUse bool          // the last answer allowed it
	// Allowed is the result.
	Allowed bool
}

// Demand describes a stream for a Guide. The zero Demand is small data that must not wait: a
// message, a control frame, a datagram.
type Demand struct {
	Pending unit.Bytes // of all streams
	Burst   unit.Bytes // bytes given to subflows since the stream had none left to send
	// BackloggedFor is how long the stream has had sendable bytes without a pause.
	BackloggedFor time.Duration
}

// SetGuide sets the guide; nil allows every subflow to every stream.
func (b *Bond) SetGuide(g Guide) { b.filter.setGuide(g) }

// StreamInfo describes a stream, for status output.
type StreamInfo struct {
	ID       wire.StreamID
	Dest     string
	Mode     wire.Mode
	Priority wire.Priority
	Weight   uint8
	Sent     unit.Bytes // bytes acknowledged by the far end
	Received unit.Bytes // bytes read by the app
	// Out holds the subflows that this end may use for it, none for all, and the reason. In is the
	// server's report on the other direction, at the primary.
	Out, In wire.Choice
	User    any
}

// ListStreams describes at most limit streams, the most recently opened first.
func (b *Bond) ListStreams(limit int) (list []StreamInfo) {
	ids := slices.SortedFunc(maps.Keys(b.streams.all), func(x, y wire.StreamID) int { return cmp.Compare(y, x) })
	for _, id := range ids[:min(limit, len(ids))] {
		s := b.streams.all[id]
		i := StreamInfo{ID: s.id, Dest: s.dest, Mode: s.route.mode, Sent: unit.Bytes(s.send.firstUnacked),
			Received: unit.Bytes(s.reassembly.readOffset), User: s.User}
		r := b.backlog.rankStream(s)
		i.Priority, i.Weight = r.priority, r.weight
		if b.cfg.OpensStreams {
			i.In = s.route.choice
		}
		if b.filter.guide != nil && s.route.mode == wire.ModeBond && !s.route.allowsAll {
			i.Out = wire.Choice{Subflows: slices.Clone(s.route.answer.subflows), Reason: s.route.answer.reason}
		} else if g := b.classes.findClass(s.route.group); g != nil && g.limited {
			i.Out = wire.Choice{Subflows: slices.Clone(g.allowed), Reason: "policy"}
		}
		list = append(list, i)
	}
	return list
}
