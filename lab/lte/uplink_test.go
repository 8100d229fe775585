// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// TestUplink: what is ready within a period leaves together; the first waits for a request and its grant.
func TestUplink(t *testing.T) {
	u := NewUplink(1)
	first := u.NextGrant(11 * ms)
	if first < 19*ms || first >= 23*ms {
		t.Errorf("the first leaves at %v", first)
	}
	if next := u.NextGrant(15 * ms); next != first {
		t.Errorf("the second leaves at %v, want %v", next, first)
	}
	if next := u.NextGrant(first + 1); next != first+srPeriod {
		t.Errorf("one more to send: %v, want %v", next, first+srPeriod)
	}
	if idle := u.NextGrant(time.Second + 1); idle < time.Second+srPeriod+grantMin {
		t.Errorf("idle: %v", idle)
	}
}
