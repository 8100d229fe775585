// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"math"
	"strings"
	"testing"

	"mpbond/lab"
	"mpbond/lab/radio"
)

// TestG5Figures checks the points of g5 with transfers of known length, with generated networks and
// with recordings.
func TestG5Figures(t *testing.T) {
	d := Data{}
	for _, c := range []string{"phones connected", "phones connected" + sourceSuffixes[1]} {
		for scheme, seconds := range map[string]float64{onloadScheme: 5, onloadGRD: 8, mptcp: 10, "single": 40} {
			d[c] = append(d[c], lab.Result{Scheme: scheme, Seconds: seconds, Bound: 4})
		}
	}
	speedups := map[string]float64{}
	for _, p := range rowG5KernelMPTCP(radio.Sets[0]).Points {
		what, ok := strings.CutPrefix(p.What, "phones connected: speedup of ")
		if !ok {
			if len(p.Of(d)) > 0 {
				t.Errorf("%s: %v, of other cells", p.What, p.Of(d))
			}
			continue
		}
		of := p.Of(d)
		if len(of) != 2 || math.Abs(of[0]-of[1]) > 1e-9 || p.Low != 2.3 || p.High != 2.3 {
			t.Errorf("%s: %v of %v to %v", p.What, of, p.Low, p.High)
			continue
		}
		speedups[what] = math.Round(of[0]*1e6) / 1e6
	}
	for what, want := range map[string]float64{
		onloadScheme + " over " + mptcp: 2, onloadGRD + " over " + mptcp: 1.25, "perfect links over " + mptcp: 2.5,
		onloadScheme + " over the home line": 8, onloadGRD + " over the home line": 5,
	} {
		if speedups[what] != want {
			t.Errorf("%s: %v instead of %v; %v", what, speedups[what], want, speedups)
		}
	}
}
