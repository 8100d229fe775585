// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/link/wire"
)

// TestTrafficClass checks which subflows the devices and pipes of a rule allow. A single one stays
// as long as it works, and no subflow of an earlier tier does.
func TestTrafficClass(t *testing.T) {
	routes := []ClassSubflow{
		{ID: 1, Direct: true, Names: []string{"laptop/wlan0", "laptop", "wlan0"}, Delay: 30 * time.Millisecond},
		{ID: 2, Direct: true, Names: []string{"laptop/wwan0", "laptop", "wwan0"}, Delay: 20 * time.Millisecond},
		{ID: 3, Names: []string{"phone"}, Pipe: "wlan0", Delay: 40 * time.Millisecond},
		{ID: 4, Names: []string{"tablet"}, Pipe: "usb0", Delay: 10 * time.Millisecond, Silent: true},
	}
	type ids = []wire.SubflowID
	for _, c := range []struct {
		t    TrafficClass
		was  wire.SubflowID
		want ids
	}{
		{TrafficClass{Devices: []string{"laptop"}}, 0, ids{1, 2}},
		{TrafficClass{Devices: []string{"wlan0", "phone"}}, 0, ids{1, 3}},
		{TrafficClass{Devices: []string{"laptop/wwan0"}}, 0, ids{2}},
		{TrafficClass{Devices: []string{"watch"}}, 0, nil},
		{TrafficClass{Pipes: []string{"usb0"}}, 0, ids{1, 2, 4}},
		{TrafficClass{Devices: []string{"phone", "tablet"}, Pipes: []string{"usb0"}}, 0, ids{4}},
		{TrafficClass{Single: true}, 0, ids{2}},
		{TrafficClass{Single: true}, 3, ids{3}},
		{TrafficClass{Single: true}, 4, ids{2}}, // silent
		{TrafficClass{Single: true}, 9, ids{2}}, // removed
		{TrafficClass{Single: true, Devices: []string{"tablet"}}, 0, ids{4}},
		{TrafficClass{Single: true, Devices: []string{"phone", "wlan0"}}, 0, ids{1}},
		{TrafficClass{Single: true, Devices: []string{"watch"}}, 1, nil},
	} {
		c.t.Priority, c.t.Weight = wire.High, 3
		want := wire.Group{ID: 7, Priority: wire.High, Weight: 3, Limited: true, Subflows: c.want}
		if got := c.t.BuildGroup(7, routes, c.was); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, was %d: %+v, want paths %v", c.t, c.was, got, c.want)
		}
	}
	paid := []ClassSubflow{
		{ID: 1, Direct: true, Names: []string{"laptop", "wlan0"}, Delay: 60 * time.Millisecond},
		{ID: 2, Direct: true, Names: []string{"laptop", "wwan0"}, Tier: wire.TierBackup, Delay: 10 * time.Millisecond},
		{ID: 3, Names: []string{"phone"}, Tier: wire.TierSecondary, Delay: 20 * time.Millisecond},
		{ID: 4, Names: []string{"tablet"}, Delay: 70 * time.Millisecond},
	}
	for _, c := range []struct {
		t      TrafficClass
		silent ids
		was    wire.SubflowID
		want   wire.SubflowID
	}{
		{TrafficClass{}, nil, 0, 1},
		{TrafficClass{}, nil, 4, 4}, // slower, but of the same tier
		{TrafficClass{}, nil, 3, 1}, // back to what is free
		{TrafficClass{}, nil, 2, 1},
		{TrafficClass{}, ids{1}, 1, 4},
		{TrafficClass{}, ids{1, 4}, 1, 3},
		{TrafficClass{}, ids{1, 4}, 2, 3},
		{TrafficClass{}, ids{1, 3, 4}, 3, 2},
		{TrafficClass{}, ids{1, 2, 3, 4}, 3, 3}, // nothing is better
		{TrafficClass{}, ids{1, 2, 3, 4}, 9, 1},
		{TrafficClass{}, ids{1, 2, 3, 4}, 4, 4},
		{TrafficClass{Devices: []string{"wwan0", "phone"}}, nil, 2, 3},
		{TrafficClass{Devices: []string{"wwan0"}}, nil, 0, 2}, // the rule has no other
	} {
		now := slices.Clone(paid)
		for i := range now {
			now[i].Silent = slices.Contains(c.silent, now[i].ID)
		}
		for range len(now) { // whatever their order
			now = append(now[1:], now[0])
			c.t.Single = true
			if g := c.t.BuildGroup(1, now, c.was); !slices.Equal(g.Subflows, ids{c.want}) {
				t.Errorf("%v, silent %v, was %d: %v, want %d", c.t.Devices, c.silent, c.was, g.Subflows, c.want)
			}
		}
	}
	if g := (&TrafficClass{Weight: 2}).BuildGroup(1, routes, 0); g.Limited || g.Subflows != nil {
		t.Errorf("no limit: %+v", g)
	}
}

// TestTrafficClassOfRules checks the traffic classes that compiled rules give.
func TestTrafficClassOfRules(t *testing.T) {
	r := compile(t, `
[[rule]]
port = [1]
device = ["phone"]
pipe = ["usb0"]
mode = "single"
[[rule]]
port = [2]
priority = "high"
weight = 5
[[rule]]
port = [3]
mode = "bond"
`)
	want := &TrafficClass{Devices: []string{"phone"}, Pipes: []string{"usb0"}, Single: true, Weight: 1}
	if v := r.Decide(Connection{Dest: "a:1"}); v.Mode != ModeSingle || !reflect.DeepEqual(v.Class, want) {
		t.Errorf("%+v", v.Class)
	}
	if v := r.Decide(Connection{Dest: "a:2"}); v.Mode != ModeUnset ||
		!reflect.DeepEqual(v.Class, &TrafficClass{Priority: wire.High, Weight: 5}) {
		t.Errorf("%+v", v.Class)
	}
	if v := r.Decide(Connection{Dest: "a:3"}); v.Class != nil {
		t.Errorf("%+v", v.Class)
	}
}

// TestKindsAreBounded: the bound on traffic classes is checked when the file is compiled.
func TestKindsAreBounded(t *testing.T) {
	var f File
	for i := range wire.MaxGroups {
		f.Rules = append(f.Rules, RuleSpec{Device: []string{fmt.Sprint("phone", i)}}, RuleSpec{Mode: ModeBlock},
			RuleSpec{Device: []string{"phone0"}})
	}
	if _, err := f.Compile(); err != nil {
		t.Error(err)
	}
	f.Rules = append(f.Rules, RuleSpec{Name: "last", Mode: ModeSingle})
	_, err := f.Compile()
	var m *FileError
	if !errors.As(err, &m) || m.Index != len(f.Rules)-1 || !strings.Contains(err.Error(), "128") ||
		!strings.Contains(err.Error(), "last") {
		t.Error(err)
	}
}
