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
// such as energy and money. The scheduler then chooses one of the allowed subflows for each
// segment. A server reports the allowed set to the primary in a CHOICE frame. The bond calls a
// Guide often; it must not block.
type Guide interface {
	// AllowSubflows sets Allowed in the subflows that may be used and returns the reason. They are
	// the live ones, by rising ID. It must not keep a reference to them. If it allows none, all are
	// allowed.
	AllowSubflows(subflows []GuideSubflow, d Demand) string
}

// Explainer is a Guide that explains its answers.
type Explainer interface {
	// Explain returns the forecast that an answer rests on, for people, "" if there is none. It
	// keeps no reference to list.
	Explain(list []GuideSubflow, d Demand) string
}

// WakeDelayer is a Guide that reports wake delays of radios.
type WakeDelayer interface {
	// WakeDelay returns how long the first packet over a subflow waits until its radio is awake; 0 if that is
	// awake already, or there is none.
	WakeDelay(p GuideSubflow) time.Duration
}

// GuideSubflow is a subflow as a Guide sees it.
type GuideSubflow struct {
	ID    wire.SubflowID
	Rate  unit.Rate // its throughput
	Known bool      // Rate was measured while it was the limit; else it is a guess
	// Ceiling bounds what a guessed rate may grow to, as a packet train has shown; 0: no bound.
	Ceiling unit.Rate
	RTT     time.Duration
	// MinRTT is the least round trip that was measured end to end; 0 if it is unknown.
	MinRTT time.Duration
	Delay  time.Duration // PAD, and by how much a handoff that is forecast delays it on average
	// Spread is the mean deviation of the round trip of its first hop. Loss is the share of packets
	// that hop sent again lately.
	Spread time.Duration
	Loss   float64
	// QuietFor is the time since it last carried anything in either direction.
	QuietFor time.Duration
	InUse    bool // the last answer allowed it
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
	// More is how many bytes of the present message are expected beyond the pending ones, if
	// MoreKnown.
	More      unit.Bytes
	MoreKnown bool
	// Repetition holds messages that will probably follow the present one: as many as there were already.
	Repetition Repetition
	// SourceRate is the rate at which the app has written the present message so far, if the subflows
	// took all of it; 0: unknown, or the subflows are slower.
	SourceRate unit.Rate
	// NeededIn is when the app needs the present message: to have it sooner gains nothing. 0: it needs
	// it as soon as possible.
	NeededIn time.Duration
}

// Repetition is a number of messages that follow each other, each asked for when the one before has
// arrived.
type Repetition struct {
	Count int
	Bytes unit.Bytes    // of each
	Pause time.Duration // before each
}

// Expectation describes the present message in one direction of a stream, as the primary expects it.
type Expectation struct {
	At  wire.DataSeq // bytes that the app has moved so far
	End wire.DataSeq // where the message ends; 0: unknown
	// NeededAt is when the app needs it: to have it sooner gains nothing. Zero: as soon as possible.
	NeededAt time.Time
}

// neededIn returns in which time the app needs the message, 0 if it needs it as soon as possible.
func (e *Expectation) neededIn(now time.Time) time.Duration {
	if e.NeededAt.IsZero() {
		return 0
	}
	return max(0, e.NeededAt.Sub(now))
}

// ExpectSent sets what is expected of the message that the app writes now.
func (s *Stream) ExpectSent(e Expectation) { s.permission.expected = e }

// ExpectReceived sends the other end what is expected of the message that it sends now. It reports
// whether that was queued; the other end may not get it even then.
func (s *Stream) ExpectReceived(now time.Time, e Expectation) bool {
	return s.bond.control.queueExpect(wire.Expect{Stream: s.id, At: e.At, End: e.End, NeededIn: e.neededIn(now)})
}

// endSlack is the part of its expected bytes by which a message may be longer, and is still about to
// end.
const endSlack = 8

// messageRun holds the messages of about the same size that a stream has sent one after the other. A
// message ends when the other end sends something after its last byte, and the stream sends again. The
// zero value is a new stream.
type messageRun struct {
	before Repetition // messages before the present one
	// Of the present message: when its first bytes were sent, how many were, how many bytes the app had
	// written when it began, and whether the app had to wait for room since.
	beganAt    time.Time
	size       unit.Bytes
	writtenEnd wire.DataSeq
	isBlocked  bool
	// When bytes were last sent, and how many bytes of the other end had arrived by then.
	sentAt   time.Time
	received wire.DataSeq
}

const (
	// maxRunPause is the longest pause between messages of a run.
	maxRunPause = 500 * time.Millisecond
	// maxRun bounds the messages of a run, and so what a far end that asks for many can cause.
	maxRun = 16
	// maxRunRatio is the greatest ratio of the sizes of messages of a run.
	maxRunRatio = 2
	// leastRequest is the least size of what asks for another message. Window updates of HTTP/2 are
	// smaller.
	leastRequest = 64
	// leastSourceTime is how long the app must have written until its rate counts.
	leastSourceTime = 100 * time.Millisecond
)

// beginsMessage reports whether bytes that the stream sends now begin another message.
func (r *messageRun) beginsMessage(now time.Time, s *Stream) bool {
	return s.permission.burst == 0 && (r.sentAt.IsZero() || now.Sub(r.sentAt) > maxRunPause ||
		s.reassembly.nextExpected >= r.received+leastRequest)
}

