// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

func publishedRows() []Row { return PublishedRows(radio.Sets[0]) }

// newData returns synthetic data of a row: seconds by scheme, with small variations.
func newData(r Row, reps int, seconds func(cell, scheme string) float64) Data {
	d := Data{}
	for _, c := range r.Cells {
		for rep := range reps {
			for _, s := range c.Schemes {
				t := seconds(c.Name, s) * (1 + 0.001*float64(rep))
				if c.Model != nil || c.Flows != nil || c.Compute != nil || c.complete != nil {
					d[c.Name] = append(d[c.Name], lab.Result{Scheme: s, Rep: rep, Bytes: unit.MB, Seconds: t,
						Virtual: newVirtualResult(r, t)})
					continue
				}
				d[c.Name] = append(d[c.Name], lab.Result{Scheme: s, Rep: rep, Bytes: unit.MB, Streams: 1, Seconds: t,
					EndSpread: t / 2, Bound: 1, Efficiency: 1 / t, SHA: true, Video: &lab.Playback{Bitrate: 1e6 / t, StallRatio: t},
					Items:   itemTimes(c, t),
					Objects: objectTimes(c, t),
					Links:   map[string]unit.Bytes{"wwan0": unit.MB},
					Pings:   map[string]lab.Ping{"cell1": newPing(t), "cell2": newPing(t)},
					Devices: map[string]unit.Bytes{"primary": unit.MB, "helper1": unit.MB},
					Traffic: []lab.Traffic{newTraffic(t), {Node: "helper1", Link: "hs1", Gaps: []int64{0},
						Sizes: []int32{-1500}}},
					Handshakes: newHandshakeLog(c), Held: newHeldLog(c, t),
					App: appLog(c, rep, t), CPU: appCPU(c, t)})
			}
		}
	}
	return d
}

// itemTimes returns the times of a cell's items; the last takes t seconds.
func itemTimes(c Cell, t float64) (at []float64) {
	if c.Items != nil {
		n := len(c.Items(1, 0))
		for i := range n {
			at = append(at, t*float64(i+1)/float64(n))
		}
	}
	return at
}

// objectTimes returns the times of a cell's objects.
func objectTimes(c Cell, t float64) *lab.ObjectTimes {
	if c.Objects == 0 {
		return nil
	}
	return &lab.ObjectTimes{Cold: 2 * t, Warm: t, ColdBound: t, WarmBound: t}
}

// newPing returns pings of t seconds.
func newPing(t float64) lab.Ping {
	d := time.Duration(t * float64(time.Second))
	return lab.Ping{Sent: 1, Down: lab.Delays{Packets: 1, P50: d, P95: d, P99: d, Max: d}}
}

// newVirtualResult returns a result in virtual time: three flows with the rate 1/t.
func newVirtualResult(r Row, t float64) *lab.VirtualResult {
	v := &lab.VirtualResult{Figures: map[string]float64{usedFigure: t, shareFigure: t}}
	for _, m := range r.Metrics {
		v.Figures[m.Name] = t
	}
	for range 3 {
		v.Flows = append(v.Flows, lab.Flow{Controller: "pbe", Rate: 1 / t, Mean: 10 * t, P95: 20 * t,
			States:    map[string]float64{"wireless": 3, "internet": 1},
			Quantiles: []float64{t, 2 * t, 3 * t}, Step: 1, Rates: []float64{1, 2, 3}, Delays: []float64{3, 2, 1}})
	}
	return v
}

// newTraffic returns a packet every 50 ms for that many seconds.
func newTraffic(seconds float64) lab.Traffic {
	t := lab.Traffic{Node: "primary", Link: "ps", Gaps: []int64{0}, Sizes: []int32{100}}
	for range int(seconds / 0.05) {
		t.Gaps, t.Sizes = append(t.Gaps, 50_000), append(t.Sizes, -1500)
	}
	return t
}

