// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestLimitIsNoMeasurement checks that the estimate equals a configured pace, and returns to the
// previous value afterwards.
func TestLimitIsNoMeasurement(t *testing.T) {
	w := &linkSim{now: t0, h: Hop{SRTT: 20 * ms, MinRTT: 20 * ms, MSS: 1448}}
	p := Subflow{}
	step := func(offered unit.Rate) unit.Rate {
		for range 100 {
			w.runFor(10*ms, 10*unit.Mbps, offered)
			p.AddLocalSample(w.now, w.h)
		}
		return p.EstimateAt(w.now).Th
	}
	if th := step(20 * unit.Mbps); !withinPercent(th, 10*unit.Mbps, 5) {
		t.Errorf("at first %v", th)
	}
	w.queue, w.h.PacingLimit, w.h.Unsent = 0, 200*unit.Kbps, 16<<10
	if th := step(200 * unit.Kbps); th != 200*unit.Kbps {
		t.Errorf("under a limit of 200 kbit/s: %v", th)
	}
	w.h.PacingLimit = 0
	if th := p.EstimateAt(w.now.Add(time.Millisecond)).Th; th != 200*unit.Kbps {
		t.Errorf("the limit is that of the newest sample: %v", th)
	}
	w.h.Unsent = 0
	p.AddLocalSample(w.now.Add(time.Second), w.h)
	if th := p.EstimateAt(w.now.Add(time.Second)).Th; !withinPercent(th, 10*unit.Mbps, 5) {
		t.Errorf("when it has ended: %v", th)
	}
}
