// SPDX-License-Identifier: Apache-2.0

package vary

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// Travel describes how a device with one link of each of two carriers moves past their masts, and
// how long its handoffs take.
type Travel struct {
	Speed float64 // m/s; 0 stands still
	// SpeedSigma makes the speed vary by LogNormal: a car meets traffic. Its median stays Speed.
	SpeedSigma float64
	// Down and Up are the mean rates of the carriers outside of handoffs.
	Down, Up [Carriers]unit.Rate
	// Most handoffs are forwarded: the link holds its queue, and nothing is lost. They take LogNormal
	// with this median and sigma. The others are long: they take U(LongMin, LongMax), and if LongFails,
	// everything sent meanwhile is lost.
	Median           time.Duration
	Sigma            float64
	LongShare        float64
	LongMin, LongMax time.Duration
	LongFails        bool
}

// Carriers is the number of carriers of a Travel.
const Carriers = 2

// The journeys. Rates and handoffs of the train are assumptions: Li et al., "A Measurement Study on
// Multi-path TCP with Multiple Cellular Carriers on High Speed Rails", SIGCOMM 2018, names its speed
// but neither. Lengths of a car's handoffs are those of 6,486 handoffs in 737 drives with two
// carriers (lab/drives/README.md): median 58 ms, 5.6 % over 0.2 s, 1.5 % over 0.5 s, none over 1 s.
var (
	HighSpeedTrain = Travel{Speed: 300 / 3.6,
		Down: [Carriers]unit.Rate{12 * unit.Mbps, 8 * unit.Mbps}, Up: [Carriers]unit.Rate{4 * unit.Mbps, 4 * unit.Mbps},
		Median: 150 * time.Millisecond, Sigma: 0.8,
		LongShare: 0.12, LongMin: 1500 * time.Millisecond, LongMax: 6 * time.Second, LongFails: true}
	Car = Travel{Speed: 70 / 3.6, SpeedSigma: 0.6, Down: HighSpeedTrain.Down, Up: HighSpeedTrain.Up,
		Median: 58 * time.Millisecond, Sigma: 0.75,
		LongShare: 0.012, LongMin: 500 * time.Millisecond, LongMax: time.Second}
	Parked = Travel{
		Down: [Carriers]unit.Rate{20 * unit.Mbps, 15 * unit.Mbps}, Up: [Carriers]unit.Rate{8 * unit.Mbps, 6 * unit.Mbps}}
)

// Handoff is a change of the serving mast.
type Handoff struct {
	Gap
	Failed bool // everything sent meanwhile is lost; otherwise the link holds its queue
}

// Signal is one report of a modem. Powers are RSRP (3GPP TS 36.214, 5.1.1).
type Signal struct {
	At                 time.Duration
	Serving, Neighbour float64 // dBm; Neighbour is the strongest other mast's
	Cell               int     // number of the serving mast
	Speed              float64 // m/s
}

// Ride describes the link of one carrier on a journey.
type Ride struct {
	Down, Up Profile
	Handoffs []Handoff
	Signals  []Signal // one a second
}

// The masts of a carrier. They stand beside the track at distances drawn from U(mastNear, mastFar).
// Path loss is that of TR 36.942, 4.5.2 (macro cell, urban, 2 GHz); a mast sends a resource element
// with mastPower, antenna gain included. All values are assumptions within the usual ranges.
const (
	mastNear, mastFar = 800.0, 1600.0 // m
	mastOffset        = 100.0         // m, from the track
	mastPower         = 33.0          // dBm: 46 dBm over 600 resource elements, 15 dB of gain
	wallLoss          = 20.0          // dB, of a train's or car's body
	lossAt1km         = 128.1         // dB
	lossSlope         = 37.6          // dB for each factor of ten
	mastRange         = 5             // masts on either side that are heard

	// Shadows change over shadowDistance along the track. One part of their variance is common to all
	// masts: what stands beside the track.
	shadowSigma    = 9.0  // dB
	shadowDistance = 50.0 // m
	shadowCommon   = 0.5

	noisePower    = -123.0 // dBm in a resource element: thermal noise, and 9 dB of the receiver
	neighbourLoad = 0.10   // share of time in which other masts send
	outOfSync     = -7.0   // dB: below this SINR a device receives nothing
	maxShare      = 5.5    // bit/s/Hz: 64QAM at its highest code rate

	// Other devices take their share: the rest varies by LogNormal with loadSigma over loadTime.
	loadSigma = 0.35
	loadTime  = 3 * time.Second

	// Something else, such as a bridge, cuts the link off from time to time for U(holeMin, holeMax).
	// As long before one handoff in lateShare, the old mast is lost.
	holeInterval     = 160 * time.Second
	holeMin, holeMax = 1500 * time.Millisecond, 2500 * time.Millisecond
	lateShare        = 0.05

	speedTime = time.Minute // over which a car's speed varies
)

