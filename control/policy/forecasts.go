// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math"
	"slices"
	"time"

	"mpbond/base/unit"
)

// TransferTime returns how long the allowed subflows are expected to need for n bytes, from the
// arrival of the first byte to that of the last one.
func TransferTime(subflows []Subflow, n unit.Bytes) time.Duration {
	first := maxFinish
	for i := range subflows {
		if s := &subflows[i]; s.Allowed {
			first = min(first, s.totalDelay())
		}
	}
	if first == maxFinish {
		return 0
	}
	return max(0, jointFinishTime(subflows, n)-first)
}

// Forecast compares the expected time of the rest of an answer with the measured one.
type Forecast struct {
	At             time.Time  // when the transfer ended
	Bytes          unit.Bytes // of the rest
	Expected, Took time.Duration
	Subflows       int // number of subflows that it could use
}

// leastForecastTime is the shortest time that errors are relative to: what nobody notices.
const leastForecastTime = 10 * time.Millisecond

// RelativeError returns the error of the forecast, relative to the measured time.
func (f Forecast) RelativeError() float64 {
	return math.Abs(float64(f.Expected-f.Took)) / float64(max(f.Took, leastForecastTime))
}

// maxForecasts is how many forecasts are kept.
const maxForecasts = 200

// Forecasts holds the latest forecasts. The zero value is empty.
type Forecasts struct {
	list []Forecast // a ring, if it is full
	next int
}

// AddForecast adds a forecast, in place of the oldest one if there are maxForecasts.
func (f *Forecasts) AddForecast(x Forecast) {
	if len(f.list) < maxForecasts {
		f.list = append(f.list, x)
		return
	}
	f.list[f.next] = x
	f.next = (f.next + 1) % maxForecasts
}

// ListForecasts returns the forecasts, the newest first.
func (f *Forecasts) ListForecasts() (all []Forecast) {
	all = slices.Concat(f.list[f.next:], f.list[:f.next])
	slices.Reverse(all)
	return all
}

// MedianError returns the median error of the forecasts; ok is false if there are none.
func (f *Forecasts) MedianError() (e float64, ok bool) {
	if len(f.list) == 0 {
		return 0, false
	}
	var errs []float64
	for _, x := range f.list {
		errs = append(errs, x.RelativeError())
	}
	slices.Sort(errs)
	return errs[len(errs)/2], true
}
