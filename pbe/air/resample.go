// SPDX-License-Identifier: Apache-2.0

package air

import (
	"fmt"
	"math"
	"slices"

	"mpbond/base/fault"
	"mpbond/pbe/lte"
)

// minSampleRate is the least rate of samples: six resource blocks take 1.08 MHz, and filters need some room.
const minSampleRate = 1_400_000

// receiverRate returns the rate at which samples of a rate are decoded: the next one of LTE.
func receiverRate(rate int) (int, error) {
	sorted := slices.Sorted(slices.Values(lteRates))
	i, _ := slices.BinarySearch(sorted, rate)
	if rate < minSampleRate || i == len(sorted) {
		return 0, fault.New(fault.Usage, fmt.Errorf("unsupported rate of %d samples per second", rate),
			"use 1.4 to 30.72 million samples per second: at least the width of the cell's resource blocks, 0.18 MHz each")
	}
	return sorted[i], nil
}

// newReceiver returns a receiver of samples of a rate, and what converts them.
func newReceiver(rate int) (*lte.Receiver, *resampler, error) {
	to, err := receiverRate(rate)
	if err != nil {
		return nil, nil, err
	}
	r, err := lte.NewReceiver(to)
	if err != nil {
		return nil, nil, err
	}
	r.Bandwidth = rate
	return r, newResampler(rate, to), nil
}

// Interpolation: of 2·halfTaps samples, at one of maxPhases positions between two of them.
const (
	halfTaps  = 12
	maxPhases = 4096
)

// resampler raises the rate of samples, by windowed-sinc interpolation. What is above the input's band is not
// suppressed: no cell is there. One that does not change the rate passes samples on.
type resampler struct {
	in, out int // in the same ratio as the rates, without common factor
	phases  [][2 * halfTaps]float32
	recent  []complex64 // input from the first sample that is still needed
	phase   int         // of the next output after recent[halfTaps-1], in units of 1/out input samples
}

func newResampler(in, out int) *resampler {
	a, b := in, out
	for b != 0 {
		a, b = b, a%b
	}
	r := &resampler{in: in / a, out: out / a}
	if r.in == r.out {
		return r
	}
	r.phases = make([][2 * halfTaps]float32, min(r.out, maxPhases))
	for p := range r.phases {
		at := float64(p) / float64(len(r.phases))
		for j := range r.phases[p] {
			x := float64(j-halfTaps+1) - at
			w := 0.5 + 0.5*math.Cos(math.Pi*x/halfTaps)
			if x != 0 {
				w *= math.Sin(math.Pi*x) / (math.Pi * x)
			}
			r.phases[p][j] = float32(w)
		}
	}
	r.restart()
	return r
}

// restart begins anew, after a gap.
func (r *resampler) restart() {
	r.recent, r.phase = append(r.recent[:0], make([]complex64, halfTaps-1)...), 0
}

// outputSamples returns how many samples of output last as long as so many of input.
func (r *resampler) outputSamples(n int64) int64 { return scaleCount(n, int64(r.out), int64(r.in)) }

// inputSamples returns how many samples of input last as long as so many of output.
func (r *resampler) inputSamples(n int64) int64 { return scaleCount(n, int64(r.in), int64(r.out)) }

// scaleCount returns n·a/b without overflow.
func scaleCount(n, a, b int64) int64 { return n/b*a + n%b*a/b }

// appendRest appends the output for what was put in, and begins anew: samples are missing from here on.
func (r *resampler) appendRest(out []complex64) []complex64 {
	if r.in == r.out {
		return out
	}
	out = r.appendResampled(out, make([]complex64, halfTaps))
	r.restart()
	return out
}

// appendResampled appends the output for the next samples, halfTaps samples late. Without a change of rate it
// appends the samples.
func (r *resampler) appendResampled(out, samples []complex64) []complex64 {
	if r.in == r.out {
		return append(out, samples...)
	}
	r.recent = append(r.recent, samples...)
	from := 0
	for ; from+2*halfTaps <= len(r.recent); from += r.phase / r.out {
		r.phase %= r.out
		taps := &r.phases[r.phase*len(r.phases)/r.out]
		var re, im float32
		for j, s := range r.recent[from : from+2*halfTaps] {
			re += taps[j] * real(s)
			im += taps[j] * imag(s)
		}
		out = append(out, complex(re, im))
		r.phase += r.in
	}
	r.phase %= r.out
	r.recent = r.recent[:copy(r.recent, r.recent[from:])]
	return out
}

// swapIQ exchanges I and Q, in place.
func swapIQ(samples []complex64) {
	for i, s := range samples {
		samples[i] = complex(imag(s), real(s))
	}
}
