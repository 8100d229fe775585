// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"math"
	"slices"
	"time"

	"mpbond/lab/radio"
)

// Limits for the errors of forecasts, in percent of the measured time.
const (
	medianForecastError = 15.0
	tailForecastError   = 40.0 // of nine in ten forecasts
)

// rowS12Forecasts compares what mpbond expected of the answers of rows s1 to s8 and s11 with what
// came.
func rowS12Forecasts(set radio.Set) Row {
	r := Row{ID: "s12", Title: "Smartphone, WiFi and LTE: forecasts of mpbond", Source: phonePaper, Judged: phoneOurs,
		Study: PhoneRows, isUnpublished: true,
		Setup: "Computed from the transfers of rows s1 to s8 and s11. When the " +
			"first 16 KB of an answer have arrived, mpbond forecasts how long the rest will take over the subflows that " +
			"the answer may use. Answers with at least 16 KB left count. The error is relative to the measured time, " +
			"of at least 10 ms.",
		NotCovered: "uploads, whose end the primary does not see; the limits are our requirements",
		Metrics:    []Metric{Time}, tables: forecastTable}
	for _, a := range phoneApps() {
		r.recounts = append(r.recounts, a.row)
	}
	r.recounts = append(r.recounts, "s11")
	for _, x := range []struct {
		what  string
		share float64
		limit float64
	}{{"median error of forecasts", .5, medianForecastError}, {"error of nine in ten forecasts", .9, tailForecastError}} {
		r.Points = append(r.Points, Point{What: x.what, Unit: "%", Low: x.limit, High: x.limit, IsLimit: true, Aim: AimAtMost,
			PublishedText: fmt.Sprintf("at most %g %% (claimed)", x.limit), Of: func(d Data) []float64 {
				errs := d.forecastErrors(func(string) bool { return true })
				if len(errs) == 0 {
					return nil
				}
				return []float64{percentile{share: x.share}.quantileOfSamples(errs)}
			}})
	}
	return r
}

// forecastErrors returns the errors of the forecasts in some cells, in percent.
func (d Data) forecastErrors(among func(cell string) bool) (all []float64) {
	for _, cell := range sortedCells(d) {
		if !among(cell) {
			continue
		}
		for _, r := range d.countedResults(cell, phoneOurs) {
			for _, f := range r.Forecasts {
				all = append(all, 100*math.Abs(f.ExpectedSeconds-f.Seconds)/max(f.Seconds, (10*time.Millisecond).Seconds()))
			}
		}
	}
	return all
}

// forecastTable has a row for each row whose forecasts were compared.
func forecastTable(rec Record) []Table {
	t := Table{Title: "Errors of forecasts", Head: []string{"row", "forecasts", "median", "90th percentile"}}
	var rows []string
	for _, a := range phoneApps() {
		rows = append(rows, a.row)
	}
	for _, id := range slices.Concat(rows, []string{"s11"}) {
		errs := rec.Results.forecastErrors(func(cell string) bool { return isRecountedFrom(cell, id) })
		if len(errs) == 0 {
			continue
		}
		t.Add(id, fmt.Sprint(len(errs)), fmt.Sprintf("%.0f %%", percentile{share: .5}.quantileOfSamples(errs)),
			fmt.Sprintf("%.0f %%", percentile{share: .9}.quantileOfSamples(errs)))
	}
	return []Table{t}
}
