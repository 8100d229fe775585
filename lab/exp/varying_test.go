// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// TestPayloadSamples checks what arrived over all links of the primary, in steps, as payload.
func TestPayloadSamples(t *testing.T) {
	r := lab.Result{Bytes: 2000, Streams: 1, Seconds: 0.4, Traffic: []lab.Traffic{
		{Node: "primary", Link: "ps", Gaps: []int64{50_000, 10_000, 60_000}, Sizes: []int32{-1000, 500, -1000}},
		{Node: "primary", Link: "pipe1", Gaps: []int64{399_999}, Sizes: []int32{-2000}},
		{Node: "helper1", Link: "pipe1", Gaps: []int64{1}, Sizes: []int32{-9000}},
	}}
	// 4000 bytes for 2000 of payload; 1000 bytes in 0.1 s are 0.08 Mbit/s.
	want := []float64{0.04, 0.04, 0, 0.08}
	got := payloadSamples(100 * time.Millisecond).Of(r)
	if len(got) != len(want) {
		t.Fatal(got)
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 {
			t.Errorf("%v, not %v", got, want)
		}
	}
	if s := payloadSamples(time.Second).Of(lab.Result{Bytes: 1, Seconds: 9}); s != nil {
		t.Errorf("without packets: %v", s)
	}
}

// Changes are of all cells together, part by part, where both schemes count.
func TestPercentileChanges(t *testing.T) {
	steady := func(scheme string, rep int, bytes unit.Bytes) lab.Result {
		x := newTraffic(3)
		return lab.Result{Scheme: scheme, Rep: rep, Bytes: bytes, Seconds: 3, Traffic: []lab.Traffic{x}}
	}
	d := Data{
		"slow": {steady("a", 0, 1000), steady("b", 0, 2000), steady("a", 1, 9000)},
		"fast": {steady("a", 0, 4000), steady("b", 0, 4000)},
	}
	for share, want := range map[float64]float64{0.25: -50, 0.75: 0} {
		got := percentile{share, 100 * time.Millisecond}.timePartChanges(d, []string{"slow", "fast"},
			[2]string{"a", "b"})
		if len(got) != timeParts {
			t.Fatalf("%v", got)
		}
		for _, v := range got {
			if math.Abs(v-want) > 0.1 {
				t.Errorf("point %v: %v, not %v", share, got, want)
			}
		}
	}
}

// One transfer shows nothing outside the noise, five places do.
func TestTogether(t *testing.T) {
	r := rowM9TenPlaces(radio.Sets[0])
	d := newData(r, 1, func(_, scheme string) float64 { return map[string]float64{Product: 2.2}[scheme] + 1 })
	got := r.WorseThan(d)
	if len(got) != 4 || got[0].Other != mptcp || got[2].Metric.energySet == nil || !strings.Contains(got[0].Cell,
		" to ") || got[0].N != 2*len(m9Places) {
		t.Errorf("%v", got)
	}
	r.Groups = nil
	if got := r.WorseThan(d); len(got) != 0 {
		t.Errorf("of one transfer: %v", got)
	}
}

// The same seed gives the same network, another one another. Files are long enough for all that the
// links can carry, and short enough to make.
func TestVaryingNetworks(t *testing.T) {
	for _, make := range []func(radio.Set) Row{rowM0aCarriers, rowM8VaryingLinks, rowM9TenPlaces} {
		r := make(radio.Sets[0])
		a, err := r.Experiments(Options{Seed: 5})
		b, err2 := r.Experiments(Options{Seed: 5})
		c, err3 := r.Experiments(Options{Seed: 6})
		if err != nil || err2 != nil || err3 != nil || len(a) != len(b) || len(a) != len(c) {
			t.Fatal(r.ID, err, err2, err3)
		}
		for i := range a {
			if !reflect.DeepEqual(a[i].Spec.Topology, b[i].Spec.Topology) || reflect.DeepEqual(a[i].Spec.Topology,
				c[i].Spec.Topology) {
				t.Errorf("%s, %s: the network does not follow from the seed", r.ID, a[i].Name)
			}
			p := a[i].Spec
			if p.Length == 0 {
				continue
			}
			most, err := lab.CarriedPayload(p.Topology, false, p.Length)
			if err != nil || p.Size < most+unit.MB || p.Size > 500*unit.MB {
				t.Errorf("%s, %s: %v, of %v that the links can carry, %v", r.ID, a[i].Name, p.Size, most, err)
			}
		}
	}
}

// With a directory of recordings, rows with recorded cells use only these; others do not change. A
// missing or short recording is an error.
func TestRecorded(t *testing.T) {
	var files []string
	for _, f := range m0aRecorded {
		files = append(files, f...)
	}
	for _, f := range m9Recorded {
		files = append(files, f.ps, f.hs, f.pipe)
	}
	for _, k := range m8Kinds {
		for _, f := range k.recorded {
			files = append(files, f)
		}
	}
	dir := t.TempDir()
	write := func(name string, seconds int) {
		var text strings.Builder
		for i := range seconds {
			if strings.HasSuffix(name, ".csv") {
				fmt.Fprintf(&text, "%d,%d\n", i+1, 9_000_000) // more than maxRecordedRate
			} else {
				fmt.Fprintf(&text, "%d\n%d\n", 1000*i, 1000*i+999)
			}
		}
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range files {
		write(f, 100)
	}
	o := Options{Seed: 1, Traces: dir}
	for _, r := range publishedRows() {
		if slices.Contains([]string{"g1", "g2", "g5", "s11", "p16"}, r.ID) {
			continue // TestG1Recorded, TestG2Recorded, TestRecordedPairs, TestRecordedCells
		}
		with, err := r.Experiments(o)
		without, err2 := r.Experiments(Options{Seed: 1})
		if err != nil || err2 != nil || len(with) != len(without) || countTransfers(with) != countTransfers(without) {
			t.Fatalf("%s: %d cells with recordings, %d without; %v %v", r.ID, len(with), len(without), err, err2)
		}
		varies := slices.Contains([]string{"m0a", "m8", "m9"}, r.ID)
		for i := range with {
			if (with[i].Name != without[i].Name) != varies {
				t.Errorf("%s: cell %q with recordings, %q without", r.ID, with[i].Name, without[i].Name)
			}
		}
		if !varies {
			continue
		}
		for name, l := range with[0].Spec.Topology.Link {
			if r, err := unit.ParseRate(cmp.Or(l.Rate, "0")); err != nil || r > maxRecordedRate &&
				!strings.HasPrefix(name, "pipe") {
				t.Errorf("%s: %v, %v", name, r, err)
			}
		}
	}
	write(m9Recorded[0].hs, 59)
	if _, err := rowM9TenPlaces(radio.Sets[0]).Experiments(o); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a recording of 59 s: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, m9Recorded[0].hs)); err != nil {
		t.Fatal(err)
	}
	if _, err := rowM9TenPlaces(radio.Sets[0]).Experiments(o); err == nil {
		t.Error("a recording that is not there")
	}
}
