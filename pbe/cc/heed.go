package cc

import (
	"time"

	"mpbond/base/unit"
)

// FeedbackFollower is another controller until feedback comes for the first time, and PBE-CC
// from then on, which is BBR whenever feedback fails (see PBE). So who does not know
// whether a receiver listens to cells loses nothing.
type FeedbackFollower struct {
	*PBE
	initial Controller // nil from then on
}

// NewFeedbackFollower begins as first; seed is for BBR's cycle.
func NewFeedbackFollower(initial Controller, seed uint64) *FeedbackFollower {
	h := &FeedbackFollower{NewPBE(seed), initial}
	h.passive = true
	return h
}

// OnSent implements Controller.
func (h *FeedbackFollower) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	h.PBE.OnSent(now, size, inFlight)
	if h.initial != nil {
		h.initial.OnSent(now, size, inFlight)
	}
}

// OnAck implements Controller. Both measure, so that PBE-CC begins with what the
// flow has shown.
func (h *FeedbackFollower) OnAck(a Ack) {
	h.PBE.OnAck(a)
	switch {
	case h.initial == nil:
	case h.PBE.hasFeedback:
		h.initial, h.passive = nil, false
	default:
		h.initial.OnAck(a)
	}
}

// OnLoss implements Controller.
func (h *FeedbackFollower) OnLoss(l Loss) {
	h.PBE.OnLoss(l)
	if h.initial != nil {
		h.initial.OnLoss(l)
	}
}

// Limits implements Controller.
func (h *FeedbackFollower) Limits(now time.Duration) Limits {
	if h.initial != nil {
		return h.initial.Limits(now)
	}
	return h.PBE.Limits(now)
}
