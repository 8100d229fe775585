// SPDX-License-Identifier: Apache-2.0

package transport

import "time"

const (
	granularity    = time.Millisecond       // RFC 9002 section 6.1.2
	initialTimeout = 500 * time.Millisecond // before the first RTT sample
)

// rttEstimator estimates the round trip time of a path (RFC 9002 section 5). The zero value has no
// sample. It is not safe for concurrent use.
type rttEstimator struct {
	latest      time.Duration
	smoothed    time.Duration
	rttVar      time.Duration
	min         time.Duration
	firstSample time.Duration // time of the first sample; 0: there is none
}

// addRTTSample adds an RTT sample. adjusted is the sample without the peer's acknowledgement delay.
func (r *rttEstimator) addRTTSample(now, adjusted, full time.Duration) {
	r.latest = full
	if r.min == 0 || full < r.min {
		r.min = full
	}
	if adjusted < r.min {
		adjusted = full
	}
	if r.smoothed == 0 {
		r.smoothed, r.rttVar, r.firstSample = adjusted, adjusted/2, now
		return
	}
	r.rttVar += ((r.smoothed - adjusted).Abs() - r.rttVar) / 4
	r.smoothed += (adjusted - r.smoothed) / 8
}

// usualMost returns what a round trip seldom exceeds.
func (r *rttEstimator) usualMost() time.Duration { return r.smoothed + 4*r.rttVar }

// probeTimeout returns the probe timeout without backoff (RFC 9002 section 6.2.1).
func (r *rttEstimator) probeTimeout() time.Duration {
	if r.smoothed == 0 {
		return initialTimeout
	}
	return r.smoothed + max(4*r.rttVar, granularity) + ackDelay
}

// lossDelay returns the time threshold of loss detection (RFC 9002 section 6.1.2).
func (r *rttEstimator) lossDelay() time.Duration {
	d := max(r.smoothed, r.latest)
	return max(d+d/8, granularity)
}
