// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/vary"
	"mpbond/lab/virtual/network"
)

// Parameters of row h9.
const (
	h9Trains  = 8 // of a repetition
	h9Length  = 2 * time.Minute
	h9Objects = 40
	h9Bulk    = 20 * unit.MB
)

// rowH9WrongHints compares downloads on trains whose modems are wrong with those without hints.
func rowH9WrongHints() Row {
	r := newRailRow("h9", "wrong hints", fmt.Sprintf("Computed in virtual time: the real core on %d trains in each "+
		"repetition, with %d downloads of each size, or one of %v, and modems that are right or wrong about their signals: "+
		"shuffled in time, serving cell and neighbour swapped, always or never those before a handoff, or no neighbour. "+
		"All figures are relative to the same downloads without hints.", h9Trains, h9Objects, h9Bulk))
	r.Judged = h0Scheme
	for _, how := range network.Distortions {
		r.Metrics = append(r.Metrics, modelMetric(h9Name("mean time", how), "%", false),
			modelMetric(h9Name("95 % point", how), "%", false))
	}
	for _, size := range []unit.Bytes{16 * unit.KB, 128 * unit.KB, 512 * unit.KB, h9Bulk} {
		name := fmt.Sprintf("%v", size)
		r.Cells = append(r.Cells, Cell{Name: name, Schemes: []string{h0Scheme}, Reps: 5, MaxReps: 5, Quick: 1,
			Compute: func(o Options, rep int) (map[string]float64, error) { return h9Figures(o, rep, size) }})
		for _, how := range network.Distortions {
			figure, limit := h9Name("95 % point", how), 3.0
			if size == h9Bulk {
				figure, limit = h9Name("mean time", how), 1
			}
			r.Points = append(r.Points, railLimit(name+": "+figure, "%", limit, AimAtMost, func(d Data) []float64 {
				return d.Values(name, h0Scheme, modelMetric(figure, "%", false))
			}))
		}
	}
	return r
}

// h9Name names a figure of modems that are wrong in a way.
func h9Name(figure, how string) string {
	if how == "" {
		how = "right"
	}
	return figure + ", signals " + how
}

// h9Figures computes the figures of a repetition.
func h9Figures(o Options, rep int, size unit.Bytes) (map[string]float64, error) {
	w := &network.Workload{Size: size, Streams: 1, Objects: h9Objects, Pause: 2300 * time.Millisecond}
	if size == h9Bulk {
		w.Objects = 1
	}
	trains := h9Trains
	if o.Quick {
		trains = 1
	}
	times := func(how string, hints bool) (all []time.Duration, err error) {
		for i := range trains {
			train := network.NewTrain((o.Seed+2)*1_000_000+uint64(rep*h9Trains+i), vary.HighSpeedTrain, h9Length)
			train.Distort(how)
			options := network.Options{Control: "cubic", Finished: func(took time.Duration) { all = append(all, took) }}
			if hints {
				options.Hints = train.Forecasts()
			}
			if r := network.RunBond(train.Network, "auto", w, options); r.Err != "" {
				return nil, fmt.Errorf("train %d: %s", train.Network.Seed, r.Err)
			}
		}
		return all, nil
	}
	base, err := times("", false)
	figures := map[string]float64{}
	for _, how := range network.Distortions {
		if err != nil {
			return nil, err
		}
		var ours []time.Duration
		ours, err = times(how, true)
		figures[h9Name("mean time", how)] = changeOfTimes(ours, base, func(v []time.Duration) (sum time.Duration) {
			for _, x := range v {
				sum += x
			}
			return sum
		})
		figures[h9Name("95 % point", how)] = changeOfTimes(ours, base, func(v []time.Duration) time.Duration {
			slices.Sort(v)
			return v[len(v)*95/100]
		})
	}
	return figures, err
}

// changeOfTimes returns by how many percent a figure of times is greater than that of others; 0 without
// times.
func changeOfTimes(ours, base []time.Duration, figure func([]time.Duration) time.Duration) float64 {
	if len(ours) == 0 || len(base) == 0 {
		return 0
	}
	return 100 * (float64(figure(ours))/float64(figure(base)) - 1)
}
