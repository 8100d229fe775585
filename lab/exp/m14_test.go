// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"math"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// The second half of a playback continues at the same rate for 15 minutes.
func TestRepeated(t *testing.T) {
	var p []radio.Packet
	for s := range 30 {
		p = append(p, radio.Packet{At: time.Duration(s) * time.Second, Size: unit.Bytes(s), Up: s == 16})
	}
	got := repeatTraces([]radio.Trace{{Device: "d", Radio: radio.LTE, Packets: p}}, 15*time.Second, 30*time.Second)
	if len(got) != 1 || got[0].Device != "d" || got[0].Radio != radio.LTE || len(got[0].Packets) != 900 {
		t.Fatalf("%d traces of %+v", len(got), got)
	}
	for i, p := range got[0].Packets {
		if n := 15 + i%15; p.At != time.Duration(i)*time.Second || p.Size != unit.Bytes(n) || p.Up != (n == 16) {
			t.Fatalf("packet %d: %+v", i, p)
		}
	}
}

// A busy processor of 1.468 W for 15 minutes takes 16.9 % of 7798 J.
func TestBattery(t *testing.T) {
	m := Battery(radio.Sets[0], "helper1")
	r := lab.Result{Seconds: 10, CPU: map[string]float64{"helper1": 10}, Video: &lab.Playback{}}
	if v, ok := m.Of(r); !ok || math.Abs(v-100*386.2e-3*3.8*900/7797.6) > 1e-6 {
		t.Errorf("%v %v", v, ok)
	}
	r.Video = nil
	if _, ok := m.Of(r); ok {
		t.Error("of a download")
	}
}
