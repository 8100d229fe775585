package exp

import (
	"math"
	"strings"
	"testing"

	"mpbond/lab"
	"mpbond/lab/radio"
)

// TestG5Figures: what the points of g5 make of transfers of known length, over made networks
// and over recordings.
func TestG5Figures(t *testing.T) {
	d := Data{}
	for _, c := range []string{"phones connected", "phones connected" + sourceSuffixes[1]} {
		for scheme, seconds := range map[string]float64{onloadScheme: 5, onloadGRD: 8, mptcp: 10, "single": 40} {
			d[c] = append(d[c], lab.Result{Scheme: scheme, Seconds: seconds, Bound: 4})
		}
	}
	told := map[string]float64{}
	for _, p := range rowG5(radio.Sets[0]).Points {
		what, ok := strings.CutPrefix(p.What, "phones connected: how many times as quick as ")
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
		told[what] = math.Round(of[0]*1e6) / 1e6
	}
	for what, want := range map[string]float64{
		mptcp + " " + onloadScheme + " is": 2, mptcp + " " + onloadGRD + " is": 1.25, mptcp + " perfect links would be": 2.5,
		"the home line " + onloadScheme + " is": 8, "the home line " + onloadGRD + " is": 5,
	} {
		if told[what] != want {
			t.Errorf("%s: %v instead of %v; %v", what, told[what], want, told)
		}
	}
}
