package allowance

import (
	"fmt"
	"time"
)

// MaxLife bounds how long a permit may hold, whatever a service says.
const MaxLife = time.Hour

// Between questions that were not answered, or refused without a time to ask again.
const (
	askAgainMin = 5 * time.Second
	askAgainMax = 2 * time.Minute
)

// Holder holds a helper's permit: when to ask for one, and whether there is one. It
// fails closed: what is not known to be granted now is not. The zero Holder has none and
// asks at once.
type Holder struct {
	until time.Time // the permit ends
	life  time.Duration
	next  time.Time // to ask
	wait  time.Duration
	why   string // there is none, or it is not renewed
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
		h.until, h.life = p.Until, p.Life
	}
}

// Next is when to ask.
func (h *Holder) Next() time.Time { return h.next }

// Granted takes a permit that holds for life from when it was asked for, and returns it
// to be kept. It is renewed at half of its life.
func (h *Holder) Granted(asked time.Time, life time.Duration) Permit {
	life = min(life, MaxLife)
	h.until, h.life, h.why, h.wait = asked.Add(life), life, "", 0
	h.next = asked.Add(max(life/2, time.Second))
	return Permit{h.until, life}
}

// Refused takes a refusal, which ends a permit that holds: the cell is loaded now. Again
// is when the service wants to be asked again, 0 if it did not say.
func (h *Holder) Refused(now time.Time, why string, again time.Duration) {
	h.until, h.why = time.Time{}, why
	h.later(now, again)
}

// Failed takes that there was no answer. A permit holds to its end.
func (h *Holder) Failed(now time.Time, err error) {
	h.why = fmt.Sprintf("the operator's service cannot be asked: %v", err)
	h.later(now, 0)
}

func (h *Holder) later(now time.Time, again time.Duration) {
	h.wait = min(max(2*h.wait, askAgainMin), askAgainMax)
	h.next = now.Add(h.wait)
	if again > 0 {
		h.next = now.Add(min(max(again, time.Second), MaxLife))
	}
}

// Today is what the permit allows now; of its volume the service says nothing.
func (h *Holder) Today(now time.Time) Today {
	if left := h.until.Sub(now); left > 0 && left <= h.life {
		why := fmt.Sprintf("the operator permits it until %s", h.until.Format(time.TimeOnly))
		if h.why != "" {
			why += "; " + h.why
		}
		return Today{Free: true, Why: why}
	}
	if h.why == "" {
		return Today{Why: "the operator's service has not answered yet"}
	}
	return Today{Why: h.why}
}

// Until is when the permit ends, the zero time without one.
func (h *Holder) Until(now time.Time) time.Time {
	if h.Today(now).Free {
		return h.until
	}
	return time.Time{}
}
