package cc

import (
	"time"

	"mpbond/base/unit"
)

// Sampler makes delivery-rate samples and rounds of what a transport sees
// (draft-cheng-iccrg-delivery-rate-estimation-02). A transport keeps one Mark
// with each packet in flight. The zero value is ready.
type Sampler struct {
	delivered  unit.Bytes
	at         time.Duration // when delivered was last changed
	firstSent  time.Duration // sending time of the newest packet delivered
	limited    unit.Bytes    // app-limited until so much is delivered; 0 for not
	roundUntil unit.Bytes
}

// Mark is what was true when a packet left.
type Mark struct {
	Sent      time.Duration
	delivered unit.Bytes
	at        time.Duration
	firstSent time.Duration
	limited   bool
}

// Sent marks a packet that leaves; inFlight is what was in flight before it.
func (s *Sampler) Sent(now time.Duration, inFlight unit.Bytes) Mark {
	if inFlight == 0 {
		s.firstSent, s.at = now, now
	}
	return Mark{now, s.delivered, s.at, s.firstSent, s.limited > 0}
}

// AppLimited says that there is nothing to send: what is sent until all in
// flight now is delivered may show a lower rate than the network has.
func (s *Sampler) AppLimited(inFlight unit.Bytes) { s.limited = max(s.delivered+inFlight, 1) }

// Delivered counts bytes of one packet as delivered. The packets of one
// acknowledgement are told one by one; the newest of them is told last.
func (s *Sampler) Delivered(now time.Duration, size unit.Bytes) {
	s.delivered += size
	s.at = now
	if s.limited > 0 && s.delivered > s.limited {
		s.limited = 0
	}
}

// Fill puts the sample of the newest packet of an acknowledgement into a, after
// Delivered was told of all of them. A sample over less than minRTT is none: the
// acknowledgements were held back and came at once.
func (s *Sampler) Fill(a *Ack, m Mark, minRTT time.Duration) {
	a.Delivered, a.Sent, a.AppLimited = s.delivered, m.Sent, m.limited
	if m.delivered >= s.roundUntil {
		s.roundUntil = s.delivered
		a.Round = true
	}
	sending, acking := m.Sent-m.firstSent, s.at-m.at
	s.firstSent = m.Sent
	if took := max(sending, acking); took > 0 && took >= minRTT {
		a.Rate = unit.RateOf(s.delivered-m.delivered, took)
	}
}
