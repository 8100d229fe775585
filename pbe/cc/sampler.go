package cc

import (
	"time"

	"mpbond/base/unit"
)

// Sampler makes delivery-rate samples and rounds of what a transport sees
// (draft-cheng-iccrg-delivery-rate-estimation-02). A transport keeps one Mark
// with each packet in flight. The zero value is ready.
type Sampler struct {
	delivered       unit.Bytes
	deliveredTime   time.Duration // when delivered was last changed
	firstSentTime   time.Duration // sending time of the newest packet delivered
	appLimitedUntil unit.Bytes    // app-limited until so much is delivered; 0 for not
	roundUntil      unit.Bytes
}

// Mark is what was true when a packet left.
type Mark struct {
	Sent          time.Duration
	delivered     unit.Bytes
	deliveredTime time.Duration
	firstSentTime time.Duration
	appLimited    bool
}

// OnSent marks a packet that leaves; inFlight is what was in flight before it.
func (s *Sampler) OnSent(now time.Duration, inFlight unit.Bytes) Mark {
	if inFlight == 0 {
		s.firstSentTime, s.deliveredTime = now, now
	}
	return Mark{now, s.delivered, s.deliveredTime, s.firstSentTime, s.appLimitedUntil > 0}
}

// SetAppLimited says that there is nothing to send: what is sent until all in
// flight now is delivered may show a lower rate than the network has.
func (s *Sampler) SetAppLimited(inFlight unit.Bytes) {
	s.appLimitedUntil = max(s.delivered+inFlight, 1)
}

// OnDelivered counts bytes of one packet as delivered. The packets of one
// acknowledgement are told one by one; the newest of them is told last.
func (s *Sampler) OnDelivered(now time.Duration, size unit.Bytes) {
	s.delivered += size
	s.deliveredTime = now
	if s.appLimitedUntil > 0 && s.delivered > s.appLimitedUntil {
		s.appLimitedUntil = 0
	}
}

// FillAck puts the sample of the newest packet of an acknowledgement into a, after
// Delivered was told of all of them. A sample over less than minRTT is none: the
// acknowledgements were held back and came at once.
func (s *Sampler) FillAck(a *Ack, m Mark, minRTT time.Duration) {
	a.Delivered, a.Sent, a.AppLimited = s.delivered, m.Sent, m.appLimited
	if m.delivered >= s.roundUntil {
		s.roundUntil = s.delivered
		a.Round = true
	}
	sending, acking := m.Sent-m.firstSentTime, s.deliveredTime-m.deliveredTime
	s.firstSentTime = m.Sent
	if took := max(sending, acking); took > 0 && took >= minRTT {
		a.Rate = unit.RateOf(s.delivered-m.delivered, took)
	}
}
