// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"context"
	"errors"
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

// computeData computes the chosen cells of a row in virtual time.
func computeData(t *testing.T, r Row, o Options, chosen func(Cell) bool) Data {
	t.Helper()
	r.Cells = slices.DeleteFunc(slices.Clone(r.Cells), func(c Cell) bool { return !c.VirtualTime || !chosen(c) })
	all, err := r.Experiments(o)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d cells, %v", len(all), err)
	}
	d := Data{}
	lab.RunAll(context.Background(), all, lab.NewJobs(0), func(int, string, int) bool {
		return false
	}, lab.Events{RoundBegan: func(int) {},
		Result: func(i int, x lab.Result) {
			if x.Error != "" {
				t.Errorf("%s, %s: %s", all[i].Name, x.Scheme, x.Error)
			}
			d[all[i].Name] = append(d[all[i].Name], x)
		},
		RoundEnded: func(_ int, err error, _ bool) {
			if err != nil {
				t.Error(err)
			}
		}})
	return d
}

// Items in virtual time take the time of links and round trips, over the devices of a scheme. Each
// repetition begins further in the profiles.
func TestMoved(t *testing.T) {
	const size = 2 * unit.MB
	rate := 1e6 * lab.PayloadShare / 8
	c := Cell{Name: "c", Links: "1/1/20,1/20", Items: func(uint64, int) []unit.Bytes {
		return []unit.Bytes{size}
	}, VirtualTime: true, Reps: 2, Upload: true}
	c.Network = func(uint64) (*lab.Topology, error) {
		top, err := lab.Triangle(c.Links)
		for _, hs := range []string{"hs1", "hs2"} {
			top.Link[hs].Promotion, top.Link[hs].Tail = "1s", "5s"
		}
		return top, err
	}
	alone := float64(size) / rate
	for scheme, want := range map[string]float64{
		"single":           alone + 4*0.025,
		"single:helper2":   alone + 4*0.0375 + 1,
		"onload:helpers=1": alone + 4*0.025, // an uploaded file is sent once
		"onload:grd":       alone + 4*0.025,
	} {
		c.Schemes = []string{scheme}
		x := computeData(t, Row{Cells: []Cell{c}}, Options{Reps: 1}, func(Cell) bool { return true })["c"][0]
		if math.Abs(x.Seconds-want) > 0.01 || x.Bytes != size || !x.SHA {
			t.Errorf("%s: %.3f s, not %.3f", scheme, x.Seconds, want)
		}
	}
	c.Upload, c.Network = false, nil // now it can be fetched in ranges
	for devices, scheme := range []string{"single", "onload:helpers=1", "onload"} {
		c.Schemes = []string{scheme}
		x := computeData(t, Row{Cells: []Cell{c}}, Options{Reps: 1}, func(Cell) bool { return true })["c"][0]
		if want := alone / float64(devices+1); x.Seconds < want || x.Seconds > want+1 || len(x.Devices) != devices+1 {
			t.Errorf("%s: %.3f s, about %.3f; %v", scheme, x.Seconds, want, x.Devices)
		}
	}
	c.Stride, c.Schemes = 10*time.Second, []string{"single"}
	c.Network = func(uint64) (*lab.Topology, error) {
		top, err := lab.Triangle("1")
		if err == nil {
			top.Link["ps"].Schedule = []string{"at 10s: rate 2Mbit/s"}
		}
		return top, err
	}
	x := computeData(t, Row{Cells: []Cell{c}}, Options{Reps: 2}, func(Cell) bool { return true })["c"]
	if first, then := (alone+10)/2, alone/2; math.Abs(x[0].Seconds-first-0.1) > 0.1 ||
		math.Abs(x[1].Seconds-then-0.1) > 0.05 {
		t.Errorf("%.2f s, then %.2f", x[0].Seconds, x[1].Seconds)
	}
	for _, scheme := range []string{"mptcp", "onload:x", "onload:helpers=3", "single:helper3", "onload:helpers=x"} {
		if _, err := (itemMover{}).runItemTransfer(scheme, []devicePath{{device: "primary"}, {device: "helper1"},
			{device: "helper2"}}, 0); err == nil {
			t.Errorf("%s moved items", scheme)
		}
	}
}

// The default scheduler is the best in each case, and grd before rr. rr is before min where phones
// are as fast as the home line, and behind it where they are half as fast. The same seed gives the
// same values.
func TestG1(t *testing.T) {
	r := rowG1Schedulers(radio.Sets[0])
	largest := func(c Cell) bool { return strings.HasPrefix(c.Name, "738") && strings.Contains(c.Name, "idle") }
	d := computeData(t, r, Options{Seed: 1}, largest)
	for _, p := range r.Points {
		o := p.evaluatePoint(d)
		if strings.Contains(p.What, "best other") && o.N > 0 && o.Verdict != Reproduced {
			t.Error(o.toPointLine())
		}
	}
	if len(d) != 6 || len(r.WorseThan(d)) > 0 {
		t.Errorf("%d cells; behind: %v", len(d), r.WorseThan(d))
	}
	for cell := range d {
		less := func(a, b string) bool {
			_, high := Summarize(d.orderChanges([]string{cell}, [2]string{a, b})).confidenceInterval()
			return high < 0
		}
		half := strings.Contains(cell, "half")
		if !less(onloadGRD, onloadRR) || strings.Contains(cell, ", the home's") && !less(onloadRR, onloadMIN) || half &&
			!less(onloadMIN, onloadRR) {
			t.Errorf("%s: GRD beside RR %v, RR beside MIN %v", cell,
				Summarize(d.orderChanges([]string{cell}, [2]string{onloadGRD, onloadRR})),
				Summarize(d.orderChanges([]string{cell}, [2]string{onloadRR, onloadMIN})))
		}
	}
	one := func(c Cell) bool { return c.Name == r.Spread[0] }
	a, b, other := computeData(t, r, Options{Seed: 1, Reps: 2}, one), computeData(t, r, Options{Seed: 1, Reps: 2}, one),
		computeData(t, r, Options{Seed: 2, Reps: 2}, one)
	if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a, other) {
		t.Error("runs differ with one seed, or are the same with two")
	}
}

