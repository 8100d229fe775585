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

// TestTreatment: which subflows a rule's devices and pipes come to, and that a
// single one stays as long as it works, and none of an earlier tier does.
func TestTreatment(t *testing.T) {
	routes := []Route{
		{ID: 1, Own: true, Names: []string{"laptop/wlan0", "laptop", "wlan0"}, Delay: 30 * time.Millisecond},
		{ID: 2, Own: true, Names: []string{"laptop/wwan0", "laptop", "wwan0"}, Delay: 20 * time.Millisecond},
		{ID: 3, Names: []string{"phone"}, Pipe: "wlan0", Delay: 40 * time.Millisecond},
		{ID: 4, Names: []string{"tablet"}, Pipe: "usb0", Delay: 10 * time.Millisecond, Silent: true},
	}
	type ids = []wire.PathID
	for _, c := range []struct {
		t    Treatment
		was  wire.PathID
		want ids
	}{
		{Treatment{Devices: []string{"laptop"}}, 0, ids{1, 2}},
		{Treatment{Devices: []string{"wlan0", "phone"}}, 0, ids{1, 3}},
		{Treatment{Devices: []string{"laptop/wwan0"}}, 0, ids{2}},
		{Treatment{Devices: []string{"watch"}}, 0, nil},
		{Treatment{Pipes: []string{"usb0"}}, 0, ids{1, 2, 4}},
		{Treatment{Devices: []string{"phone", "tablet"}, Pipes: []string{"usb0"}}, 0, ids{4}},
		{Treatment{Single: true}, 0, ids{2}},
		{Treatment{Single: true}, 3, ids{3}},
		{Treatment{Single: true}, 4, ids{2}}, // silent
		{Treatment{Single: true}, 9, ids{2}}, // gone
		{Treatment{Single: true, Devices: []string{"tablet"}}, 0, ids{4}},
		{Treatment{Single: true, Devices: []string{"phone", "wlan0"}}, 0, ids{1}},
		{Treatment{Single: true, Devices: []string{"watch"}}, 1, nil},
	} {
		c.t.Class, c.t.Weight = wire.High, 3
		want := wire.Group{ID: 7, Class: wire.High, Weight: 3, Limited: true, Paths: c.want}
		if got := c.t.Group(7, routes, c.was); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, was %d: %+v, want paths %v", c.t, c.was, got, c.want)
		}
	}
	paid := []Route{
		{ID: 1, Own: true, Names: []string{"laptop", "wlan0"}, Delay: 60 * time.Millisecond},
		{ID: 2, Own: true, Names: []string{"laptop", "wwan0"}, Tier: wire.TierBackup, Delay: 10 * time.Millisecond},
		{ID: 3, Names: []string{"phone"}, Tier: wire.TierSecondary, Delay: 20 * time.Millisecond},
		{ID: 4, Names: []string{"tablet"}, Delay: 70 * time.Millisecond},
	}
	for _, c := range []struct {
		t      Treatment
		silent ids
		was    wire.PathID
		want   wire.PathID
	}{
		{Treatment{}, nil, 0, 1},
		{Treatment{}, nil, 4, 4}, // slower, but of the same tier
		{Treatment{}, nil, 3, 1}, // back to what is free
		{Treatment{}, nil, 2, 1},
		{Treatment{}, ids{1}, 1, 4},
		{Treatment{}, ids{1, 4}, 1, 3},
		{Treatment{}, ids{1, 4}, 2, 3},
		{Treatment{}, ids{1, 3, 4}, 3, 2},
		{Treatment{}, ids{1, 2, 3, 4}, 3, 3}, // nothing is better
		{Treatment{}, ids{1, 2, 3, 4}, 9, 1},
		{Treatment{}, ids{1, 2, 3, 4}, 4, 4},
		{Treatment{Devices: []string{"wwan0", "phone"}}, nil, 2, 3},
		{Treatment{Devices: []string{"wwan0"}}, nil, 0, 2}, // the rule has no other
	} {
		now := slices.Clone(paid)
		for i := range now {
			now[i].Silent = slices.Contains(c.silent, now[i].ID)
		}
		for range len(now) { // whatever their order
			now = append(now[1:], now[0])
			c.t.Single = true
			if g := c.t.Group(1, now, c.was); !slices.Equal(g.Paths, ids{c.want}) {
				t.Errorf("%v, silent %v, was %d: %v, want %d", c.t.Devices, c.silent, c.was, g.Paths, c.want)
			}
		}
	}
	if g := (&Treatment{Weight: 2}).Group(1, routes, 0); g.Limited || g.Paths != nil {
		t.Errorf("no limit: %+v", g)
	}
}

func TestTreatmentOfRules(t *testing.T) {
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
	want := &Treatment{Devices: []string{"phone"}, Pipes: []string{"usb0"}, Single: true, Weight: 1}
	if v := r.Of(Flow{Dest: "a:1"}); v.Mode != ModeSingle || !reflect.DeepEqual(v.Treat, want) {
		t.Errorf("%+v", v.Treat)
	}
	if v := r.Of(Flow{Dest: "a:2"}); v.Mode != Usual || !reflect.DeepEqual(v.Treat, &Treatment{Class: wire.High, Weight: 5}) {
		t.Errorf("%+v", v.Treat)
	}
	if v := r.Of(Flow{Dest: "a:3"}); v.Treat != nil {
		t.Errorf("%+v", v.Treat)
	}
}

// TestKindsAreBounded: a file says in how many ways it may treat connections, and
// not only when they come.
func TestKindsAreBounded(t *testing.T) {
	var f File
	for i := range wire.MaxGroups {
		f.Rules = append(f.Rules, RuleSpec{Device: []string{fmt.Sprint("phone", i)}}, RuleSpec{Mode: ModeBlock}, RuleSpec{Device: []string{"phone0"}})
	}
	if _, err := f.Compile(); err != nil {
		t.Error(err)
	}
	f.Rules = append(f.Rules, RuleSpec{Name: "last", Mode: ModeSingle})
	_, err := f.Compile()
	var m *Misfit
	if !errors.As(err, &m) || m.N != len(f.Rules)-1 || !strings.Contains(err.Error(), "128") || !strings.Contains(err.Error(), "last") {
		t.Error(err)
	}
}
