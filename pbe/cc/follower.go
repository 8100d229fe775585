// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"time"

	"mpbond/base/unit"
)

// FeedbackFollower uses another controller until the first feedback arrives, and PBE-CC from then
// on. PBE-CC falls back to BBR when feedback fails (see PBE). It suits senders that do not know
// whether the receiver measures its cells.
type FeedbackFollower struct {
	*PBE
	initial Controller // nil after the first feedback
}

// NewFeedbackFollower returns a controller that starts as initial. seed is for BBR's cycle.
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

// OnAck implements Controller. PBE-CC measures from the beginning, so it starts with the flow's
// measurements.
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
