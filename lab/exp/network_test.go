// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"strings"
	"testing"

	"mpbond/lab"
)

// Rows of random networks have their cells by the seed of the run, and a short form of two
// networks.
func TestNetworkRows(t *testing.T) {
	quick := 0
	for _, r := range NetworkRows() {
		if len(r.Cells) != 0 || r.ID == "" || !r.IsNetwork || len(r.Points) == 0 {
			t.Errorf("%+v", r)
		}
		some, err := r.Experiments(Options{Quick: true, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		quick += len(some)
		for _, e := range some {
			if !strings.HasSuffix(e.Name, "/3000") || e.TransferCount() != len(e.Spec.Schemes) || len(e.Spec.Schemes) < 7 {
				t.Errorf("%s: %d transfers of %v", e.Name, e.TransferCount(), e.Spec.Schemes)
			}
		}
		if other := r.withCellsForSeed(4); len(other.Cells) != len(r.withCellsForSeed(3).Cells) ||
			!strings.HasSuffix(other.Cells[0].Name,
				"/4000") {
			t.Errorf("%s: %d cells", r.ID, len(other.Cells))
		}
	}
	if quick != 2 {
		t.Errorf("the short form has %d networks", quick)
	}
}

// objectResult returns a transfer of three objects.
func objectResult(scheme string, cold, warm float64) lab.Result {
	return lab.Result{Scheme: scheme, Bytes: 3e6, Streams: 1, Seconds: cold + 2*warm, Objects: &lab.ObjectTimes{Cold: cold,
		Warm: warm, ColdBound: 1, WarmBound: 0.9}, Duplicate: 30_000, LongestGap: 0.2}
}

// Cold and warm objects are evaluated apart, beside the best single path and kernel MPTCP, and the
// worst network comes with the command that replays it.
func TestNetworkTables(t *testing.T) {
	d := Data{
		"down/1": {objectResult(Product, 1.1, 1), objectResult(mptcp, 2, 0.9), objectResult("single", 2, 1.5),
			objectResult("single:helper1", 1.2, 1.2)},
		"down/2": {objectResult(Product, 1.5, 1), objectResult(mptcp, 1.4, 1.1), objectResult("single", 1.205, 1.2)},
	}
	d["down/2"] = append(d["down/2"], lab.Result{Scheme: Product, Seconds: 99, Disturbed: true},
		lab.Result{Scheme: Product + ":ecf", Error: "it took too long"})
	if got := failedNetworks(d, Product+":ecf"); got != "down/2" || failedNetworks(d, Product) != "" {
		t.Errorf("failed in %q", got)
	}
	cases := networkCases(d)
	if len(cases) != 4 || cases[0].network != "down/1" || cases[0].class != "cold" || cases[3].class != "warm" ||
		cases[1].bound != 0.9 {
		t.Fatalf("%+v", cases)
	}
	if best, ok := cases[0].bestSingle(); !ok || best != 1.2 {
		t.Errorf("best single path %v %v", best, ok)
	}
	points := networkPoints(lab.RandomDown)
	var got []float64
	for _, p := range points {
		got = append(got, p.evaluatePoint(d).Mean)
	}
	// 3 of 4 are at most 3 % slower than the best single path, and 10 %; 2 not slower than mptcp.
	for i, want := range []float64{75, 75, 50, 100} {
		if got[i] != want {
			t.Errorf("%s: %v, not %v", points[i].What, got[i], want)
		}
	}
	tables := networkTables(Record{Results: d})
	worst := tables[len(tables)-1]
	if len(worst.Rows) != 4 || worst.Rows[0][0] != "down/2" || worst.Rows[0][1] != "cold" || worst.Rows[0][6] != "1.241" ||
		!strings.Contains(worst.Rows[0][7], "--network down/2 ") {
		t.Errorf("%v", worst.Rows)
	}
	for _, table := range tables {
		for _, row := range table.Rows {
			if len(row) != len(table.Head) {
				t.Errorf("%s: %d cells below %d heads", table.Title, len(row), len(table.Head))
			}
		}
	}
}