// When a device changes the mast: event A3 (3GPP TS 36.331, 5.5.4.4), after filtered measurements.
const (
	railTick      = 40 * time.Millisecond
	a3Offset      = 3.0 // dB
	timeToTrigger = 320 * time.Millisecond
	filterTime    = 200 * time.Millisecond
	signalNoise   = 1.0 // dB, of what the modem reports
)

// track is the state of one carrier's simulation.
type track struct {
	rng      *rand.Rand
	position float64   // of the device, m
	masts    []float64 // positions
	shadows  []float64 // of each mast, of unit variance
	common   float64   // shadow in front of all masts, of unit variance
	filtered []float64 // dBm, as the device measures
	serving  int
	better   time.Duration // how long event A3 has held
	load     float64       // log of the share of the device, of unit variance
}

// Rides draws the journey of both carriers' links from a seed and a name, which give the same journey
// again.
func (t Travel) Rides(seed uint64, name string, length time.Duration) (both [Carriers]Ride) {
	speeds := t.drawSpeeds(Rand(seed, name+"/speed"), min(length, MaxLength))
	for c := range both {
		both[c] = t.drawRide(Rand(seed, fmt.Sprintf("%s/carrier %d", name, c)), c, speeds)
	}
	return both
}

// drawSpeeds draws the speed in each tick of a time.
func (t Travel) drawSpeeds(rng *rand.Rand, length time.Duration) []float64 {
	speeds := make([]float64, countTimeSteps(length, railTick))
	x := rng.NormFloat64()
	keep := math.Exp(-railTick.Seconds() / speedTime.Seconds())
	for i := range speeds {
		x = keep*x + math.Sqrt(1-keep*keep)*rng.NormFloat64()
		speeds[i] = t.Speed * math.Exp(t.SpeedSigma*x)
	}
	return speeds
}

// drawRide draws the journey of one carrier's link with these speeds.
func (t Travel) drawRide(rng *rand.Rand, carrier int, speeds []float64) (r Ride) {
	length := time.Duration(len(speeds)) * railTick
	x := newTrack(rng, speeds)
	steps := countTimeSteps(length, Step)
	shares, used := make([]float64, steps), 0
	var busyUntil, holeUntil time.Duration // of the current handoff, and of a hole
	nextHole := drawExponential(rng, holeInterval)
	drawHole := func() time.Duration { return holeMin + time.Duration(rng.Float64()*float64(holeMax-holeMin)) }
	target := x.serving
	for i, speed := range speeds {
		at := time.Duration(i) * railTick
		x.advance(speed)
		switch {
		case at < busyUntil:
		case target != x.serving:
			x.serving, x.better = target, 0
		default:
			if best := x.strongestOther(); x.triggersHandoff(best) {
				begin := at
				if rng.Float64() < lateShare {
					begin += drawHole()
					holeUntil = begin
				}
				h := t.drawHandoff(rng, begin)
				r.Handoffs, busyUntil, target = append(r.Handoffs, h), h.End(), best
			}
		}
		if t.Speed > 0 && at >= nextHole {
			holeUntil = max(holeUntil, at+drawHole())
			nextHole = holeUntil + drawExponential(rng, holeInterval)
		}
		if i := int(at / Step); i >= used && i < steps {
			used = i + 1
			if at >= holeUntil {
				shares[i] = x.rateShare(t.Speed > 0)
			}
		}
		if at%time.Second == 0 {
			r.Signals = append(r.Signals, x.reportSignal(at, speed))
		}
	}
	for i := used; i < steps; i++ {
		shares[i] = shares[max(0, used-1)]
	}
	r.Down = newRailProfile(shares, t.Down[carrier], r.Handoffs)
	r.Up = newRailProfile(shares, t.Up[carrier], r.Handoffs)
	return r
}

// newRailProfile returns the profile of one direction, with a mean rate.
func newRailProfile(shares []float64, mean unit.Rate, handoffs []Handoff) Profile {
	p := Profile{Step: Step, Rates: make([]unit.Rate, len(shares))}
	for i, v := range shares {
		p.Rates[i] = unit.Rate(v * float64(unit.Mbps))
	}
	p = p.Scaled(mean)
	for _, h := range handoffs {
		if h.Failed {
			p.Gaps = append(p.Gaps, h.Gap)
		} else {
			p.Holds = append(p.Holds, h.Gap)
		}
	}
	return p
}

// drawHandoff draws the length of a handoff that begins at a time.
func (t Travel) drawHandoff(rng *rand.Rand, at time.Duration) Handoff {
	took := time.Duration(float64(t.Median) * math.Exp(t.Sigma*rng.NormFloat64()))
	long := rng.Float64() < t.LongShare
	if long {
		took = t.LongMin + time.Duration(rng.Float64()*float64(t.LongMax-t.LongMin))
	} else if !t.LongFails {
		took = min(took, t.LongMax)
	}
	return Handoff{Gap{at, max(took.Truncate(time.Millisecond), time.Millisecond)}, long && t.LongFails}
}

