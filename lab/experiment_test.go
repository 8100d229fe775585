// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"slices"
	"testing"
)

// A virtual experiment makes each repetition once, except skipped ones. An estimate counts
// processors.
func TestComputed(t *testing.T) {
	p := RunSpec{Schemes: []string{"a", "b"}, Reps: 7, RepsByScheme: map[string]int{"b": 2}}
	e := NewVirtualExperiment("x", p, 1e9, func(scheme string, rep int) Result { return Result{Seconds: float64(rep)} })
	if e.Check() != nil || e.Expected != 9e9 || e.TransferTime("a") != 1e9 {
		t.Errorf("%v, %v", e.Expected, e.Check())
	}
	if got := (Jobs{Max: 1}).Estimate([]Experiment{e, e}, func(int) float64 { return 0.5 }); got != 9e9 {
		t.Errorf("half of two takes %v", got)
	}
	var made [2][]transferID
	ended := 0
	RunAll(t.Context(), []Experiment{e, e}, NewJobs(0), func(i int, s string, rep int) bool {
		return i == 1 && s == "a" && rep < 6
	}, Events{
		RoundBegan: func(int) {},
		Result: func(i int, r Result) {
			if r.Seconds != float64(r.Rep) || r.Disturbed || r.Error != "" {
				t.Errorf("%+v", r)
			}
			made[i] = append(made[i], transferID{r.Scheme, r.Rep})
		},
		RoundEnded: func(_ int, err error, last bool) {
			if err != nil {
				t.Error(err)
			}
			if last {
				ended++
			}
		},
	})
	want := []transferID{{"a", 0}, {"b", 0}, {"a", 1}, {"b", 1}, {"a", 2}, {"a", 3}, {"a", 4}, {"a", 5}, {"a", 6}}
	if !slices.Equal(made[0], want) || !slices.Equal(made[1], []transferID{{"b", 0}, {"b", 1}, {"a", 6}}) ||
		ended != 2 {
		t.Errorf("%v, %d ended", made, ended)
	}
}