// All rows can run, have a source, and refer to cells and schemes that exist.
func TestRows(t *testing.T) {
	ids := map[string]bool{}
	for _, r := range publishedRows() {
		r = r.withCellsForSeed(1)
		if ids[r.ID] || r.ID == "" || r.Title == "" || r.Source == "" || len(r.Points) == 0 || len(r.Metrics) == 0 {
			t.Errorf("row %q is there twice, or says too little", r.ID)
		}
		ids[r.ID] = true
		if r.recounts != nil {
			continue // TestPhoneCounts
		}
		names := map[string]bool{}
		for _, c := range r.Cells {
			if names[c.Name] {
				t.Errorf("%s has two cells %q", r.ID, c.Name)
			}
			names[c.Name] = true
		}
		made := map[Options]int{}
		for _, o := range []Options{{}, {Quick: true}, {Reps: 3, Seed: 7}} {
			experiments, err := r.Experiments(o)
			if err != nil || len(experiments) == 0 {
				t.Fatalf("%s, %+v: %d cells, %v", r.ID, o, len(experiments), err)
			}
			made[o] = countTransfers(experiments)
			real, first := 0, 0 // cells
			for _, e := range experiments {
				if !e.IsVirtual() {
					real++
				}
				if e.StartFirst {
					first++
				}
				if o.Quick && e.RunAlone {
					t.Errorf("%s, %s: nothing may run beside it in the short form", r.ID, e.Name)
				}
				if e.Expected <= 0 || e.Spec.Seed != o.Seed || o.Reps > 0 && e.Spec.Reps != o.Reps && r.ID != "h0" {
					t.Errorf("%s, %s: %+v", r.ID, e.Name, e)
				}
			}
			if o.Quick && first != min(real, 1) || !o.Quick && first > 0 {
				t.Errorf("%s, %+v: of %d cells %d begin first", r.ID, o, real, first)
			}
		}
		if quick, full := made[Options{Quick: true}], made[Options{}]; quick*3 > full {
			t.Errorf("%s: the short form makes %d of %d transfers", r.ID, quick, full)
		}
		outcomes, v := r.EvaluatePoints(newData(r, 3, func(string, string) float64 { return 2 }))
		for _, o := range outcomes {
			if o.N == 0 || o.N%3 != 0 && o.Cases == nil && r.ID != "m15" && r.ID != "s11" && r.ID != "h1" {
				// Of one cell or of several. In m15 a pattern is one case; s11 has one value; h1 has one for
				// each download.
				t.Errorf("%s: %s: %d values of 3 repetitions", r.ID, o.What, o.N)
			}
			if o.Low > o.High {
				t.Errorf("%s: %s: published %s", r.ID, o.What, o.Published())
			}
		}
		if v == NotMeasured {
			t.Errorf("%s is not measured", r.ID)
		}
		if _, v := r.EvaluatePoints(Data{}); v != NotMeasured {
			t.Errorf("%s without data: %s", r.ID, v)
		}
	}
}

// All rows together fit into the available time on two processors, with a reserve for disturbances:
// a run took 1.24 times the estimate, so that 56 minutes become 70. Uploads over lines of less than
// 1 Mbit/s dominate; they already have only one or two repetitions.
func TestTime(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one processor")
	}
	for _, c := range []struct {
		group string
		quick bool
		most  time.Duration
	}{{AllRows, true, 7 * time.Minute}, {AllRows, false, 56 * time.Minute}, {PhoneRows, true, 4 * time.Minute},
		{PhoneRows, false, 100 * time.Minute}, {RailRows, true, 4 * time.Minute}, {RailRows, false, 120 * time.Minute},
		{CellRows, true, time.Minute}, {CellRows, false, 20 * time.Minute}} {
		var pool []lab.Experiment
		for _, r := range publishedRows() {
			if cmp.Or(r.Study, AllRows) != c.group || r.ID == "s11" { // rows of a study and s11 run apart
				continue
			}
			experiments, err := r.Experiments(Options{Quick: c.quick})
			if err != nil {
				t.Fatal(err)
			}
			pool = append(pool, experiments...)
		}
		took := lab.NewJobs(0).Estimate(pool, func(int) float64 { return 1 })
		t.Logf("%s, quick %v: %d transfers, about %v on this machine", c.group, c.quick, countTransfers(pool),
			took.Round(time.Second))
		if took > c.most {
			t.Errorf("%s, quick %v: %v", c.group, c.quick, took)
		}
	}
}

