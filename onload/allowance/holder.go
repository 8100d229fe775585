package allowance

import (
	"fmt"
	"time"
)

// MaxLife bounds how long a permit may hold, whatever a service says.
const MaxLife = time.Hour

// Between questions that were not answered, or refused without a time to ask again.
const (
	minBackoff = 5 * time.Second
	maxBackoff = 2 * time.Minute
)

// Holder holds a helper's permit: when to ask for one, and whether there is one. It
// fails closed: what is not known to be granted now is not. The zero Holder has none and
// asks at once.
type Holder struct {
	expires     time.Time // the permit ends
	life        time.Duration
	nextRequest time.Time // to ask
	backoff     time.Duration
	reason      string // there is none, or it is not renewed
}

// Permit is a permit as it is kept.
type Permit struct {
	Until time.Time     `json:"until"`
	Life  time.Duration `json:"life"`
}

// Restore takes a permit that was kept. One that is over, or that a clock which was set
// back would make longer than it was, is none.
func (h *Holder) Restore(p Permit, now time.Time) {
	if left := p.Until.Sub(now); left > 0 && left <= p.Life && p.Life <= MaxLife {
		h.expires, h.life = p.Until, p.Life
	}
}

// NextRequest is when to ask.
func (h *Holder) NextRequest() time.Time { return h.nextRequest }

// NoteGrant takes a permit that holds for life from when it was asked for, and returns it
// to be kept. It is renewed at half of its life.
func (h *Holder) NoteGrant(asked time.Time, life time.Duration) Permit {
	life = min(life, MaxLife)
	h.expires, h.life, h.reason, h.backoff = asked.Add(life), life, "", 0
	h.nextRequest = asked.Add(max(life/2, time.Second))
	return Permit{h.expires, life}
}

// NoteRefusal takes a refusal, which ends a permit that holds: the cell is loaded now. Again
// is when the service wants to be asked again, 0 if it did not say.
func (h *Holder) NoteRefusal(now time.Time, why string, again time.Duration) {
	h.expires, h.reason = time.Time{}, why
	h.scheduleNext(now, again)
}

// NoteFailure takes that there was no answer. A permit holds to its end.
func (h *Holder) NoteFailure(now time.Time, err error) {
	h.reason = fmt.Sprintf("the operator's service cannot be asked: %v", err)
	h.scheduleNext(now, 0)
}

func (h *Holder) scheduleNext(now time.Time, again time.Duration) {
	h.backoff = min(max(2*h.backoff, minBackoff), maxBackoff)
	h.nextRequest = now.Add(h.backoff)
	if again > 0 {
		h.nextRequest = now.Add(min(max(again, time.Second), MaxLife))
	}
}

// DayLimit is what the permit allows now; of its volume the service says nothing.
func (h *Holder) DayLimit(now time.Time) DayLimit {
	if left := h.expires.Sub(now); left > 0 && left <= h.life {
		why := fmt.Sprintf("the operator permits it until %s", h.expires.Format(time.TimeOnly))
		if h.reason != "" {
			why += "; " + h.reason
		}
		return DayLimit{Unlimited: true, Reason: why}
	}
	if h.reason == "" {
		return DayLimit{Reason: "the operator's service has not answered yet"}
	}
	return DayLimit{Reason: h.reason}
}

// Expiry is when the permit ends, the zero time without one.
func (h *Holder) Expiry(now time.Time) time.Time {
	if h.DayLimit(now).Unlimited {
		return h.expires
	}
	return time.Time{}
}
