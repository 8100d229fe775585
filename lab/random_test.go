// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
)

// Random networks are repeatable, differ, and stay within what the emulator carries.
func TestRandomSpec(t *testing.T) {
	helpers, sizes := map[int]int{}, []unit.Bytes{}
	for _, kind := range RandomKinds {
		for seed := range uint64(60) {
			p, err := RandomSpec(kind, seed)
			if err != nil {
				t.Fatal(err)
			}
			again, err := ParseRandomSpec(fmt.Sprintf("%s/%d", kind, seed))
			if err != nil || !reflect.DeepEqual(p, again) {
				t.Fatalf("%s/%d differs: %v", kind, seed, err)
			}
			if text := p.DescribeNetwork(); !strings.Contains(text, "\npipe1 ") || !strings.Contains(text, "\nps ") {
				t.Errorf("%s/%d is described as %q", kind, seed, text)
			}
			helpers[len(p.Topology.Helpers())]++
			sizes = append(sizes, p.Size)
			all, err := p.SinglePaths(3)
			if err != nil || len(all) == 0 {
				t.Fatalf("%s/%d: %v, %v", kind, seed, all, err)
			}
			p.Schemes = append(all, "mptcp", "mpbond")
			s, err := p.parseSession()
			if err != nil {
				t.Fatalf("%s/%d: %v", kind, seed, err)
			}
			one, err := Bound(s.topology, p.Size, p.Upload)
			if err != nil || one > 2*maxRandomBound || kind == RandomChanging && one < minChangingBound {
				t.Errorf("%s/%d: %v takes %v, %v", kind, seed, p.Size, one, err)
			}
			changes := slices.ContainsFunc(p.Topology.Links(), func(name string) bool {
				l := p.Topology.Link[name]
				return len(l.Schedule)+len(l.Outages) > 0
			})
			if changes != (kind == RandomChanging) || p.Upload != (kind == RandomUp) && kind != RandomChanging ||
				(p.Objects == 0) != changes {
				t.Errorf("%s/%d: changes %v, up %v, %d objects", kind, seed, changes, p.Upload, p.Objects)
			}
		}
	}
	for n := 1; n <= maxRandomHelpers; n++ {
		if helpers[n] == 0 {
			t.Errorf("no network has %d helpers: %v", n, helpers)
		}
	}
	slices.Sort(sizes)
	if sizes[0] > 200*unit.KB || sizes[len(sizes)-1] < 5*unit.MB || sizes[0] < minRandomSize {
		t.Errorf("sizes %v to %v", sizes[0], sizes[len(sizes)-1])
	}
	for _, bad := range []string{"", "down", "down/x", "sideways/3"} {
		if _, err := ParseRandomSpec(bad); err == nil || !strings.Contains(err.Error(), "down") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Single paths that cannot be the best are left out.
func TestSinglePaths(t *testing.T) {
	for links, want := range map[string][]string{
		"8/10/5":            {"single", "single:helper1"},
		"20/1/5":            {"single"},
		"1/18/5,9/9,0.1/10": {"single:helper1", "single:helper2"},
	} {
		top, err := Triangle(links)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := (RunSpec{Topology: top, Size: unit.MB}).SinglePaths(3); err != nil || !slices.Equal(all, want) {
			t.Errorf("%s: %v, %v", links, all, err)
		}
	}
}

// The path with the highest rate is not the fastest if it loses packets over a long round trip.
func TestLossySinglePath(t *testing.T) {
	top, err := Triangle("3/50/50")
	if err != nil {
		t.Fatal(err)
	}
	top.Link["hs1"].Delay, top.Link["hs1"].Loss = "300ms", "0.01"
	if all, err := (RunSpec{Topology: top, Size: unit.MB}).SinglePaths(2); err != nil || !slices.Equal(all,
		[]string{"single"}) {
		t.Errorf("%v, %v", all, err)
	}
	// Windows of a round trip of 0.1 s, as in the table of RFC 9438, section 5.
	for loss, window := range map[float64]float64{1e-2: 12, 1e-3: 38.6, 1e-4: 187} {
		if got := cubicRateMbps(100*time.Millisecond, loss) * 0.1 * 1e6 / 8 / packetPayload; got < 0.97*window ||
			got > 1.03*window {
			t.Errorf("loss %g: a window of %.1f packets, not %.1f", loss, got, window)
		}
	}
}
