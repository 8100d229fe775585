// SPDX-License-Identifier: Apache-2.0

package air

import "math"

// levelMeter measures the level of one in eight samples: all of them would take as long as
// demodulation.
type levelMeter struct {
	n      int64
	power  float64
	peak   float32 // largest absolute I or Q
	atPeak int64   // samples that reach it
}

// addSamples adds the peak and the power of every eighth sample.
func (m *levelMeter) addSamples(samples []complex64) {
	top, at, power := m.peak, m.atPeak, 0.0
	for i := 0; i < len(samples); i += 8 {
		s := samples[i]
		m.n++
		re, im := absFloat32(real(s)), absFloat32(imag(s))
		v := max(re, im)
		if !(v <= math.MaxFloat32) { // NaN or infinite
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

func absFloat32(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// meanPowerDB returns the mean power in dB relative to 1.
func (m *levelMeter) meanPowerDB() float64 {
	return 10 * math.Log10(max(m.power/float64(max(m.n, 1)), 1e-30))
}

// clippedPart returns the part of samples that reach the peak. In noise one in many thousands does;
// more mean that a converter has no larger values.
func (m *levelMeter) clippedPart() float64 {
	if m.peak == 0 || m.n == 0 {
		return 0
	}
	return float64(m.atPeak) / float64(m.n)
}
