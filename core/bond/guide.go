package bond

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Guide says which paths a stream may use now. It weighs what the bond knows
// nothing of, such as energy and money. The scheduler then chooses among those.
// It is asked often, and answers at once.
type Guide interface {
	// AllowSubflows marks paths as Allowed and says why. Paths are those that are alive,
	// by rising number; it keeps no reference to them. To mark none allows all.
	AllowSubflows(paths []GuideSubflow, d Demand) string
}

// GuideSubflow is a path as a Guide sees it.
type GuideSubflow struct {
	ID    wire.SubflowID
	Rate  unit.Rate // that it carries
	Known bool      // Rate was measured while it was the limit, else it is a guess
	RTT   time.Duration
	Delay time.Duration // PAD
	Idle  time.Duration // since it last carried anything, either way
	InUse bool          // it is allowed by the last answer
	// Allowed is the answer.
	Allowed bool
}

// Demand is what a Guide is told of a stream. The zero Demand is something small
// that is to arrive soon: a message, a control frame, a datagram.
type Demand struct {
	Pending unit.Bytes // of all streams
	Burst   unit.Bytes // what it was given to carry since it last had nothing to send
	// BackloggedFor is for how long it has had bytes that could be sent, without a pause.
	BackloggedFor time.Duration
}

// SetGuide has g asked from now on; nil allows every path to every stream.
func (b *Bond) SetGuide(g Guide) { b.filter.setGuide(g) }

// StreamInfo describes a stream for status output.
type StreamInfo struct {
	ID       wire.StreamID
	Dest     string
	Mode     wire.Mode
	Priority wire.Priority
	Weight   uint8
	Sent     unit.Bytes // that the far end has
	Received unit.Bytes // that the app has read
	// Out are the paths that this end may send it by, none if all, and why. In is
	// what the server says of the other direction, at the primary.
	Out, In wire.Choice
	User    any
}

// ListStreams describes the streams that were opened last, newest first, at most
// limit.
func (b *Bond) ListStreams(limit int) (list []StreamInfo) {
	ids := slices.SortedFunc(maps.Keys(b.streams.all), func(x, y wire.StreamID) int { return cmp.Compare(y, x) })
	for _, id := range ids[:min(limit, len(ids))] {
		s := b.streams.all[id]
		i := StreamInfo{ID: s.id, Dest: s.dest, Mode: s.route.mode, Sent: unit.Bytes(s.send.firstUnacked), Received: unit.Bytes(s.reassembly.readOffset), User: s.User}
		r := b.backlog.rankStream(s)
		i.Priority, i.Weight = r.priority, r.weight
		if b.cfg.OpensStreams {
			i.In = s.route.choice
		}
		if b.filter.guide != nil && s.route.mode == wire.Bond && !s.route.released {
			i.Out = wire.Choice{Subflows: slices.Clone(s.route.answer.subflows), Reason: s.route.answer.reason}
		} else if g := b.classes.findClass(s.route.group); g != nil && g.limited {
			i.Out = wire.Choice{Subflows: slices.Clone(g.allowed), Reason: "policy"}
		}
		list = append(list, i)
	}
	return list
}
