package lab

import (
	"testing"
	"time"
)

func TestLateness(t *testing.T) {
	var h lateHist
	for range 999 {
		h.add(95 * time.Microsecond)
	}
	if s := h.summary(); s.Disturbed || s.P50 != 95*time.Microsecond || s.P999 != 95*time.Microsecond {
		t.Errorf("%+v", s)
	}
	h.add(21 * time.Millisecond)
	if s := h.summary(); !s.Disturbed || s.Max != 21*time.Millisecond || s.P999 > time.Millisecond {
		t.Errorf("one packet 21 ms late: %+v", s)
	}
	if (&lateHist{}).summary().Disturbed {
		t.Error("nothing disturbs nothing")
	}
}