// recordings3G writes recordings of phones of 1.5 Mbit/s and returns their directory.
func recordings3G(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, of := range g1Recordings {
		for _, name := range of {
			var text strings.Builder // of 1.5 Mbit/s
			for i := range 2000 {
				if strings.HasPrefix(name, "norway3g/") {
					fmt.Fprintf(&text, "%d.5 1.5\n", i)
				} else {
					fmt.Fprintln(&text, 8*i)
				}
			}
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755),
				os.WriteFile(filepath.Join(dir, name), []byte(text.String()), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// With recordings the row has its own cells.
func TestG1Recorded(t *testing.T) {
	dir := recordings3G(t)
	d := computeData(t, rowG1Schedulers(radio.Sets[0]), Options{Traces: dir, Reps: 2}, func(c Cell) bool {
		return strings.HasPrefix(c.Name, "738")
	})
	for cell, want := range map[string]float64{"738 kbit/s, 1 phone, idle, recorded": 3.5,
		"738 kbit/s, 2 phones, idle, the home's rate, recorded": 6} {
		for _, x := range d[cell] {
			// All links perfectly used, plus the promotion of a radio.
			least := float64(8*x.Bytes) / 1e6 / lab.PayloadShare / want
			if x.Scheme == onloadScheme && (x.Seconds < least || x.Seconds > least+2.5) {
				t.Errorf("%s: %.1f s, at least %.1f", cell, x.Seconds, least)
			}
		}
	}
	if len(d) != 8 {
		t.Errorf("%d cells", len(d))
	}
	if _, err := (g1Phones{}).buildHomeTopology(0, t.TempDir(), g1ADSLCase(1, 1, false)); err == nil {
		t.Error("recordings that are not there")
	}
}

// With the links that the published seconds imply, little is lost and these are met. The Setup
// describes the lines.
func TestG3(t *testing.T) {
	r := rowG3PhotoUploads(radio.Sets[0])
	d := computeData(t, r, Options{Seed: 1}, func(c Cell) bool { return c.Reps > 1 })
	n := 0
	for _, p := range r.Points {
		if o := p.evaluatePoint(d); strings.HasPrefix(p.What, "home ") {
			if n++; !o.Verdict.isAsPublished() {
				t.Error(o.toPointLine())
			}
		}
	}
	if n != 20 {
		t.Errorf("%d figures of homes", n)
	}
	if got := g3ImpliedRates(0); math.Abs(got[0]-0.904) > 0.001 || math.Abs(got[1]-0.882) > 0.001 ||
		math.Abs(got[2]-0.558) > 0.001 {
		t.Errorf("home 1: %.3f", got)
	}
	if !strings.Contains(r.Setup, "home 1 with 0.83 Mbit/s would take 723 s and took 664, which is 0.90 Mbit/s "+
		"(or 68.9 MB in all)") {
		t.Error(r.Setup)
	}
	a, b := g3PhotoSizes(1, 0), g3PhotoSizes(1, 1)
	if len(a) != g3Photos || slices.Equal(a, b) || !slices.Equal(a, g3PhotoSizes(1, 0)) || slices.Min(a) < g3MinSize {
		t.Error("photos")
	}
	e := Evaluate(r, Record{Row: "g3", Results: d})
	if i := slices.IndexFunc(e.Lines, func(l Line) bool {
		return l.Scheme == "onload, published" && l.Cell == "home 5"
	}); i < 0 || e.Lines[i].Mean != 182 || e.Lines[i+1].Scheme != onloadScheme {
		t.Errorf("no published figure beside ours: %d", i)
	}
}

// Cells with real packets are compared with those without, one by one.
func TestAgree(t *testing.T) {
	cells := []Cell{{Name: "a"}, {Name: "a" + realPackets}, {Name: "b" + realPackets}, {Name: "b"}, {Name: "c"}}
	d := Data{}
	for i, c := range cells {
		d[c.Name] = []lab.Result{{Scheme: "s", Seconds: 10 + float64(i)}}
	}
	if got := agreementPoint(cells, "s", "").Of(d); len(got) != 2 || math.Abs(got[0]-1.1) > 1e-9 ||
		math.Abs(got[1]-12./13) > 1e-9 {
		t.Error(got)
	}
}
