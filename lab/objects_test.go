// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"math"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestRunObjects moves objects over one connection each way: both schemes report their times.
func TestRunObjects(t *testing.T) {
	t.Parallel()
	needTransfers(t)
	top, err := Triangle("8/10/5")
	if err != nil {
		t.Fatal(err)
	}
	for _, upload := range []bool{false, true} {
		p := RunSpec{Topology: top, Schemes: []string{"single", "mptcp"}, Size: 256 * unit.KB, Objects: 3, Upload: upload,
			Reps: 1, KeepDisturbed: true}
		n := 0
		if err := Run(t.Context(), p, func(r Result) {
			n++
			if o := r.Objects; r.Error != "" || o == nil || o.Cold <= 0 || o.Warm <= 0 || o.Cold+o.Warm > r.Seconds ||
				o.Cold < o.ColdBound || o.Warm < o.WarmBound || r.Bytes != 3*p.Size || !r.SHA {
				t.Errorf("upload %v: %+v, %+v", upload, r, r.Objects)
			}
		}); err != nil || n != 2 {
			t.Errorf("upload %v: %d results, %v", upload, n, err)
		}
	}
}

// The first object is cold, the others are warm. Their bounds differ by a round trip.
func TestObjectTimes(t *testing.T) {
	top, err := Triangle("8/10/5")
	if err != nil {
		t.Fatal(err)
	}
	p := RunSpec{Topology: top, Schemes: []string{"single", "mptcp", "mpbond"}, Size: unit.MB, Objects: 4, Reps: 1}
	s, err := p.parseSession()
	if err != nil || len(s.spec.Items) != 4 || s.spec.Size != 0 || p.totalBytes() != 4*unit.MB {
		t.Fatalf("%+v, %v", s, err)
	}
	o := s.objectTimes(Result{Items: []float64{1, 1.5, 2.25, 2.75}})
	if o == nil || o.Cold != 1 || o.Warm != 0.5 || math.Abs(o.ColdBound-o.WarmBound-0.05) > 1e-9 || o.ColdBound < 0.7 {
		t.Errorf("%+v", o)
	}
	if o := s.objectTimes(Result{Items: []float64{1}}); o != nil {
		t.Errorf("one of four objects has times: %+v", o)
	}
	for _, bad := range []RunSpec{
		{Size: unit.MB, Objects: 1}, {Objects: 3}, {Size: unit.MB, Objects: 3, Stride: time.Second},
		{Size: unit.MB, Objects: 3, Items: []unit.Bytes{1}}, {Size: unit.MB, Objects: 3, Schemes: []string{"onload"}},
		{Size: unit.MB, Objects: 3, Schemes: []string{"combine"}},
	} {
		bad.Topology = top
		if _, err := bad.parseSession(); err == nil || !strings.Contains(err.Error(), "object") &&
			!strings.Contains(err.Error(), "several items") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
