// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"
)

// Quantiles of evenly spread delays of each size are at most 1/64 off.
func TestDelayHist(t *testing.T) {
	for _, top := range []time.Duration{100 * time.Microsecond, 10 * time.Millisecond, time.Second, time.Minute} {
		var h delayHist
		const n = 10000
		for i := range n {
			h.countPacketDelay(top * time.Duration(i+1) / n)
		}
		s := h.summarizeDelays()
		for _, c := range []struct {
			got  time.Duration
			want float64
		}{{s.P50, .5}, {s.P95, .95}, {s.P99, .99}, {s.Max, 1}} {
			want := time.Duration(c.want * float64(top))
			if c.got < want || c.got > want+want/60+delayStep {
				t.Errorf("up to %v: %v of %v", top, c.got, want)
			}
		}
		if s.Packets != n {
			t.Errorf("%d packets", s.Packets)
		}
	}
	if s := (&delayHist{}).summarizeDelays(); s != (Delays{}) {
		t.Errorf("nothing: %+v", s)
	}
	var h delayHist
	h.countPacketDelay(time.Hour)
	if h.summarizeDelays().P50 > time.Hour || h.summarizeDelays().Max != time.Hour {
		t.Error("an hour")
	}
	for d := time.Duration(0); d < 60*time.Second; d += d/300 + 1 {
		if i := delayBucket(d); d > delayBucketEdge(i) || i > 0 && d < delayBucketEdge(i-1) {
			t.Fatalf("%v in the bucket up to %v", d, delayBucketEdge(i))
		}
	}
}
