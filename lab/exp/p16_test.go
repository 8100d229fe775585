// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mpbond/lab"
	"mpbond/lab/lte"
	"mpbond/lab/radio"
)

// TestRecordedCells: p16 has the hold-outs always, and the recordings of papers with a directory of them. Each is there
// twice, computed and with real packets, with the same rates.
func TestRecordedCells(t *testing.T) {
	dir := t.TempDir()
	for _, x := range listRecordedCells() {
		if x.file == "" {
			continue
		}
		name := filepath.Join(dir, x.file)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		lines := "" // 1.2 Mbit/s for 100 s
		for ms := range 10_000 {
			lines += fmt.Sprintln(10 * ms)
		}
		if err := os.WriteFile(name, []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := rowP16Recordings(radio.Sets[0])
	for _, o := range []Options{{Seed: 1}, {Seed: 1, Traces: dir}} {
		all, err := r.Experiments(o)
		want := 10
		if o.Traces != "" {
			want = 20
		}
		if err != nil || len(all) != want {
			t.Fatalf("%+v: %d cells, %v", o, len(all), err)
		}
		real := 0
		for _, e := range all {
			if !e.IsVirtual() {
				real++
			}
		}
		if real != want/2 {
			t.Errorf("%+v: %d cells with real packets", o, real)
		}
	}
	for _, x := range listRecordedCells()[publishedRecordings:] {
		p, err := x.load("")
		if err != nil || len(p.Rates) < 120 {
			t.Errorf("%s: %d rates, %v", x.name, len(p.Rates), err)
		}
		top := recordedNetwork(1, p)
		if err := top.Check(); err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
		// The same rates as computed.
		rates, err := lte.ParseRates(top.Link[p12Link].LTE.Rates, 0)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := recordedModel(p).makeCase(1002).Network.Users[0].Rate(0), p.Rates[2*recordedFlowLength/p.Step]; a != b {
			t.Errorf("%s: the third repetition begins with %v, want %v", x.name, a, b)
		}
		c := recordedModel(p).makeCase(0)
		for at := time.Duration(0); at < recordedFlowLength; at += 100 * time.Millisecond {
			if a, b := rates.At(at), c.Network.Users[0].Rate(int64(at/time.Millisecond)); a != b {
				t.Fatalf("%s: %v at %v, computed %v", x.name, a, at, b)
			}
		}
	}
	short := filepath.Join(dir, listRecordedCells()[1].file)
	if err := os.WriteFile(short, []byte("1\n90000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Experiments(Options{Traces: dir}); err == nil || !strings.Contains(err.Error(), "shorter than 1m40s") {
		t.Errorf("a recording of 90 s: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, listRecordedCells()[0].file)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Experiments(Options{Traces: dir}); err == nil || !strings.Contains(err.Error(), "taxi") {
		t.Errorf("a recording is missing: %v", err)
	}
}

// TestScatter: a chart has the means of each scheme in a cell.
func TestScatter(t *testing.T) {
	r := rowP16Recordings(radio.Sets[0])
	cell := r.Cells[0]
	d := Data{}
	for i, s := range cell.Schemes {
		for rep := range 2 {
			d[cell.Name] = append(d[cell.Name], lab.Result{Scheme: s, Rep: rep, Seconds: 20, SHA: true,
				Virtual: &lab.VirtualResult{Flows: []lab.Flow{{P95: float64(30 + 10*i + rep), Propagation: 25}},
					Figures: map[string]float64{usedFigure: float64(90 + rep)}}})
		}
	}
	all := r.makeScatters(d)
	if len(all) != 1 || len(all[0].names) != len(cell.Schemes) || all[0].at[1] != [2]float64{15.5, 90.5} {
		t.Fatalf("%+v", all)
	}
	if want := float64(5+10*(len(cell.Schemes)-1)) + 0.5; all[0].most != [2]float64{want, 90.5} {
		t.Errorf("axes up to %v, want %v", all[0].most, want)
	}
	p, err := all[0].drawPoints(palette(cell.Schemes))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := p.writeFigure(&b); err != nil {
		t.Fatal(err)
	}
	for _, s := range cell.Schemes {
		if !strings.Contains(b.String(), ">"+s+"<") {
			t.Errorf("the chart does not name %s", s)
		}
	}
}

// TestRecordedFront: a flow counts unless another scheme has as much rate and less delay in the same repetition.
func TestRecordedFront(t *testing.T) {
	r := rowP16Recordings(radio.Sets[0])
	cell := listRecordedCells()[publishedRecordings].name
	flow := func(scheme string, rep int, rate, p95 float64) lab.Result {
		return lab.Result{Scheme: scheme, Rep: rep, Seconds: 20, SHA: true, Virtual: &lab.VirtualResult{
			Flows: []lab.Flow{{Rate: rate, P95: p95}}}}
	}
	d := Data{cell + virtualSuffix: {flow(pbe, 0, 10, 50), flow("copa", 0, 9.95, 45), flow(pbe, 1, 10, 50),
		flow("copa", 1, 9, 45), flow("bbr", 1, 10, 90)}}
	all := r.Points[2].Cases(d)
	if len(all) != 5 || all[0].Text != "1 of 2" || all[0].Value != 50 || all[0].Missing || !all[1].Missing {
		t.Errorf("%+v", all)
	}
	d[listRecordedCells()[0].name+virtualSuffix] = []lab.Result{flow(pbe, 0, 10, 50)}
	if all := r.Points[2].Cases(d); len(all) != 10 || all[0].Text != "1 of 1" || !all[1].Missing {
		t.Errorf("%+v", all)
	}
}
