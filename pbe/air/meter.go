package air

import "math"

// levelMeter measures samples as they come: one in eight, as all of them would take as long
// as to transform those that are looked at.
type levelMeter struct {
	n      int64
	power  float64
	peak   float32 // the largest part of a sample
	atPeak int64   // samples with a part as large
}

func (m *levelMeter) addSamples(samples []complex64) {
	top, at, power := m.peak, m.atPeak, 0.0
	for i := 0; i < len(samples); i += 8 {
		s := samples[i]
		m.n++
		re, im := abs(real(s)), abs(imag(s))
		v := max(re, im)
		if !(v <= math.MaxFloat32) { // no number
			continue
		}
		power += float64(re)*float64(re) + float64(im)*float64(im)
		switch {
		case v > top*(1+1e-6):
			top, at = v, 1
		case v >= top*(1-1e-6):
			at++
		}
	}
	m.peak, m.atPeak, m.power = top, at, m.power+power
}

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// levelDB is the power in dB of 1.
func (m *levelMeter) levelDB() float64 {
	return 10 * math.Log10(max(m.power/float64(max(m.n, 1)), 1e-30))
}

// clippedPart is the part of samples that are as large as any is. Of noise one in many
// thousands is; where more are, a converter had no larger values.
func (m *levelMeter) clippedPart() float64 {
	if m.peak == 0 || m.n == 0 {
		return 0
	}
	return float64(m.atPeak) / float64(m.n)
}
