// SPDX-License-Identifier: Apache-2.0

package allowance

import (
	"fmt"
	"time"
)

// MaxLife bounds the validity of a permit, whatever a service says.
const MaxLife = time.Hour

// Delays after requests that failed, or were refused without a time to ask again.
const (
	minBackoff = 5 * time.Second
	maxBackoff = 2 * time.Minute
)

// Holder is the state of a helper's permit: whether it is valid and when to request the next one.
// It fails closed: without a known permit nothing is allowed. The zero Holder has no permit and
// requests one at once.
type Holder struct {
	expires     time.Time // end of the permit
	life        time.Duration
	nextRequest time.Time // when the next request is due
	backoff     time.Duration
	reason      string // why there is no permit, or why it is not renewed
}

// Permit is a permit as it is stored.
type Permit struct {
	Until time.Time     `json:"until"`
	Life  time.Duration `json:"life"`
}

// Restore restores a stored permit. It ignores one that has expired, or that seems valid for longer
// than its life because the clock was set back.
func (h *Holder) Restore(p Permit, now time.Time) {
	if left := p.Until.Sub(now); left > 0 && left <= p.Life && p.Life <= MaxLife {
		h.expires, h.life = p.Until, p.Life
	}
}

// NextRequest returns when the next request is due.
func (h *Holder) NextRequest() time.Time { return h.nextRequest }

// NoteGrant records a permit that is valid for life from the time of its request. It returns the
// permit to be stored. A permit is renewed after half of its life.
func (h *Holder) NoteGrant(requestedAt time.Time, life time.Duration) Permit {
	life = min(life, MaxLife)
	h.expires, h.life, h.reason, h.backoff = requestedAt.Add(life), life, "", 0
	h.nextRequest = requestedAt.Add(max(life/2, time.Second))
	return Permit{h.expires, life}
}

// NoteRefusal records a refusal, which also ends a valid permit: the cell is loaded now. retryAfter
// is the delay that the service asks for, or 0.
func (h *Holder) NoteRefusal(now time.Time, why string, retryAfter time.Duration) {
	h.expires, h.reason = time.Time{}, why
	h.scheduleNext(now, retryAfter)
}

// NoteFailure records a request without a response. A permit stays valid until it expires.
func (h *Holder) NoteFailure(now time.Time, err error) {
	h.reason = fmt.Sprintf("the operator's permit service cannot be reached: %v", err)
	h.scheduleNext(now, 0)
}

// scheduleNext sets the time of the next request: after retryAfter, or else after a back-off.
func (h *Holder) scheduleNext(now time.Time, retryAfter time.Duration) {
	h.backoff = min(max(2*h.backoff, minBackoff), maxBackoff)
	h.nextRequest = now.Add(h.backoff)
	if retryAfter > 0 {
		h.nextRequest = now.Add(min(max(retryAfter, time.Second), MaxLife))
	}
}

// DayLimit returns what the permit allows now. Permits do not limit the volume.
func (h *Holder) DayLimit(now time.Time) DayLimit {
	if left := h.expires.Sub(now); left > 0 && left <= h.life {
		why := fmt.Sprintf("the operator permits it until %s", h.expires.Format(time.TimeOnly))
		if h.reason != "" {
			why += "; " + h.reason
		}
		return DayLimit{Unlimited: true, Reason: why}
	}
	if h.reason == "" {
		return DayLimit{Reason: "the operator's permit service has not responded yet"}
	}
	return DayLimit{Reason: h.reason}
}

// Expiry returns when the permit expires, or the zero time without one.
func (h *Holder) Expiry(now time.Time) time.Time {
	if h.DayLimit(now).Unlimited {
		return h.expires
	}
	return time.Time{}
}
