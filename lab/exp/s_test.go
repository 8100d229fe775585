// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/lab"
	"mpbond/lab/app"
	"mpbond/lab/radio"
)

// appLog returns the log of a cell's script, whose requests follow each other and take t seconds in
// all.
func appLog(c Cell, rep int, t float64) *app.Log {
	if c.App == nil {
		return nil
	}
	s := c.App(1, rep)
	each := t / float64(len(s.Requests))
	l := &app.Log{Seconds: t}
	for i, r := range s.Requests {
		at := each * float64(i)
		l.Requests = append(l.Requests, app.Outcome{Start: at, FirstByte: at + each/2, End: at + each, Up: r.Up,
			Down: r.Down})
	}
	return l
}

// appCPU returns the processor time of a cell's script.
func appCPU(c Cell, t float64) map[string]float64 {
	if c.App == nil {
		return nil
	}
	return map[string]float64{"primary": t / 10}
}

// newPhoneRecord returns a record of row s9 in which each transfer takes the seconds of its scheme.
func newPhoneRecord(seconds func(cell, scheme string) float64) Record {
	rec := Record{Row: "s9", Results: Data{}}
	rec.Cells = map[string]int{}
	for _, r := range phoneRows(radio.Sets[0]) {
		for cell, results := range newData(r, 3, seconds) {
			rec.Results[recountedCell(r.ID, cell)] = results
			rec.Cells[recountedCell(r.ID, cell)] = len(results)
		}
	}
	return rec
}

// TestPhoneCounts checks what row s9 counts if multipath is faster where both links are bad, if it
// begins over WiFi, and slower everywhere else.
func TestPhoneCounts(t *testing.T) {
	row := rowS9Counts(radio.Sets[0])
	rec := newPhoneRecord(func(cell, scheme string) float64 {
		switch {
		case scheme == phoneMPTCPWiFi && cell == "WbLb":
			return 1
		case strings.HasPrefix(scheme, "mptcp"):
			return 3
		}
		return 2
	})
	e := Evaluate(row, rec)
	got := map[string]float64{}
	for _, p := range e.Points {
		got[p.What] = p.Mean
	}
	for what, want := range map[string]float64{"table 3: better performance": 8, "table 3: the same performance": 0,
		"table 3: worse performance": 24, "table 3: better only if begun over WiFi": 8,
		"table 3: better only if begun over LTE": 0, "table 3: better where both links are bad": 8,
		"table 3: better, of 16 with much data": 4, "table 3: not better, of 16 interactive ones": 12} {
		if v, ok := got[what]; !ok || v != want {
			t.Errorf("%s: %g, want %g (%v)", what, v, want, ok)
		}
	}
	if len(e.Tables) != 1 || len(e.Tables[0].Rows) != 32 {
		t.Errorf("the picture has not 32 scenarios: %+v", e.Tables)
	}
	delete(rec.Results, recountedCell("s3", "WgLb"))
	for _, p := range Evaluate(row, rec).Points {
		if strings.HasPrefix(p.What, "table 3: better performance") && p.Verdict != NotMeasured {
			t.Errorf("without one scenario: %s", p.Verdict)
		}
	}
}

// TestHeldOutPlaces checks that places follow the seed and stay within their bounds, and that each
// has a valid network.
func TestHeldOutPlaces(t *testing.T) {
	if drawPhonePlace(1, 0) != drawPhonePlace(1, 0) || drawPhonePlace(1, 0) == drawPhonePlace(2, 0) ||
		drawPhonePlace(1, 0) == drawPhonePlace(1, 1) {
		t.Error("places do not follow the seed and the number")
	}
	for seed := range uint64(20) {
		for i := range heldOutPlaces {
			p := drawPhonePlace(seed, i)
			for _, l := range []phoneLink{p.wifi, p.lte} {
				if l.down < 1 || l.down > 60 || l.up < 1 || l.up > l.down {
					t.Errorf("seed %d: %+v", seed, p)
				}
			}
			if _, err := p.buildPhoneTopology(0); err != nil {
				t.Errorf("seed %d, %+v: %v", seed, p, err)
			}
		}
	}
}

