// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"
)

func TestLateness(t *testing.T) {
	var h latenessHist
	for range 999 {
		h.addLateness(95 * time.Microsecond)
	}
	if s := h.summarizeLateness(); s.Disturbed || s.P50 != 95*time.Microsecond || s.P999 != 95*time.Microsecond {
		t.Errorf("%+v", s)
	}
	h.addLateness(21 * time.Millisecond)
	if s := h.summarizeLateness(); !s.Disturbed || s.Max != 21*time.Millisecond || s.P999 > time.Millisecond {
		t.Errorf("one packet 21 ms late: %+v", s)
	}
	if (&latenessHist{}).summarizeLateness().Disturbed {
		t.Error("nothing disturbs nothing")
	}
}