func countTransfers(experiments []lab.Experiment) (n int) {
	for _, e := range experiments {
		n += e.TransferCount()
	}
	return n
}

// TestSummarize: t of 4 degrees of freedom is 2.7764 (any table).
func TestSummarize(t *testing.T) {
	s := Summarize([]float64{1, 2, 3, 4, 5})
	if s.N != 5 || s.Mean != 3 || math.Abs(s.Sigma-1.5811) > 1e-4 ||
		math.Abs(s.Half-2.7764*1.5811/math.Sqrt(5)) > 1e-3 {
		t.Errorf("%+v", s)
	}
	if s := Summarize([]float64{4}); s != (Stat{N: 1, Mean: 4}) || s.Text("s") != "4.000 s" {
		t.Errorf("one value: %+v, %q", s, s.Text("s"))
	}
	if s := Summarize(nil); s != (Stat{}) || s.Text("s") != "" {
		t.Errorf("no value: %+v", s)
	}
}

// A value is reproduced if its direction is sure and it is near the published one, or its interval
// overlaps that and is narrow enough to say something.
func TestEvaluatePoint(t *testing.T) {
	for _, c := range []struct {
		aim       Aim
		low, high float64
		values    []float64
		want      Verdict
	}{
		{AimAtMost, 4.8, 4.8, []float64{4.7, 4.8, 4.75}, Reproduced},
		{AimAtMost, 4.8, 4.8, []float64{5.2, 5.21, 5.19}, Reproduced}, // 8 % more
		{AimAtMost, 4.8, 4.8, []float64{5.4, 5.41, 5.39}, NotReproduced},
		{AimAtMost, 4.8, 4.8, []float64{4, 4.01, 3.99}, Exceeded},
		{AimAtMost, 4.8, 4.8, []float64{1, 8, 5}, NotReproduced}, // 4.7 ± 8.7
		{AimAtMost, 4.8, 4.8, nil, NotMeasured},
		{AimReduction, -11, -5, []float64{-9, -8.5, -8}, Reproduced},
		{AimReduction, -11, -5, []float64{-16, -15, -16}, Exceeded},
		{AimReduction, -11, -5, []float64{-13, -12, -11.5}, Reproduced}, // overlaps
		{AimReduction, -11, -5, []float64{-5.5}, Reproduced},
		{AimReduction, -11, -5, []float64{-4.6, -4.55, -4.65}, Reproduced}, // 8 % less of an effect
		{AimReduction, -11, -5, []float64{-3, -3.1, -2.9}, DirectionOnly},
		{AimReduction, -11, -5, []float64{-3}, NotReproduced},
		{AimReduction, -11, -5, []float64{-9, 6, 2}, NotReproduced},
		{AimReduction, -11, -5, []float64{-20, -1, 2}, NotReproduced},
		{AimReduction, -11, -5, []float64{-11, -9, -4}, NotReproduced}, // -8 ± 9
		{AimReduction, -11, -5, []float64{-12, -8, -6}, DirectionOnly}, // -8.7 ± 7.6: surely less, but by how much?
		{AimReduction, -11, -5, []float64{3, 3.1, 2.9}, Opposite},
		{AimNear, 4.5, 4.5, []float64{4.9}, Reproduced},
		{AimNear, 4.5, 4.5, []float64{5.06}, NotReproduced},
		{AimNear, 9.7, 9.7, []float64{7.9, 7.91, 7.9}, NotReproduced},
		{AimAtLeast, 10, 15, []float64{10.1, 9.95, 10}, Reproduced},
		{AimAtLeast, 10, 15, []float64{99}, Exceeded},
		{AimAtLeast, 10, 15, []float64{8.9, 8.91, 8.9}, NotReproduced},
		{AimAtLeast, 10, 15, nil, NotMeasured},
		{AimIncrease, 13, 23, []float64{12, 15}, NotReproduced}, // 13.5 ± 19
		{AimIncrease, 15.8, 474, []float64{2, 60, 40, 30, 1300}, NotReproduced},
		{AimIncrease, 13, 23, []float64{13, 14, 15}, Reproduced},
		{AimIncrease, 13, 13, []float64{6, 7, 8}, DirectionOnly},
		{AimIncrease, 13, 13, []float64{-1, 7, 2}, NotReproduced},
		{AimIncrease, 13, 13, []float64{7}, NotReproduced},
		{AimIncrease, 13, 13, []float64{-6, -7, -8}, Opposite},
	} {
		p := Point{Low: c.low, High: c.high, Aim: c.aim, Of: func(Data) []float64 { return c.values }}
		if got := p.evaluatePoint(nil).Verdict; got != c.want {
			t.Errorf("aim %d, published %s, here %v: %s, not %s", c.aim, p.Published(), c.values, got, c.want)
		}
		p.IsFitted = true
		if c.want.isAsPublished() {
			c.want = Fitted
		}
		if got := p.evaluatePoint(nil).Verdict; got != c.want {
			t.Errorf("aim %d, fitted to %s, here %v: %s, not %s", c.aim, p.Published(), c.values, got, c.want)
		}
	}
}