// TestRecordedPairs checks that row s11 has cells over recorded pairs if there are recordings, and
// what these cells are.
func TestRecordedPairs(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "wifi-cellular-pairs"), 0o755); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "%d,%d\n", i+1, 100_000*(1+i%9))
	}
	for _, name := range recordedPairs {
		for _, kind := range []string{"wifi", "cellular"} {
			file := filepath.Join(dir, "wifi-cellular-pairs", name+"_"+kind+".csv")
			if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	row := rowS11HoldOut(radio.Sets[0])
	all, err := row.Experiments(Options{Seed: 1, Traces: dir})
	if want := len(recordedPairs) * (len(phoneApps()) - 1); err != nil || len(all) != want {
		t.Fatalf("%d cells over recordings, want %d: %v", len(all), want, err)
	}
	for _, e := range all {
		for _, link := range []string{"wlan0", "wwan0"} {
			l := e.Spec.Topology.Link[link]
			if l.Down == nil || len(l.Down.Schedule) == 0 || l.Up == nil || len(l.Up.Schedule) > 0 {
				t.Errorf("%s: %s: %+v", e.Name, link, l)
			}
		}
	}
	if quick, err := row.Experiments(Options{Seed: 1, Traces: dir, Quick: true}); err != nil || len(quick) == 0 {
		t.Errorf("the short form has %d cells over recordings: %v", len(quick), err)
	}
}

// TestEvaluateSign checks the verdicts on changes whose published value is a sign.
func TestEvaluateSign(t *testing.T) {
	up, down := []float64{9, 10, 11}, []float64{-9, -10, -11}
	none, unsure := []float64{2, 3, 4}, []float64{-20, 10, 40}
	for _, c := range []struct {
		aim    Aim
		sign   float64
		values []float64
		want   Verdict
	}{
		{AimSign, 1, up, Reproduced}, {AimSign, 1, none, NotReproduced}, {AimSign, 1, down, Opposite},
		{AimSign, 0, none, Reproduced}, {AimSign, 0, unsure, Reproduced}, {AimSign, 0, up, NotReproduced},
		{AimSign, -1, down, Reproduced}, {AimSign, -1, up, Opposite},
		{AimNotMore, 0, down, Reproduced}, {AimNotMore, 0, none, Reproduced}, {AimNotMore, 0, up, NotReproduced},
		{AimNotLess, 0, up, Reproduced}, {AimNotLess, 0, none, Reproduced}, {AimNotLess, 0, down, NotReproduced},
	} {
		p := Point{Aim: c.aim, Low: c.sign, High: c.sign}
		if got := p.evaluateStat(Summarize(c.values)); got != c.want {
			t.Errorf("aim %d, sign %g, %v: %s, want %s", c.aim, c.sign, c.values, got, c.want)
		}
	}
}

// TestRecounts checks that a row that recounts others loads their transfers under the names of both,
// counts what was planned, and names versions that differ.
func TestRecounts(t *testing.T) {
	dir := t.TempDir()
	for i, id := range []string{"s1", "s2"} {
		s := Stamp{Version: fmt.Sprint("v", i), Planned: 5, Cells: map[string]int{"WgLg": 5}}
		j, err := OpenJournal(dir, id, s, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Add("WgLg", lab.Result{Scheme: phoneOurs, Seconds: float64(i + 1)}); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := rowS9Counts(radio.Sets[0]).LoadRowRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Planned != 10 || rec.Cells["s1 WgLg"] != 5 || len(rec.Results) != 2 ||
		rec.Results["s2 WgLg"][0].Seconds != 2 || !strings.Contains(rec.Errors["s2"], "v1") || rec.Errors["s1"] != "" {
		t.Errorf("%+v", rec)
	}
}

// TestPageOrder checks how the order of schemes in a browser is compared with that of the lab's client.
func TestPageOrder(t *testing.T) {
	row := rowS10Browser(radio.Sets[0])
	slowerMPTCP := func(_, scheme string) float64 {
		if scheme == phoneMPTCPWiFi {
			return 3
		}
		return 2
	}
	for name, c := range map[string]struct {
		seconds func(cell, scheme string) float64
		reps    int
		verdict Verdict
	}{
		"the same order": {slowerMPTCP, 3, Reproduced},
		"no difference":  {func(string, string) float64 { return 2 }, 3, Reproduced},
		"the other order by HTTP/2": {func(cell, scheme string) float64 {
			if strings.HasSuffix(cell, string(app.BrowserHTTP2)) {
				return 5 - slowerMPTCP(cell, scheme)
			}
			return slowerMPTCP(cell, scheme)
		}, 3, NotReproduced},
		"two repetitions": {slowerMPTCP, 2, NotMeasured},
	} {
		rec := Record{Row: row.ID, Results: newData(row, c.reps, c.seconds), Stamp: Stamp{Cells: map[string]int{}}}
		for cell, results := range rec.Results {
			rec.Cells[cell] = len(results)
		}
		points := Evaluate(row, rec).Points
		if p := points[len(points)-1]; p.Verdict != c.verdict {
			t.Errorf("%s: %+v, want %s", name, p, c.verdict)
		}
	}
}
