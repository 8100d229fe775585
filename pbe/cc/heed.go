package cc

import (
	"time"

	"mpbond/base/unit"
)

// Heed is another controller until feedback comes for the first time, and PBE-CC
// from then on, which is BBR whenever feedback fails (see PBE). So who does not know
// whether a receiver listens to cells loses nothing.
type Heed struct {
	*PBE
	first Controller // nil from then on
}

// NewHeed begins as first; seed is for BBR's cycle.
func NewHeed(first Controller, seed uint64) *Heed {
	h := &Heed{NewPBE(seed), first}
	h.passive = true
	return h
}

// OnSent implements Controller.
func (h *Heed) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	h.PBE.OnSent(now, size, inFlight)
	if h.first != nil {
		h.first.OnSent(now, size, inFlight)
	}
}

// OnAck implements Controller. Both measure, so that PBE-CC begins with what the
// flow has shown.
func (h *Heed) OnAck(a Ack) {
	h.PBE.OnAck(a)
	switch {
	case h.first == nil:
	case h.PBE.heard:
		h.first, h.passive = nil, false
	default:
		h.first.OnAck(a)
	}
}

// OnLoss implements Controller.
func (h *Heed) OnLoss(l Loss) {
	h.PBE.OnLoss(l)
	if h.first != nil {
		h.first.OnLoss(l)
	}
}

// Limits implements Controller.
func (h *Heed) Limits(now time.Duration) Limits {
	if h.first != nil {
		return h.first.Limits(now)
	}
	return h.PBE.Limits(now)
}
