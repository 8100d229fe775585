// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

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