// A limit is met as a whole, or by the mean of a narrow interval.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		aim       Aim
		low, high float64
		values    []float64
		want      Verdict
	}{
		{AimAtMost, 0, 2, []float64{0.6, 0.1, 1.1}, Reproduced},
		{AimAtMost, 0, 2, []float64{-9, -10, -11}, Reproduced},
		{AimAtMost, 0, 2, []float64{-9, 2, 9}, NotReproduced},
		{AimAtMost, 0, 2, []float64{2.2, 2.1, 2.3}, NotReproduced},
		{AimAtLeast, 95, 95, []float64{99, 96, 97}, Reproduced},
		{AimNear, 1, 1, []float64{1.1, 1.05, 1.12}, Reproduced},
		{AimNear, 1, 1, []float64{1.2}, NotReproduced},
		{AimFactor, 1, 1, []float64{1.1, 1.12, 1.13}, Reproduced},
		{AimFactor, 1, 1, []float64{0.9, 1.1, 1.2}, NotReproduced},
		{AimFraction, 1, 1, []float64{1.1, 1.12, 1.13}, Opposite},
		{AimIncrease, -2, -2, []float64{0.1, -0.2, 0.3}, Reproduced},
	} {
		p := Point{Low: c.low, High: c.high, Aim: c.aim, IsLimit: true, Of: func(Data) []float64 { return c.values }}
		if got := p.evaluatePoint(nil).Verdict; got != c.want {
			t.Errorf("aim %d, limit %s, here %v: %s, not %s", c.aim, p.Published(), c.values, got, c.want)
		}
	}
}

// Changes are within a repetition, of transfers that count.
func TestPairs(t *testing.T) {
	d := Data{"c": {
		{Scheme: "a", Rep: 0, Seconds: 1}, {Scheme: "b", Rep: 0, Seconds: 2},
		{Scheme: "b", Rep: 1, Seconds: 4}, {Scheme: "a", Rep: 1, Seconds: 9, Disturbed: true},
		{Scheme: "a", Rep: 1, Seconds: 5},
		{Scheme: "a", Rep: 2, Seconds: 1}, {Scheme: "b", Rep: 2, Seconds: 2, Error: "x"},
	}}
	if got := d.Changes("c", [2]string{"a", "b"}, Time); !slices.Equal(got, []float64{-50, 25}) {
		t.Errorf("%v", got)
	}
	if got := d.Values("c", "a", Time); !slices.Equal(got, []float64{1, 5, 1}) {
		t.Errorf("%v", got)
	}
}

