// SPDX-License-Identifier: Apache-2.0

package census

import "math"

// histogram counts values in bins of equal width, or of equal ratios from low on. The last bin has
// all higher values too.
type histogram struct {
	low           float64 // lower end of the first bin
	step          float64 // bin width, or the logarithm of the ratio
	isLogarithmic bool
	isInteger     bool // values are integers
	bins          []int64
	count         int64
	sum           float64
	max           float64
}

// binsPerDecade is the number of logarithmic bins for each power of ten.
const binsPerDecade = 20

func newIntegerHistogram(most int) histogram {
	return histogram{step: 1, isInteger: true, bins: make([]int64, most+1)}
}

func newLinearHistogram(step float64, bins int) histogram {
	return histogram{step: step, bins: make([]int64, bins)}
}

func newLogHistogram(low float64, decades int) histogram {
	return histogram{low: low, step: math.Ln10 / binsPerDecade, isLogarithmic: true,
		bins: make([]int64, binsPerDecade*decades)}
}

// newLogIntegerHistogram returns a histogram of integers from 1 on.
func newLogIntegerHistogram(decades int) histogram {
	s := newLogHistogram(0.95, decades)
	s.isInteger = true
	return s
}

// countValueInBin counts a value. The first and last bins take what lies beyond them.
func (s *histogram) countValueInBin(v float64) {
	i := 0
	switch {
	case !s.isLogarithmic:
		i = int(v / s.step)
	case v > s.low:
		i = int(math.Log(v/s.low) / s.step)
	}
	s.bins[min(max(i, 0), len(s.bins)-1)]++
	s.count++
	s.sum += v
	s.max = max(s.max, v)
}

// binRepresentative returns the representative of bin i: its upper end, or the greatest integer
// below it.
func (s *histogram) binRepresentative(i int) float64 {
	v := float64(i+1) * s.step
	if s.isLogarithmic {
		v = s.low * math.Exp(v)
	}
	if s.isInteger {
		v = math.Ceil(v) - 1
	}
	return min(v, s.max)
}

// Distribution is the distribution of values.
type Distribution struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	Max   float64 `json:"max"`
	// CDF has values with the part of all that do not exceed them.
	CDF []Point `json:"cdf,omitempty"`
}

// Point is one point of a CDF.
type Point struct {
	Value float64 `json:"value"`
	Part  float64 `json:"part"`
}

// distribution returns the distribution of all values, by the values of the bins.
func (s *histogram) distribution() Distribution {
	d := Distribution{Count: s.count}
	if s.count == 0 {
		return d
	}
	d.Mean, d.Max = s.sum/float64(s.count), s.max
	sum := int64(0)
	for i, n := range s.bins {
		if n == 0 {
			continue
		}
		v := s.binRepresentative(i)
		if i == len(s.bins)-1 {
			v = s.max
		}
		before := sum
		sum += n
		for _, q := range []struct {
			part float64
			to   *float64
		}{{0.5, &d.P50}, {0.95, &d.P95}} {
			if at := q.part * float64(s.count); float64(before) < at && at <= float64(sum) {
				*q.to = v
			}
		}
		d.CDF = append(d.CDF, Point{v, float64(sum) / float64(s.count)})
	}
	return d
}
