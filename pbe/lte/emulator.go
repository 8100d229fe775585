// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
)

// Channel is a radio channel between a Transmitter and a receiver: the multipath taps of each port,
// a carrier frequency offset, and noise.
type Channel struct {
	// Taps are those of each port; none means one tap of gain 1.
	Taps [2][]Tap
	// Offset is the carrier frequency offset in Hz.
	Offset float64
	// SNR is the power of a full element over that of the noise, in dB.
	SNR float64
}

// Tap is one propagation path.
type Tap struct {
	Delay   float64 // seconds, at most the prefix (4.7 µs)
	Gain    complex128
	Doppler float64 // Hz
}

// epaProfile is 3GPP's Extended Pedestrian A model (36.101 table B.2.1-2).
var epaProfile = [...]struct{ ns, dB float64 }{{0, 0}, {30, -1}, {70, -2}, {90, -3}, {110, -8}, {190, -17.2},
	{410, -20.8}}

// NewEPAChannel returns a channel with 3GPP's pedestrian profile. Each tap has a random Doppler
// shift of at most doppler Hz, which is not the model's spectrum. The mean power is 1.
func NewEPAChannel(doppler, offset, snr float64, seed uint64) Channel {
	rnd := rand.New(rand.NewPCG(seed, 8))
	c := Channel{Offset: offset, SNR: snr}
	var sum float64
	for _, w := range epaProfile {
		sum += math.Pow(10, w.dB/10)
	}
	for p := range c.Taps {
		for _, w := range epaProfile {
			c.Taps[p] = append(c.Taps[p], Tap{Delay: w.ns * 1e-9,
				Gain:    cmplx.Rect(math.Sqrt(math.Pow(10, w.dB/10)/sum), 2*math.Pi*rnd.Float64()),
				Doppler: doppler * math.Cos(2*math.Pi*rnd.Float64())})
		}
	}
	return c
}

// noiseTableLen is the number of precomputed noise values. Each subframe adds a random section of
// them: drawing all values would take longer than everything else.
const noiseTableLen = 1 << 17

// channelEmulator applies a Channel to a signal. It computes the response at the ends of each slot
// and interpolates linearly between them.
type channelEmulator struct {
	Channel
	cell          Cell
	fftSize       int
	rnd           *rand.Rand
	noise         []complex64
	carrierPhases []complex64 // rotation by the carrier offset, by sample of a subframe
	// slotStart and slotEnd are the responses of the ports at both ends of the slot.
	slotStart, slotEnd [2][]complex128
	slot               int64 // number of the slot that begins at slotEnd
}

func newChannelEmulator(ch Channel, c Cell, size int, rnd *rand.Rand) *channelEmulator {
	x := &channelEmulator{Channel: ch, cell: c, fftSize: size, rnd: rnd}
	for p := range c.Ports {
		if len(x.Taps[p]) == 0 {
			x.Taps[p] = []Tap{{Gain: 1}}
		}
		x.slotStart[p], x.slotEnd[p] = make([]complex128, c.subcarrierCount()), make([]complex128, c.subcarrierCount())
		x.updateResponse(p)
	}
	if ch.Offset != 0 {
		x.carrierPhases = make([]complex64, subframeLen(size))
		for i := range x.carrierPhases {
			x.carrierPhases[i] = complex64(cmplx.Rect(1,
				2*math.Pi*ch.Offset*float64(i)/float64(size*subcarrierSpacing)))
		}
	}
	if level := math.Pow(10, -ch.SNR/20) * math.Sqrt2 / 2; level > 0 {
		x.noise = make([]complex64, noiseTableLen+subframeLen(size))
		for i := range x.noise {
			x.noise[i] = complex64(complex(rnd.NormFloat64()*level, rnd.NormFloat64()*level))
		}
	}
	return x
}

// updateResponse computes slotEnd[p] for the beginning of slot.
func (x *channelEmulator) updateResponse(p int) {
	now, n := float64(x.slot)*0.5e-3, x.cell.subcarrierCount()
	clear(x.slotEnd[p])
	for _, w := range x.Taps[p] {
		v := w.Gain * cmplx.Rect(1, 2*math.Pi*(w.Doppler*now+subcarrierSpacing*w.Delay*float64(n/2)))
		turn := cmplx.Rect(1, -2*math.Pi*subcarrierSpacing*w.Delay)
		for k := range x.slotEnd[p] {
			if k == n/2 {
				v *= turn // there is no subcarrier at 0 Hz
			}
			x.slotEnd[p][k] += v
			v *= turn
		}
	}
}

// applyResponse fills row with symbol l as received, summed over all ports.
func (x *channelEmulator) applyResponse(l int, ports *[2][symbolsPerSubframe][]complex128, row []complex128) {
	if l%symbolsPerSlot == 0 {
		x.slot++
		for p := range x.cell.Ports {
			x.slotStart[p], x.slotEnd[p] = x.slotEnd[p], x.slotStart[p]
			x.updateResponse(p)
		}
	}
	b := (float64(l%symbolsPerSlot) + 0.5) / symbolsPerSlot
	a := 1 - b
	clear(row)
	for p := range x.cell.Ports {
		from, to := x.slotStart[p], x.slotEnd[p]
		for k, v := range ports[p][l] {
			h := complex(a*real(from[k])+b*real(to[k]), a*imag(from[k])+b*imag(to[k]))
			row[k] += h * v
		}
	}
}

// addImpairments rotates the samples of a subframe by the carrier offset and adds noise.
func (x *channelEmulator) addImpairments(samples []complex64) {
	if x.Offset != 0 {
		// The same phases in each subframe, from another initial angle.
		first := complex64(cmplx.Rect(1, 2*math.Pi*math.Mod(x.Offset*1e-3*float64(x.slot/2-1), 1)))
		for i, s := range samples {
			samples[i] = s * x.carrierPhases[i] * first
		}
	}
	if x.noise != nil {
		for i, v := range x.noise[x.rnd.IntN(noiseTableLen):][:len(samples)] {
			samples[i] += v
		}
	}
}
