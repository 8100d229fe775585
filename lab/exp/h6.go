// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"time"

	"mpbond/lab/vary"
	"mpbond/lab/virtual/network"
)

// Figures of row h6.
const (
	h6Noticed   = "stalls noticed within 0.35 s"
	h6NoticedAt = "time until a stall is noticed, median"
	h6Back      = "time until a link carries again, median"
	h6Back95    = "time until a link carries again, 95 % point"
	h6Gap       = "longest gap at the app around a stall, 95 % point"
	h6False     = "false alarms in 10 min"
)

const (
	h6Trains  = 6 // of a repetition
	h6Length  = 2 * time.Minute
	h6InTime  = 350 * time.Millisecond
	h6AtRest  = "at rest"
	h6Plain   = "train, without forecasts"
	h6Foresee = "train, with forecasts"
)

// rowH6Detection measures how soon a bond notices that a link stalls, and that it works again.
func rowH6Detection() Row {
	r := newRailRow("h6", "stalls noticed", fmt.Sprintf("Computed in virtual time: one download over the real core on %d "+
		"journeys of %v in each repetition, one at rest. A stall is a time of at least %v in which a link carries nothing. "+
		"Those count in which the other link works, and that began with bytes in flight. A stall is noticed when the sender "+
		"calls the subflow silent. The link carries again when bytes that were sent over it afterwards are acknowledged. "+
		"Gaps are those around stalls.", h6Trains, h6Length, network.LeastStall))
	r.Judged = h0Scheme
	r.Metrics = []Metric{modelMetric(h6Noticed, "%", true), modelMetric(h6NoticedAt, "s", false),
		modelMetric(h6Back, "s", false), modelMetric(h6Back95, "s", false), modelMetric(h6Gap, "s", false),
		modelMetric(h6False, "", false)}
	for _, x := range []struct {
		name   string
		travel vary.Travel
		trains int
		hints  bool
	}{{h6Plain, vary.HighSpeedTrain, h6Trains, false}, {h6Foresee, vary.HighSpeedTrain, h6Trains, true},
		{h6AtRest, vary.Parked, 1, false}} {
		r.Cells = append(r.Cells, Cell{Name: x.name, Schemes: []string{h0Scheme}, Reps: 5, MaxReps: 5, Quick: 1,
			Compute: func(o Options, rep int) (map[string]float64, error) {
				trains := x.trains
				if o.Quick {
					trains = 1
				}
				return h6Figures(x.travel, x.hints, (o.Seed+3)*1_000_000+uint64(rep*h6Trains), trains)
			}})
	}
	for _, x := range []struct {
		cell, figure, unit string
		limit              float64
		aim                Aim
	}{
		{h6Plain, h6Noticed, "%", 95, AimAtLeast}, {h6Foresee, h6Noticed, "%", 95, AimAtLeast},
		{h6Plain, h6Back, "s", 0.5, AimAtMost}, {h6Plain, h6Back95, "s", 1.2, AimAtMost},
		{h6Plain, h6Gap, "s", 0.35, AimAtMost}, {h6Foresee, h6Gap, "s", 0.25, AimAtMost},
		{h6AtRest, h6False, "", 1, AimAtMost},
	} {
		r.Points = append(r.Points, railLimit(x.cell+": "+x.figure, x.unit, x.limit, x.aim, func(d Data) []float64 {
			return d.Values(x.cell, h0Scheme, modelMetric(x.figure, x.unit, false))
		}))
	}
	return r
}

// h6Figures computes the figures of journeys with seeds from first on.
func h6Figures(travel vary.Travel, hints bool, first uint64, trains int) (map[string]float64, error) {
	var noticed, back, gaps []float64
	inTime, alarms, took := 0.0, 0.0, 0.0
	for seed := first; seed < first+uint64(trains); seed++ {
		train := network.NewTrain(seed, travel, h6Length)
		var forecasts []network.Hint
		if hints {
			forecasts = train.Forecasts()
		}
		rep, failed := train.DownloadOverStalls("auto", forecasts)
		if failed != "" {
			return nil, fmt.Errorf("train %d: %s", seed, failed)
		}
		alarms, took = alarms+float64(rep.FalseAlarms), took+rep.Took.Seconds()
		for _, s := range rep.Stalls {
			back, gaps = append(back, s.Back.Seconds()), append(gaps, s.Gap.Seconds())
			if s.Noticed >= 0 {
				noticed = append(noticed, s.Noticed.Seconds())
			}
			if s.Noticed >= 0 && s.Noticed <= h6InTime {
				inTime++
			}
		}
	}
	all := map[string]float64{h6False: alarms * (10 * time.Minute).Seconds() / took}
	if len(back) == 0 {
		return all, nil
	}
	all[h6Noticed] = 100 * inTime / float64(len(back))
	for name, x := range map[string]struct {
		values []float64
		share  float64
	}{h6NoticedAt: {noticed, 0.5}, h6Back: {back, 0.5}, h6Back95: {back, 0.95}, h6Gap: {gaps, 0.95}} {
		if len(x.values) > 0 {
			all[name] = percentile{share: x.share}.quantileOfSamples(x.values)
		}
	}
	return all, nil
}
