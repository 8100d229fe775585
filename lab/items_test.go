// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestRunItems fetches and sends several files in order over one connection.
func TestRunItems(t *testing.T) {
	t.Parallel()
	needPrograms(t, "curl", "nginx")
	top, err := Triangle("16")
	if err != nil {
		t.Fatal(err)
	}
	for _, upload := range []bool{false, true} {
		p := RunSpec{Topology: top, Schemes: []string{"single"}, Items: []unit.Bytes{64 * unit.KB, 200 * unit.KB,
			64 * unit.KB}, Upload: upload, Reps: 1, KeepDisturbed: true}
		var r Result
		if err := Run(context.Background(), p, func(got Result) { r = got }); err != nil {
			t.Fatal(err)
		}
		if r.Error != "" || !r.SHA || r.Bytes != 328*unit.KB || r.Requests["primary"] != 3 || len(r.Items) != 3 {
			t.Fatalf("%+v", r)
		}
		half, ok := r.ItemsDone(2)
		if all, _ := r.ItemsDone(3); !ok || half >= all || all != r.Seconds || r.Items[0] >= half ||
			!slices.IsSorted(r.Items) {
			t.Errorf("%v of %v", r.Items, r.Seconds)
		}
		if _, ok := r.ItemsDone(4); ok {
			t.Error("a fourth item")
		}
	}
}

// An item with other content or a missing byte is rejected.
func TestCheckFiles(t *testing.T) {
	b := &Bench{Dir: t.TempDir(), hashes: map[string][32]byte{}}
	if err := os.MkdirAll(filepath.Join(b.Dir, itemsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	tr := Transfer{Items: []unit.Bytes{1000, 1000}}
	if err := b.clearItemDirs(); err != nil {
		t.Fatal(err)
	}
	put := func(as, from int, less int) {
		t.Helper()
		path, _, err := b.makeItemFile(from, 1000)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(b.Dir, receivedDir, itemFileName(as)), data[less:], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(0, 0, 0)
	if _, err := b.checkItemFiles(tr, receivedDir); !os.IsNotExist(err) {
		t.Errorf("one is missing: %v", err)
	}
	put(1, 1, 0)
	if named, err := b.checkItemFiles(tr, receivedDir); err != nil || len(named) != 2 ||
		time.Since(named[1]) > time.Minute || named[1].Before(named[0]) {
		t.Errorf("%v, %v", named, err)
	}
	for _, wrong := range [][2]int{{0, 0}, {1, 1}} {
		put(1, wrong[0], wrong[1])
		if _, err := b.checkItemFiles(tr, receivedDir); err == nil || !strings.Contains(err.Error(), "item 1") {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

func TestItemPlans(t *testing.T) {
	top, err := Triangle("8/4/20,2/20")
	if err != nil {
		t.Fatal(err)
	}
	two := []unit.Bytes{unit.MB, unit.MB}
	for _, c := range []struct {
		plan RunSpec
		bad  string
	}{
		{RunSpec{Schemes: []string{"single", "mptcp", "mpbond", "onload"}, Items: two}, ""},
		{RunSpec{Schemes: []string{"single", "onload"}, Size: unit.MB}, ""},
		{RunSpec{Schemes: []string{"single"}, Items: two, Size: 1}, "several items exclude"},
		{RunSpec{Schemes: []string{"single"}, Items: two, Length: time.Second}, "several items exclude"},
		{RunSpec{Schemes: []string{"single"}, Items: []unit.Bytes{unit.MB, 0}}, "item 1"},
		{RunSpec{Schemes: []string{"combine"}, Items: two}, "cannot move several items"},
		{RunSpec{Schemes: []string{"onload"}, Size: unit.MB, Streams: 2}, "whole, checked files"},
	} {
		c.plan.Topology, c.plan.Reps = top, 1
		s, err := c.plan.parseSession()
		if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%+v: %v", c.plan, err)
		}
		if err == nil && (len(s.spec.Items) == 0 || s.spec.Size != 0) {
			t.Errorf("%+v", s.spec)
		}
	}
	p := RunSpec{Topology: top, Items: two}
	for scheme, rate := range map[string]unit.Rate{"single": 8, "single:helper2": 2, "mptcp:helpers=1": 12,
		"onload:grd:helpers=1": 12, "mpbond:direct": 8, "onload": 14} {
		took, err := p.expectedTransferTime(scheme)
		if want := (rate * unit.Mbps).Time(2 * unit.MB); err != nil || took < want || took > want*13/10 {
			t.Errorf("%s: %v, about %v: %v", scheme, took, want, err)
		}
	}
}

func TestParseOnloaded(t *testing.T) {
	for text, want := range map[string]onloadScheme{"onload": {}, "onload:grd": {scheduler: "grd", maxHelpers: 0},
		"onload:helpers=2": {scheduler: "", maxHelpers: 2}, "onload:auto:helpers=1": {scheduler: "auto",
			maxHelpers: 1}} {
		if s, err := newSchemeByName(text); err != nil || *s.(*onloadScheme) != want {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
	for _, bad := range []string{"onload:grd:rr", "onload:helpers=0", "onload:helpers=all", "mptcp:helpers=x",
		"onload:grd:"} {
		if _, err := newSchemeByName(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
