// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"time"

	"mpbond/base/unit"
)

// Sampler computes delivery-rate samples and rounds from a transport's events
// (draft-cheng-iccrg-delivery-rate-estimation-02). The transport stores a Mark with each packet in
// flight. The zero value is ready.
type Sampler struct {
	delivered       unit.Bytes
	deliveredTime   time.Duration // when delivered last changed
	firstSentTime   time.Duration // sending time of the newest delivered packet
	appLimitedUntil unit.Bytes    // app-limited until so many bytes are delivered; 0: not
	roundUntil      unit.Bytes
}

// Mark is the state of a Sampler when a packet was sent.
type Mark struct {
	Sent          time.Duration
	delivered     unit.Bytes
	deliveredTime time.Duration
	firstSentTime time.Duration
	appLimited    bool
}

// OnSent returns the mark of a packet that is sent. inFlight excludes it.
func (s *Sampler) OnSent(now time.Duration, inFlight unit.Bytes) Mark {
	if inFlight == 0 {
		s.firstSentTime, s.deliveredTime = now, now
	}
	return Mark{now, s.delivered, s.deliveredTime, s.firstSentTime, s.appLimitedUntil > 0}
}

// SetAppLimited records that the application has nothing to send. Samples of packets sent until the
// bytes in flight are delivered may be lower than the capacity of the network.
func (s *Sampler) SetAppLimited(inFlight unit.Bytes) {
	s.appLimitedUntil = max(s.delivered+inFlight, 1)
}

// OnDelivered counts one delivered packet. Call it for each packet of an acknowledgement, for the
// newest one last.
func (s *Sampler) OnDelivered(now time.Duration, size unit.Bytes) {
	s.delivered += size
	s.deliveredTime = now
	if s.appLimitedUntil > 0 && s.delivered > s.appLimitedUntil {
		s.appLimitedUntil = 0
	}
}

// FillAck sets the sample of an acknowledgement from the mark of its newest packet. Call it after
// OnDelivered. A sample over less than minRTT is dropped: acknowledgements were delayed and arrived
// together.
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