// repetition returns what is expected to follow the message that the stream sends now.
func (r *messageRun) repetition(now time.Time, s *Stream) Repetition {
	if !r.beginsMessage(now, s) {
		return r.before
	}
	pause := now.Sub(r.sentAt)
	if r.sentAt.IsZero() || pause > maxRunPause {
		return Repetition{}
	}
	b := r.before
	if b.Count > 0 && (r.size > maxRunRatio*b.Bytes || b.Bytes > maxRunRatio*r.size) {
		b = Repetition{}
	}
	b.Count, b.Bytes = min(b.Count+1, maxRun), r.size
	b.Pause += (pause - b.Pause) / time.Duration(b.Count) // the mean
	return b
}

// recordSent records that the stream sends n bytes now.
func (r *messageRun) recordSent(now time.Time, s *Stream, n unit.Bytes) {
	if r.beginsMessage(now, s) {
		*r = messageRun{before: r.repetition(now, s), beganAt: now, writtenEnd: s.send.end}
	}
	r.size += n
	r.sentAt, r.received = now, s.reassembly.nextExpected
	r.isBlocked = r.isBlocked || !s.isSourceLimit()
}

// sourceRate returns how fast the app writes the message that the stream sends now; 0 if that is
// unknown, or the app had to wait.
func (r *messageRun) sourceRate(now time.Time, s *Stream) unit.Rate {
	took := now.Sub(r.beganAt)
	if r.isBlocked || took < leastSourceTime || s.send.end <= r.writtenEnd || r.beginsMessage(now, s) {
		return 0
	}
	return unit.RateOf(unit.Bytes(s.send.end-r.writtenEnd), took)
}

// demandOf returns the demand of the stream if that many bytes are pending, without BackloggedFor.
func (s *Stream) demandOf(pending unit.Bytes, now time.Time) Demand {
	d := Demand{Pending: pending, Burst: s.permission.burst, NeededIn: s.permission.expected.neededIn(now),
		Repetition: s.run.repetition(now, s),
		SourceRate: s.run.sourceRate(now, s)}
	at, end, written := s.permission.expected.At, s.permission.expected.End, s.send.end
	switch {
	case s.finSet:
		d.MoreKnown = true
	case s.announcedEnd > s.send.firstUnacked: // of a chunk
		d.More, d.MoreKnown = unit.Bytes(max(s.announcedEnd, written)-written), true
	case end <= at: // unknown
	case written <= end:
		d.More, d.MoreKnown = unit.Bytes(end-written), true
	case written-end <= (end-at)/endSlack:
		d.MoreKnown = true
	}
	return d
}

// UsedSubflows returns the subflows that the stream may use in a direction, by the last answer;
// none for all. At the primary it knows those of the other direction as the server reported them.
func (s *Stream) UsedSubflows(sent bool) []wire.SubflowID {
	if sent {
		return slices.Clone(s.permission.answer.subflows)
	}
	return slices.Clone(s.permission.choice.Subflows)
}

// ListGuideSubflows returns the subflows that are not silent as a guide sees them.
func (b *Bond) ListGuideSubflows(now time.Time) (list []GuideSubflow) {
	for _, p := range b.subflows.list {
		if !p.isSilent() {
			list = append(list, p.guideView(now))
		}
	}
	return list
}

// SetGuide sets the guide; nil allows every subflow to every stream.
func (b *Bond) SetGuide(g Guide) { b.filter.replaceGuide(g) }

// StreamInfo describes a stream, for status output.
type StreamInfo struct {
	ID        wire.StreamID
	Dest      string
	Mode      wire.Mode
	Priority  wire.Priority
	Weight    uint8
	Acked     unit.Bytes // bytes that the far end has acknowledged, without gaps
	ReadByApp unit.Bytes // bytes that the app has read
	// Out holds the subflows that this end may use for it, none for all, and the reason with the
	// guide's explanation. In is the server's report on the other direction, at the primary.
	Out, In wire.Choice
	User    any
}

// ListStreams describes at most limit streams, the most recently opened first.
func (b *Bond) ListStreams(now time.Time, limit int) (list []StreamInfo) {
	ids := slices.SortedFunc(maps.Keys(b.streams.all), func(x, y wire.StreamID) int { return cmp.Compare(y, x) })
	for _, id := range ids[:min(limit, len(ids))] {
		s := b.streams.all[id]
		i := StreamInfo{ID: s.id, Dest: s.dest, Mode: s.permission.mode, Acked: unit.Bytes(s.send.firstUnacked),
			ReadByApp: unit.Bytes(s.reassembly.readOffset), User: s.User}
		r := b.backlog.rankStream(s)
		i.Priority, i.Weight = r.priority, r.weight
		if b.cfg.OpensStreams {
			i.In = s.permission.choice
		}
		if b.filter.guide != nil && s.permission.mode == wire.ModeBond && !s.permission.allowsAll {
			i.Out = wire.Choice{Subflows: slices.Clone(s.permission.answer.subflows),
				Reason: b.filter.explainedReason(&s.permission, now)}
		} else if g := b.classes.findGroupClass(s.permission.group); g != nil && g.limited {
			i.Out = wire.Choice{Subflows: slices.Clone(g.allowed), Reason: "policy"}
		}
		list = append(list, i)
	}
	return list
}