// Only schemes that are slower outside the noise are named.
func TestWorseThan(t *testing.T) {
	d := newData(rowM4Reinjection(radio.Sets[0]), 5, func(_, scheme string) float64 {
		return map[string]float64{Product: 2, pams: 1.9, pams + ":noreinject": 3, mptcp: 2, "single": 4}[scheme]
	})
	got := rowM4Reinjection(radio.Sets[0]).WorseThan(d)
	if len(got) != 1 || got[0].Other != pams || math.Abs(got[0].Mean-5.26) > 0.01 {
		t.Errorf("%v", got)
	}
	for i := range d[m4Cell] {
		if d[m4Cell][i].Scheme == pams {
			d[m4Cell][i].Seconds += 0.5 * float64(d[m4Cell][i].Rep%2) // now in the noise
		}
	}
	if got := rowM4Reinjection(radio.Sets[0]).WorseThan(d); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// For metrics where more is better, lower values are worse, and the best is the largest.
func TestMore(t *testing.T) {
	r := Row{Metrics: []Metric{Rate, Time}, Cells: []Cell{{Name: "c", Schemes: []string{Product, "a", "b", "single"}}}}
	d := newData(r, 4, func(_, scheme string) float64 {
		return map[string]float64{Product: 2, "a": 1, "b": 1.5, "single": 3}[scheme]
	})
	got := r.WorseThan(d)
	if len(got) != 2 || got[0].Other != "a" || got[1].Other != "b" || math.Abs(got[0].Mean+50) > 0.1 {
		t.Errorf("%v", got)
	}
	if text := got[0].String(); !strings.Contains(text, "rate is worse with mpbond than with a: -50.0") {
		t.Error(text)
	}
	for _, m := range []Metric{Rate, Time} {
		if c := d.Changes("c", [2]string{Product, d.bestScheme("c", []string{"single", "a", "b"}, m)},
			Rate); len(c) != 4 || math.Abs(c[0]+50) > 0.1 {
			t.Errorf("beside the best by %s: %v", m.Name, c)
		}
	}
	if Rate.isBetterValue(1, 2) || !Rate.isBetterValue(2, 1) || Time.isBetterValue(2, 1) || !Time.isBetterValue(1, 2) ||
		Rate.isBetterValue(1, 1) || Time.isBetterValue(1, 1) {
		t.Error("better")
	}
	if v := d.PooledChanges([]string{"c", "c"}, [2]string{Product, "single"}, Rate); len(v) != 8 ||
		math.Abs(v[7]-50) > 0.1 {
		t.Errorf("pooled: %v", v)
	}
}

// A record can be read again. A truncated line does not affect others. A resumed run drops failed
// transfers.
func TestRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if rec, err := LoadRecord(dir, "m4", false); err != nil || len(rec.Results) != 0 {
		t.Fatal(rec, err)
	}
	stamp := Stamp{Version: "v", Seed: 3, Planned: 10}
	results := newData(rowM4Reinjection(radio.Sets[0]), 2, func(string, string) float64 { return 1 })[m4Cell]
	begin := func(s Stamp, anew bool, results []lab.Result) {
		t.Helper()
		j, err := OpenJournal(dir, "m4", s, anew)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if err := j.Add(m4Cell, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(j.AddIncomplete(m4Cell, "its lab died"), j.Close()); err != nil {
			t.Fatal(err)
		}
	}
	noted := slices.Clone(results[:2])
	noted[0].Notes = map[string]any{"long": true}
	noted[1].Error = "failed"
	begin(stamp, false, noted)
	if noted[0].Notes == nil {
		t.Error("keeping a transfer changed it")
	}
	rec, err := LoadRecord(dir, "m4", false)
	want := Record{"m4", stamp, Data{m4Cell: slices.Clone(noted)}, map[string]string{m4Cell: "its lab died"}, dir}
	want.Results[m4Cell][0].Notes = nil
	if err != nil || !reflect.DeepEqual(rec, want) {
		t.Errorf("%+v %v", rec, err)
	}
	f, err := os.OpenFile(recordPath(dir, "m4"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("\n{\"cell\":\"x\",\"result\":{\"scheme"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	begin(stamp, false, results[2:])
	for _, light := range []bool{false, true} {
		rec, err = LoadRecord(dir, "m4", light)
		if err != nil || len(rec.Results) != 1 || len(rec.Results[m4Cell]) != len(results)-1 ||
			rec.Results[m4Cell][0].Rep != results[0].Rep {
			t.Errorf("%+v %v", rec, err)
		}
		if x := rec.Results[m4Cell][3]; (x.Traffic == nil) != light {
			t.Errorf("light %v: %+v", light, x)
		}
	}
	if !rec.CanResume(stamp) || rec.CanResume(Stamp{Version: "v", Seed: 4}) ||
		rec.CanResume(Stamp{Version: "w", Seed: 3}) || rec.CanResume(Stamp{Version: "v", Seed: 3, Quick: true}) {
		t.Error("what fits")
	}
	begin(stamp, true, nil)
	if rec, err := LoadRecord(dir, "m4", false); err != nil || len(rec.Results) != 0 || rec.Planned != 10 {
		t.Errorf("anew: %+v %v", rec, err)
	}
	kept, err := os.ReadFile(recordPath(dir, "m4") + ".old")
	if err != nil || !bytes.Contains(kept, []byte(`"rep":1`)) {
		t.Errorf("put aside: %v %s", err, kept)
	}
	// Renamed records stay, except those of the short form.
	begin(stamp, true, nil)
	begin(stamp, true, nil)
	asides := func(want int) {
		t.Helper()
		if again, err := os.ReadFile(recordPath(dir, "m4") + ".old"); err != nil ||
			bytes.Equal(again, kept) != (want == 3) {
			t.Errorf("what was put aside first: %v, %d bytes of %d", err, len(again), len(kept))
		}
		if all, err := filepath.Glob(recordPath(dir, "m4") + ".old*"); err != nil || len(all) != want {
			t.Errorf("%v %v", all, err)
		}
	}
	asides(3)
	dir = QuickDir(dir)
	for range 4 {
		begin(Stamp{Version: "v", Quick: true}, true, nil)
	}
	asides(1)
}

// The page is self-contained, with worse results first. The CSV has a line for each value.
func TestReport(t *testing.T) {
	worse := func(cell, scheme string) float64 {
		if scheme == Product {
			return 3
		}
		return 2
	}
	var evaluations []Evaluation
	figures := 0
	for _, r := range publishedRows() {
		rec := Record{Row: r.ID, Stamp: Stamp{Version: "abc1234", Kernel: "6.1", Seed: 5, Quick: true, Reps: 3},
			Results: newData(r, 3, worse),
			Errors:  map[string]string{}}
		if len(r.Cells) > 0 {
			rec.Errors[r.Cells[0].Name] = "the <lab> died"
		}
		for _, results := range rec.Results {
			results[0].Video = nil // playbacks have no bound
		}
		e := Evaluate(r, rec)
		evaluations = append(evaluations, e)
		figures += len(e.Points) + len(e.Lines)
	}
	var page, table bytes.Buffer
	if err := WriteHTML(&page, evaluations); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, link := range regexp.MustCompile(
		`(?i)(src|href)\s*=\s*"[^#"][^"]*"|@import|url\(|<script|https?://[^"\s<]+`).FindAllString(text, -1) {
		if link != "http://www.w3.org/2000/svg" && link != "http://www.w3.org/1999/xlink" {
			t.Errorf("the page asks for %s", link)
		}
	}
	for _, r := range publishedRows() {
		first, later := strings.Index(text, ">"+r.ID+"</a>: "), strings.Index(text, `<h2 id="`+r.ID+`"`)
		if first < 0 || later < first {
			t.Errorf("%s: what is worse does not come first", r.ID)
		}
	}
	for _, want := range []string{"<svg", "abc1234", "the &lt;lab&gt; died", "mpbond-lab exp run m4 --seed 5 " +
		"--quick --reps 3", "slower than mptcp", "fluid bound", "(short form: not for figures)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "Nowhere in what was measured") || strings.Contains(text, "ZgotmplZ") {
		t.Error("the page is wrong")
	}
	if err := WriteCSV(&table, evaluations); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&table).ReadAll()
	if err != nil || len(lines) != 1+figures {
		t.Errorf("%d lines of %d figures, %v", len(lines), figures, err)
	}
}

// A verdict on too few transfers has a warning.
func TestCaution(t *testing.T) {
	r := rowM4Reinjection(radio.Sets[0])
	for _, c := range []struct {
		n      int
		quick  bool
		marked string
	}{{0, false, ""}, {1, false, "one transfer"}, {2, false, ""}, {1, true, "short form"}, {3, true, "short form"}} {
		e := Evaluate(r, Record{Row: r.ID, Stamp: Stamp{Quick: c.quick},
			Results: newData(r, c.n, func(string, string) float64 {
				return 1
			})})
		if got := e.Caution(); (got == "") != (c.marked == "") || !strings.Contains(got, c.marked) {
			t.Errorf("%d transfers, short %v: %q", c.n, c.quick, got)
		}
	}
}

// TestEnergy checks energies by device and by radio. Another set evaluates the same packets again.
func TestEnergy(t *testing.T) {
	r := lab.Result{Traffic: []lab.Traffic{
		{Node: "primary", Link: "ps", Gaps: []int64{0, 100_000}, Sizes: []int32{1500, -1500}},
		{Node: "primary", Link: "pipe1", Gaps: []int64{5000}, Sizes: []int32{-1500}},
		{Node: "helper1", Link: "hs1", Gaps: []int64{5000}, Sizes: []int32{-1500}},
	}}
	value := func(set int, device string, full bool) float64 {
		v, ok := Energy(radio.Sets[set], device, full).Of(r)
		if !ok {
			t.Fatal("no energy")
		}
		return v
	}
	// Promotions 0.3149 J (LTE, twice) and 9.84 mJ (WiFi), 0.1 s at 1.288 W, and little for the
	// bytes: 0.012 Mbit at 438.39, 51.97 (twice), 137.01 mW for each Mbit/s.
	data := 0.012 * (438.39 + 2*51.97 + 137.01) / 1e3
	if got, want := value(0, "", false), 2*1.2107*0.2601+0.1244*0.0791+0.1*1.28804+data; math.Abs(got-want) > 1e-6 {
		t.Errorf("all devices: %f J, not %f", got, want)
	}
	if a, b, all := value(0, "primary", true), value(0, "helper1", true),
		value(0, "", true); math.Abs(a+b-all) > 1e-9 || b < 12 || all < 24 {
		t.Errorf("E_full: primary %f, helper %f, both %f", a, b, all)
	}
	if got := value(2, "helper1", true); got <= 0 || got > 0.01 {
		t.Errorf("constants without promotion and tail: %f J", got)
	}
	if _, ok := Energy(radio.Sets[0], "", true).Of(lab.Result{}); ok {
		t.Error("a transfer whose packets nobody saw has an energy")
	}
}

// Each user is compared with itself.
func TestDual(t *testing.T) {
	r := rowM12DualMode(radio.Sets[0])
	seconds := map[string]float64{"both:primary": 1.2, "alone:primary": 2, "both:helper1": 1.9, "alone:helper1": 1.8}
	d := newData(r, 4, func(_, scheme string) float64 { return seconds[scheme] })
	outcomes, v := r.EvaluatePoints(d)
	if len(outcomes) != 2 || outcomes[0].Verdict != Exceeded || outcomes[1].Verdict != Opposite ||
		v != NotReproduced {
		t.Errorf("%+v %s", outcomes, v)
	}
	if b := r.WorseThan(d); len(b) != 2 || b[1].Metric.energySet == nil || b[0].Ours != "both:helper1" ||
		b[0].Other != "alone:helper1" {
		t.Errorf("%v", b)
	}
	all, err := r.Experiments(Options{Seed: 9})
	if err != nil || len(all) != 1 || all[0].Dual == nil || all[0].Dual.Seed != 9 || all[0].Dual.Reps != 10 ||
		len(all[0].Spec.Schemes) != 4 {
		t.Fatalf("%+v %v", all, err)
	}
	if took := all[0].Expected.Minutes(); took < 5 || took > 15 {
		t.Errorf("it would take %.0f min", took)
	}
}
