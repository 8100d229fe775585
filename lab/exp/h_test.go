// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"bytes"
	"compress/gzip"
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
	"mpbond/lab/app"
	"mpbond/lab/vary"
	"mpbond/link/estimate"
)

// railResult returns a transfer of h2 with a rate in Mbit/s and bytes by link.
func railResult(scheme string, rep int, mbps float64, m, u unit.Bytes) lab.Result {
	return lab.Result{Scheme: scheme, Rep: rep, Streams: 1, Bytes: unit.Bytes(mbps * 1e6 / 8 * 100), Seconds: 100,
		SHA: true, Links: map[string]unit.Bytes{railLinkM: m, railLinkU: u}}
}

// TestRailRatios: the ratios are relative to the carriers of the same repetition, and a repetition
// without both does not count.
func TestRailRatios(t *testing.T) {
	d := Data{atSpeed: {
		railResult(railM, 0, 10, 1, 0), railResult(railU, 0, 5, 0, 1), railResult(railLIA, 0, 8, 9, 1),
		railResult(railM, 1, 4, 1, 0), railResult(railU, 1, 8, 0, 1), railResult(railLIA, 1, 6, 1, 9),
		railResult(railM, 2, 4, 1, 0), railResult(railLIA, 2, 6, 1, 9),
	}}
	got := d.railRatiosOf(atSpeed, railLIA)
	want := map[int]railRatios{0: {1.6, 0.8, 8.0 / 15}, 1: {1.5, 0.75, 0.5}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for rep, w := range want {
		g := got[rep]
		if math.Abs(g.poorer-w.poorer)+math.Abs(g.better-w.better)+math.Abs(g.total-w.total) > 1e-6 {
			t.Errorf("repetition %d: %+v, want %+v", rep, g, w)
		}
	}
	if v := d.Values(atSpeed, railLIA, balance); !slices.Equal(v, []float64{90, 90, 90}) {
		t.Errorf("balance %v", v)
	}
	// Alone, M carries two thirds in the first repetition and one third in the second.
	x, _ := d.resultOfRepetition(atSpeed, railLIA, 0)
	if v, ok := d.awayFromLinks(atSpeed, x); !ok || math.Abs(v-35) > 1e-6 {
		t.Errorf("%g %% away from the links' ratio, %v", v, ok)
	}
}

// TestRailVerdicts: MPTCP between the carriers alone has the published signs, and mpbond above both
// keeps its promises.
func TestRailVerdicts(t *testing.T) {
	r := rowH2MeanRates().withCellsForSeed(1)
	d := newData(r, h2Reps, func(_, scheme string) float64 {
		switch scheme {
		case railM:
			return 1
		case railU:
			return 2
		case railOurs, railOursUDP:
			return 0.6
		}
		return 1.5
	})
	outcomes, _ := r.EvaluatePoints(d)
	for _, o := range outcomes {
		if o.Verdict != Reproduced && o.Verdict != Exceeded {
			t.Errorf("%s: %s: %s", o.What, o.Text(o.Unit), o.Verdict)
		}
	}
}

// TestHandoffClasses: a download has the classes of the handoffs that overlap it, whatever the scheme.
func TestHandoffClasses(t *testing.T) {
	c := h1Cells()[1]
	rides, script, classes := c.drawCellRides(7), c.downloadScript(7, 2), c.classes(7)[2]
	seen := map[int]int{}
	for i, class := range classes {
		from := 2*h1Stride + script.Requests[i].At
		for carrier := range vary.Carriers {
			during := slices.ContainsFunc(rides[carrier].Handoffs, func(h vary.Handoff) bool {
				return h.From <= from && from < h.End()
			})
			if during && class&(1<<carrier) == 0 {
				t.Errorf("download %d begins in a handoff of carrier %d, and is of class %s", i, carrier, handoffClasses[class])
			}
		}
		seen[class]++
	}
	if len(classes) != h1Starts || seen[0] < h1Starts/2 || seen[1]+seen[2] == 0 {
		t.Errorf("%v", seen)
	}
}

// TestSmallFiles: times count by handoff class, and each is compared with the same download of the
// other schemes.
func TestSmallFiles(t *testing.T) {
	c := h1Cells()[1]
	by := c.classes(1)
	classes := by[0]
	session := func(scheme string, seconds func(class int) float64) lab.Result {
		l := &app.Log{Seconds: 1000}
		for i, r := range c.downloadScript(1, 0).Requests {
			start := r.At.Seconds()
			l.Requests = append(l.Requests, app.Outcome{Start: start, FirstByte: start, End: start + seconds(classes[i]),
				Down: r.Down})
		}
		return lab.Result{Scheme: scheme, Seconds: 1000, App: l}
	}
	d := Data{c.name: {
		session(railM, func(class int) float64 { return map[bool]float64{true: 4, false: 1}[class&1 > 0] }),
		session(railU, func(class int) float64 { return map[bool]float64{true: 8, false: 2}[class&2 > 0] }),
		session(railLIA, func(class int) float64 { return map[bool]float64{true: 2, false: 1}[class > 0] }),
	}}
	twice := 100 * math.Ln2
	for _, x := range []struct {
		others []string
		class  int
		want   float64
	}{{[]string{railM}, 1, -twice}, {[]string{railU}, 2, -2 * twice}, {[]string{railM, railU}, 1, 0},
		{[]string{railM, railU}, 2, twice}, {[]string{railM, railU}, 0, 0}} {
		v := c.timeChanges(d, by, railLIA, x.others, x.class)
		if len(v) == 0 || math.Abs(meanOfValues(v)-x.want) > 1e-6 {
			t.Errorf("class %s: %v, want %g", handoffClasses[x.class], v, x.want)
		}
	}
	if v := c.timeChanges(d, by, railLIA, []string{railM, railOLIA}); v != nil {
		t.Errorf("a scheme was not measured: %v", v)
	}
}

// TestRailNetworks: networks of all cells are valid, also of the drives.
func TestRailNetworks(t *testing.T) {
	for _, r := range []Row{rowH1SmallFiles(), rowH2MeanRates(), rowH8Drives()} {
		for _, c := range r.withCellsForSeed(3).Cells {
			top, err := c.Network(3)
			if err != nil {
				t.Fatalf("%s, %s: %v", r.ID, c.Name, err)
			}
			isAtRest := strings.HasPrefix(c.Name, "static")
			for _, name := range []string{railLinkM, railLinkU} {
				down := top.Link[name].Down
				if outages := len(down.Outages) > 0; r.ID != "h8" && outages == isAtRest {
					t.Errorf("%s, %s: outages of %s: %v", r.ID, c.Name, name, outages)
				}
			}
		}
	}
}

// TestHandoverFiles: a run whose clock goes back is omitted, handoffs are sorted, and what began before
// the run or belongs to no run does not count.
func TestHandoverFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if filepath.Ext(name) == ".gz" {
			z := gzip.NewWriter(&b)
			_, _ = z.Write([]byte(text))
			z.Close()
		} else {
			b.WriteString(text)
		}
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(handoverRateFile, "run,carrier,t_s,mbps,tech\na,att,0.0,1,x\na,att,1.0,2,x\na,vz,0.0,3,x\n"+
		"b,att,0.0,1,x\nb,att,5.0,1,x\nb,att,0.0,1,x\nb,vz,0.0,1,x\nc,att,0.0,1,x\n")
	write(handoverFile, "run,carrier,start_s,length_ms\na,att,2.5,40\na,att,0.5,60\na,att,-0.2,50\nz,vz,1,50\n")
	pairs, err := readHandoverRuns(dir)
	if err != nil || len(pairs) != 1 {
		t.Fatalf("%d runs, %v", len(pairs), err)
	}
	want := vary.Record{Rates: []unit.Rate{1e6, 2e6, 2e6}, Handoffs: []vary.Gap{{From: 500 * time.Millisecond,
		Length: 60 * time.Millisecond}, {From: 2500 * time.Millisecond, Length: 40 * time.Millisecond}}}
	if !reflect.DeepEqual(pairs[0][0], want) {
		t.Errorf("%+v, want %+v", pairs[0][0], want)
	}
	for _, bad := range []string{"run,carrier,start_s\n", "run,carrier,start_s,length_ms\na,att,x,40\n",
		"run,carrier,start_s,length_ms\na,o2,1,40\n", ""} {
		write(handoverFile, bad)
		if _, err := readHandoverRuns(dir); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestHandoverRuns reads recorded handoffs, and rejects files that are none.
func TestHandoverRuns(t *testing.T) {
	if pairs, err := bundledDriveRecords(); err != nil || vary.FactsOf(pairs).Handoffs < 50 {
		t.Errorf("%d drives, %v", len(pairs), err)
	}
	if _, err := readHandoverRuns(t.TempDir()); err == nil {
		t.Error("an empty directory has handoffs")
	}
	const dir = "../../../shared/data/traces"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no recordings in " + dir)
	}
	pairs, err := readHandoverRuns(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := vary.FactsOf(pairs)
	t.Logf("recordings in %s: %d runs, %+v", dir, len(pairs), f)
	if len(pairs) < 400 || f.MedianLength < 40*time.Millisecond || f.MedianLength > 80*time.Millisecond ||
		math.Abs(f.Interval.Seconds()-22) > 4 {
		t.Errorf("%+v", f)
	}
}

// TestCellReports: the modems of both links report once a second, in order, with what a modem can measure.
func TestCellReports(t *testing.T) {
	c := h1Cells()[0]
	reports := c.drawCellRides(7).cellReports()
	var at time.Duration
	seen := map[string]int{}
	for _, r := range reports {
		if r.At < at || !estimate.IsRSRP(*r.Cell.RSRPDBm) || !estimate.IsRSRP(*r.Cell.NeighbourRSRPDBm) ||
			r.Cell.Cell == "" || math.Abs(*r.Cell.SpeedKmh-300) > 1 {
			t.Fatalf("after %v: %+v", at, r)
		}
		at = r.At
		seen[r.Link]++
	}
	if n := int(at/time.Second) + 1; len(seen) != 2 || seen[railLinkM] != n || seen[railLinkU] != n {
		t.Errorf("%v reports within %v", seen, at)
	}
	r := rowH1SmallFiles().withCellsForSeed(7)
	p, err := r.buildCellRunSpec(r.Cells[0], Options{Seed: 7})
	if err != nil || len(p.Reports) != len(reports) {
		t.Errorf("%d of %d reports pass to the lab, %v", len(p.Reports), len(reports), err)
	}
}

// newHandshakeLog returns the handshakes of a cell that counts them, none of them delayed.
func newHandshakeLog(c Cell) *lab.HandshakeLog {
	if !c.Handshakes {
		return nil
	}
	log := &lab.HandshakeLog{Packets: 6}
	for i := range 50 {
		log.Connections = append(log.Connections, lab.ConnectionHandshake{At: float64(3 * i), Packets: 6, Took: 0.2})
	}
	return log
}

// newHeldLog returns the held bytes of a cell that has them.
func newHeldLog(c Cell, t float64) *lab.HeldLog {
	if !c.Held {
		return nil
	}
	return &lab.HeldLog{Step: 0.1, Bytes: []unit.Bytes{0, unit.Bytes(t * 1e6), 0}}
}
