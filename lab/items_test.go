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

// TestRunItems fetches and sends several files in their order over one connection.
func TestRunItems(t *testing.T) {
	t.Parallel()
	needPrograms(t, "curl", "nginx")
	top, err := House("16")
	if err != nil {
		t.Fatal(err)
	}
	for _, upload := range []bool{false, true} {
		p := Plan{Topology: top, Schemes: []string{"single"}, Items: []unit.Bytes{64 * unit.KB, 200 * unit.KB, 64 * unit.KB}, Upload: upload, Reps: 1, KeepDisturbed: true}
		var r Result
		if err := Run(context.Background(), p, func(got Result) { r = got }); err != nil {
			t.Fatal(err)
		}
		if r.Error != "" || !r.SHA || r.Bytes != 328*unit.KB || r.Requests["primary"] != 3 || len(r.Items) != 3 {
			t.Fatalf("%+v", r)
		}
		half, ok := r.Until(2)
		if all, _ := r.Until(3); !ok || half >= all || all != r.Seconds || r.Items[0] >= half || !slices.IsSorted(r.Items) {
			t.Errorf("%v of %v", r.Items, r.Seconds)
		}
		if _, ok := r.Until(4); ok {
			t.Error("a fourth item")
		}
	}
}

// TestCheckFiles: what is another item, or lacks a byte, is not taken for right.
func TestCheckFiles(t *testing.T) {
	b := &Bench{Dir: t.TempDir(), hashes: map[string][32]byte{}}
	if err := os.MkdirAll(filepath.Join(b.Dir, itemsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	tr := Transfer{Items: []unit.Bytes{1000, 1000}}
	if err := b.emptyPlaces(); err != nil {
		t.Fatal(err)
	}
	put := func(as, from int, less int) {
		t.Helper()
		path, _, err := b.item(from, 1000)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(b.Dir, gotDir, itemName(as)), data[less:], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(0, 0, 0)
	if _, err := b.checkFiles(tr, gotDir); !os.IsNotExist(err) {
		t.Errorf("one is missing: %v", err)
	}
	put(1, 1, 0)
	if named, err := b.checkFiles(tr, gotDir); err != nil || len(named) != 2 || time.Since(named[1]) > time.Minute || named[1].Before(named[0]) {
		t.Errorf("%v, %v", named, err)
	}
	for _, wrong := range [][2]int{{0, 0}, {1, 1}} {
		put(1, wrong[0], wrong[1])
		if _, err := b.checkFiles(tr, gotDir); err == nil || !strings.Contains(err.Error(), "item 1") {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

func TestItemPlans(t *testing.T) {
	top, err := House("8/4/20,2/20")
	if err != nil {
		t.Fatal(err)
	}
	two := []unit.Bytes{unit.MB, unit.MB}
	for _, c := range []struct {
		plan Plan
		bad  string
	}{
		{Plan{Schemes: []string{"single", "kibbutz", "mpbond", "onload"}, Items: two}, ""},
		{Plan{Schemes: []string{"single", "onload"}, Size: unit.MB}, ""},
		{Plan{Schemes: []string{"single"}, Items: two, Size: 1}, "one transfer"},
		{Plan{Schemes: []string{"single"}, Items: two, Length: time.Second}, "one transfer"},
		{Plan{Schemes: []string{"single"}, Items: []unit.Bytes{unit.MB, 0}}, "item 1"},
		{Plan{Schemes: []string{"combine"}, Items: two}, "several items"},
		{Plan{Schemes: []string{"onload"}, Size: unit.MB, Streams: 2}, "whole files"},
	} {
		c.plan.Topology, c.plan.Reps = top, 1
		s, err := c.plan.understand()
		if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%+v: %v", c.plan, err)
		}
		if err == nil && (len(s.plan.Items) == 0 || s.plan.Size != 0) {
			t.Errorf("%+v", s.plan)
		}
	}
	p := Plan{Topology: top, Items: two}
	for scheme, rate := range map[string]unit.Rate{"single": 8, "single:helper2": 2, "kibbutz:helpers=1": 12, "onload:grd:helpers=1": 12, "mpbond:direct": 8, "onload": 14} {
		took, err := p.expected(scheme)
		if want := (rate * unit.Mbps).Time(2 * unit.MB); err != nil || took < want || took > want*13/10 {
			t.Errorf("%s: %v, about %v: %v", scheme, took, want, err)
		}
	}
}

func TestParseOnloaded(t *testing.T) {
	for text, want := range map[string]onloaded{"onload": {}, "onload:grd": {scheduler: "grd", most: 0}, "onload:helpers=2": {scheduler: "", most: 2}, "onload:auto:helpers=1": {scheduler: "auto", most: 1}} {
		if s, err := newScheme(text); err != nil || *s.(*onloaded) != want {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
	for _, bad := range []string{"onload:grd:rr", "onload:helpers=0", "onload:helpers=all", "kibbutz:helpers=x", "onload:grd:"} {
		if _, err := newScheme(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
