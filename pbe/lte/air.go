package lte

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
)

// Channel is what stands between a Transmitter and who hears it: the ways of each
// port, a carrier that is off, and noise.
type Channel struct {
	// Ways are those of each port; none stands for one of gain 1.
	Ways [2][]Way
	// Offset is by how much the carrier is off, in Hz.
	Offset float64
	// SNR is the power of a full element over that of the noise, in dB.
	SNR float64
}

// Way is one of the ways that a signal comes.
type Way struct {
	Delay   float64 // seconds, at most the prefix (4.7 µs)
	Gain    complex128
	Doppler float64 // Hz
}

// epa is the 3GPP's Extended Pedestrian A model (36.101 table B.2.1-2).
var epa = [...]struct{ ns, dB float64 }{{0, 0}, {30, -1}, {70, -2}, {90, -3}, {110, -8}, {190, -17.2}, {410, -20.8}}

// EPA is a channel with the 3GPP's model for pedestrians: each way turns at a
// frequency of its own, of at most doppler Hz, which is not the model's spectrum.
// Its mean power is 1.
func EPA(doppler, offset, snr float64, seed uint64) Channel {
	rnd := rand.New(rand.NewPCG(seed, 8))
	c := Channel{Offset: offset, SNR: snr}
	var sum float64
	for _, w := range epa {
		sum += math.Pow(10, w.dB/10)
	}
	for p := range c.Ways {
		for _, w := range epa {
			c.Ways[p] = append(c.Ways[p], Way{Delay: w.ns * 1e-9, Gain: cmplx.Rect(math.Sqrt(math.Pow(10, w.dB/10)/sum), 2*math.Pi*rnd.Float64()),
				Doppler: doppler * math.Cos(2*math.Pi*rnd.Float64())})
		}
	}
	return c
}

// noiseTable is how many values of noise there are, of which a part that is drawn
// anew is added to each subframe: drawing all of them would take longer than all else.
const noiseTable = 1 << 17

// channel is a Channel at work. Its response is that of the beginning and the end of
// each slot, with straight lines between them.
type channel struct {
	Channel
	cell  Cell
	size  int
	rnd   *rand.Rand
	noise []complex64
	turns []complex64 // of the carrier, by sample of a subframe
	// from and to are the responses of the ports at the slot's ends.
	from, to [2][]complex128
	slot     int64 // that to is the beginning of
}

func newChannel(ch Channel, c Cell, size int, rnd *rand.Rand) *channel {
	x := &channel{Channel: ch, cell: c, size: size, rnd: rnd}
	for p := range c.Ports {
		if len(x.Ways[p]) == 0 {
			x.Ways[p] = []Way{{Gain: 1}}
		}
		x.from[p], x.to[p] = make([]complex128, c.subcarriers()), make([]complex128, c.subcarriers())
		x.respond(p)
	}
	if ch.Offset != 0 {
		x.turns = make([]complex64, subframeLen(size))
		for i := range x.turns {
			x.turns[i] = complex64(cmplx.Rect(1, 2*math.Pi*ch.Offset*float64(i)/float64(size*spacing)))
		}
	}
	if level := math.Pow(10, -ch.SNR/20) * math.Sqrt2 / 2; level > 0 {
		x.noise = make([]complex64, noiseTable+subframeLen(size))
		for i := range x.noise {
			x.noise[i] = complex64(complex(rnd.NormFloat64()*level, rnd.NormFloat64()*level))
		}
	}
	return x
}

// respond sets to[p] to what it is at the beginning of slot.
func (x *channel) respond(p int) {
	now, n := float64(x.slot)*0.5e-3, x.cell.subcarriers()
	clear(x.to[p])
	for _, w := range x.Ways[p] {
		v := w.Gain * cmplx.Rect(1, 2*math.Pi*(w.Doppler*now+spacing*w.Delay*float64(n/2)))
		turn := cmplx.Rect(1, -2*math.Pi*spacing*w.Delay)
		for k := range x.to[p] {
			if k == n/2 {
				v *= turn // there is no subcarrier at 0 Hz
			}
			x.to[p][k] += v
			v *= turn
		}
	}
}

// pass fills row with what is heard of symbol l, of all ports.
func (x *channel) pass(l int, ports *[2][perSubframe][]complex128, row []complex128) {
	if l%perSlot == 0 {
		x.slot++
		for p := range x.cell.Ports {
			x.from[p], x.to[p] = x.to[p], x.from[p]
			x.respond(p)
		}
	}
	b := (float64(l%perSlot) + 0.5) / perSlot
	a := 1 - b
	clear(row)
	for p := range x.cell.Ports {
		from, to := x.from[p], x.to[p]
		for k, v := range ports[p][l] {
			h := complex(a*real(from[k])+b*real(to[k]), a*imag(from[k])+b*imag(to[k]))
			row[k] += h * v
		}
	}
}

// disturb turns the samples of a subframe, and adds noise.
func (x *channel) disturb(samples []complex64) {
	if x.Offset != 0 {
		// The same turns in each subframe, from another angle.
		first := complex64(cmplx.Rect(1, 2*math.Pi*math.Mod(x.Offset*1e-3*float64(x.slot/2-1), 1)))
		for i, s := range samples {
			samples[i] = s * x.turns[i] * first
		}
	}
	if x.noise != nil {
		for i, v := range x.noise[x.rnd.IntN(noiseTable):][:len(samples)] {
			samples[i] += v
		}
	}
}