// newTrack returns a track whose masts suffice for these speeds.
func newTrack(rng *rand.Rand, speeds []float64) *track {
	x := &track{rng: rng, load: rng.NormFloat64(), common: rng.NormFloat64()}
	end := mastFar + mastRange*mastFar
	for _, v := range speeds {
		end += v * railTick.Seconds()
	}
	for at := -mastRange * mastFar; at < end; at += mastNear + rng.Float64()*(mastFar-mastNear) {
		x.masts = append(x.masts, at)
		x.shadows = append(x.shadows, rng.NormFloat64())
	}
	x.position = rng.Float64() * mastFar
	x.filtered = make([]float64, len(x.masts))
	for i := range x.masts {
		x.filtered[i] = x.receivedPower(i)
		if x.filtered[i] > x.filtered[x.serving] {
			x.serving = i
		}
	}
	return x
}

// mastsInRange returns the masts that are heard: [from, to).
func (x *track) mastsInRange() (from, to int) {
	for from = 0; from < len(x.masts) && x.masts[from] < x.position-mastRange*mastNear; from++ {
	}
	for to = from; to < len(x.masts) && x.masts[to] < x.position+mastRange*mastNear; to++ {
	}
	return from, to
}

// receivedPower returns the RSRP of a mast in dBm.
func (x *track) receivedPower(i int) float64 {
	km := math.Hypot(x.masts[i]-x.position, mastOffset) / 1000
	shadow := math.Sqrt(shadowCommon)*x.common + math.Sqrt(1-shadowCommon)*x.shadows[i]
	return mastPower - wallLoss - lossAt1km - lossSlope*math.Log10(km) + shadowSigma*shadow
}

// advance moves the device by one tick at a speed and measures all masts.
func (x *track) advance(speed float64) {
	move := speed * railTick.Seconds()
	x.position += move
	keep := math.Exp(-move / shadowDistance)
	draw := func(v float64) float64 { return keep*v + math.Sqrt(1-keep*keep)*x.rng.NormFloat64() }
	keepFiltered := math.Exp(-railTick.Seconds() / filterTime.Seconds())
	from, to := x.mastsInRange()
	x.common = draw(x.common)
	for i := from; i < to; i++ {
		x.shadows[i] = draw(x.shadows[i])
		x.filtered[i] = keepFiltered*x.filtered[i] + (1-keepFiltered)*x.receivedPower(i)
	}
	keepLoad := math.Exp(-railTick.Seconds() / loadTime.Seconds())
	x.load = keepLoad*x.load + math.Sqrt(1-keepLoad*keepLoad)*x.rng.NormFloat64()
}

// strongestOther returns the mast other than the serving one that the device measures as the
// strongest.
func (x *track) strongestOther() int {
	best := -1
	for i, to := x.mastsInRange(); i < to; i++ {
		if i != x.serving && (best < 0 || x.filtered[i] > x.filtered[best]) {
			best = i
		}
	}
	return best
}

// triggersHandoff reports whether event A3 has held long enough for a mast. It counts one tick.
func (x *track) triggersHandoff(best int) bool {
	if best < 0 || x.filtered[best] < x.filtered[x.serving]+a3Offset {
		x.better = 0
		return false
	}
	x.better += railTick
	return x.better > timeToTrigger
}

// rateShare returns the rate that the device gets now, in bit/s/Hz. A device at rest is where it receives
// something.
func (x *track) rateShare(moves bool) float64 {
	linear := func(db float64) float64 { return math.Pow(10, db/10) }
	others := linear(noisePower)
	for i, to := x.mastsInRange(); i < to; i++ {
		if i != x.serving {
			others += neighbourLoad * linear(x.receivedPower(i))
		}
	}
	sinr := linear(x.receivedPower(x.serving)) / others
	if moves && sinr < linear(outOfSync) {
		return 0
	}
	return min(math.Log2(1+sinr), maxShare) * math.Exp(loadSigma*x.load)
}

// reportSignal returns what the modem reports.
func (x *track) reportSignal(at time.Duration, speed float64) Signal {
	s := Signal{At: at, Serving: x.filtered[x.serving], Cell: x.serving, Speed: speed}
	s.Neighbour = noisePower
	if best := x.strongestOther(); best >= 0 {
		s.Neighbour = x.filtered[best]
	}
	s.Serving = math.Round(s.Serving + signalNoise*x.rng.NormFloat64())
	s.Neighbour = math.Round(s.Neighbour + signalNoise*x.rng.NormFloat64())
	return s
}
