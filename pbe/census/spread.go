package census

import "math"

// spread counts values in bins, of equal steps, or of equal ratios from low on. What
// is over the last bin counts there.
type spread struct {
	low   float64 // lower end of the first bin
	step  float64 // width, or of ratios the logarithm of one
	ratio bool
	whole bool // values are whole numbers
	bins  []int64
	n     int64
	sum   float64
	most  float64
}

// perDecade is how many bins of ratios there are for each power of ten.
const perDecade = 20

func numbers(most int) spread { return spread{step: 1, whole: true, bins: make([]int64, most+1)} }

func steps(step float64, bins int) spread { return spread{step: step, bins: make([]int64, bins)} }

func ratios(low float64, decades int) spread {
	return spread{low: low, step: math.Ln10 / perDecade, ratio: true, bins: make([]int64, perDecade*decades)}
}

// wide is for whole numbers from 1 on.
func wide(decades int) spread {
	s := ratios(0.95, decades)
	s.whole = true
	return s
}

func (s *spread) add(v float64) {
	i := 0
	switch {
	case !s.ratio:
		i = int(v / s.step)
	case v > s.low:
		i = int(math.Log(v/s.low) / s.step)
	}
	s.bins[min(max(i, 0), len(s.bins)-1)]++
	s.n++
	s.sum += v
	s.most = max(s.most, v)
}

// value stands for bin i: its upper end, or the greatest whole number under it.
func (s *spread) value(i int) float64 {
	v := float64(i+1) * s.step
	if s.ratio {
		v = s.low * math.Exp(v)
	}
	if s.whole {
		v = math.Ceil(v) - 1
	}
	return min(v, s.most)
}

// Distribution is how values are spread.
type Distribution struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	Max   float64 `json:"max"`
	// CDF are values with the part of all that is not over them.
	CDF []Point `json:"cdf,omitempty"`
}

// Point is one of a CDF.
type Point struct {
	Value float64 `json:"value"`
	Part  float64 `json:"part"`
}

func (s *spread) distribution() Distribution {
	d := Distribution{Count: s.n}
	if s.n == 0 {
		return d
	}
	d.Mean, d.Max = s.sum/float64(s.n), s.most
	sum := int64(0)
	for i, n := range s.bins {
		if n == 0 {
			continue
		}
		v := s.value(i)
		if i == len(s.bins)-1 {
			v = s.most
		}
		before := sum
		sum += n
		for _, q := range []struct {
			part float64
			to   *float64
		}{{0.5, &d.P50}, {0.95, &d.P95}} {
			if at := q.part * float64(s.n); float64(before) < at && at <= float64(sum) {
				*q.to = v
			}
		}
		d.CDF = append(d.CDF, Point{v, float64(sum) / float64(s.n)})
	}
	return d
}
