// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Stat summarises one metric.
type Stat struct {
	N     int     `json:"n"`
	Mean  float64 `json:"mean"`
	Sigma float64 `json:"sigma"` // of the sample; 0 with less than two values
	// Half is half the width of the 95 % confidence interval of the mean (Student's t), 0 with less
	// than two values.
	Half float64 `json:"half_interval95"`
}

// Summarize summarises values.
func Summarize(values []float64) (s Stat) {
	s.N = len(values)
	switch s.N {
	case 0:
		return s
	case 1:
		s.Mean = values[0]
		return s
	}
	s.Mean, s.Sigma = stat.MeanStdDev(values, nil)
	t := distuv.StudentsT{Sigma: 1, Nu: float64(s.N - 1)}.Quantile(0.975)
	s.Half = t * s.Sigma / math.Sqrt(float64(s.N))
	return s
}

// confidenceInterval returns the confidence interval; with less than two values it is unbounded.
func (s Stat) confidenceInterval() (low, high float64) {
	if s.N < 2 {
		return math.Inf(-1), math.Inf(1)
	}
	return s.Mean - s.Half, s.Mean + s.Half
}

// Text returns the mean and half the interval, in a unit.
func (s Stat) Text(unit string) string {
	switch s.N {
	case 0:
		return ""
	case 1:
		return formatNumber(s.Mean, unit) + " " + unit
	}
	return formatNumber(s.Mean, unit) + " ± " + formatNumber(s.Half, unit) + " " + unit
}

// sigmaText returns σ, empty with less than two values.
func (s Stat) sigmaText(unit string) string {
	if s.N < 2 {
		return ""
	}
	return formatNumber(s.Sigma, unit)
}

// formatNumber formats a value with the decimals of its unit.
func formatNumber(v float64, unit string) string {
	if unit == "%" {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
