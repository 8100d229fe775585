// SPDX-License-Identifier: Apache-2.0

package vary

import (
	"math"
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// Walk describes two people with devices. One walks between random distances from Near to Far and
// pauses at each.
type Walk struct{ Near, Far float64 } // metres, above 0

// The walk. Its values are assumptions, and so are the loss of a body, door or thin wall and how
// long it is in the way.
const (
	walkSpeed      = 1.3             // m/s
	walkPause      = 3 * time.Second // mean, exponential
	inSightTime    = 8 * time.Second // mean, exponential
	outOfSightTime = 3 * time.Second // mean, exponential
	outOfSightLoss = 10.0            // dB
)

// Path loss: model D of IEEE 802.11-03/940r4 ("TGn Channel Models"). Free space up to the
// breakpoint, slope 3.5 beyond it; shadowing of 3 dB before and 5 dB beyond. The duration of
// shadows, about a second, is an assumption.
const (
	lossAt1m    = 40.05 // dB, free space at 2.4 GHz
	breakpoint  = 10.0  // m
	slopeBefore = 2.0
	slopeBeyond = 3.5
	shadowNear  = 3.0 // dB
	shadowFar   = 5.0
	shadowTime  = time.Second
)

// Radio. Assumptions: phones send at about 15 dBm, and rate control stays some 10 dB above the
// receiver's minimum because of fading. TCP gets about 60 % of the air rate, for aggregated frames
// on a channel with little other traffic.
const (
	transmitPower = 15.0 // dBm
	rateMargin    = 10.0 // dB
	efficiency    = 0.6
)

// wlanRates are the rates of one spatial stream in 20 MHz with the long guard interval, and the
// minimum power that a receiver needs: IEEE 802.11-2016, clause 19 (HT), MCS 0 to 7 and receiver
// minimum input sensitivity.
var wlanRates = []struct {
	dBm  float64
	rate unit.Rate
}{
	{-64, 65e6}, {-65, 585e5}, {-66, 52e6}, {-70, 39e6}, {-74, 26e6}, {-77, 195e5}, {-79, 13e6}, {-82, 65e5},
}

// WLANRate returns the TCP rate at a distance (metres) with an extra loss (dB), 0 out of range.
func WLANRate(distance, loss float64) unit.Rate {
	distance = max(distance, 1)
	path := lossAt1m + 10*slopeBefore*math.Log10(min(distance, breakpoint))
	if distance > breakpoint {
		path += 10 * slopeBeyond * math.Log10(distance/breakpoint)
	}
	got := transmitPower - path - loss - rateMargin
	for _, r := range wlanRates {
		if got >= r.dBm {
			return unit.Rate(efficiency * float64(r.rate))
		}
	}
	return 0
}

// WLAN returns the rate between two devices, one of which moves, in samples of Step. Out of range
// the rate is 0, and the queue stays.
func WLAN(rng *rand.Rand, w Walk, length time.Duration) Profile {
	p := Profile{Step: Step, Rates: make([]unit.Rate, countTimeSteps(length, Step))}
	randomDistance := func() float64 { return w.Near + rng.Float64()*(w.Far-w.Near) }
	distance, goal, pause := randomDistance(), randomDistance(), time.Duration(0)
	inSight := rng.Float64() < inSightTime.Seconds()/(inSightTime+outOfSightTime).Seconds()
	left := drawExponential(rng, meanSightTime(inSight))
	keep := math.Exp(-Step.Seconds() / shadowTime.Seconds())
	shadow := rng.NormFloat64() // of 1 dB
	for i := range p.Rates {
		switch move := walkSpeed * Step.Seconds(); {
		case pause > 0:
			pause -= Step
		case math.Abs(goal-distance) <= move:
			distance, goal, pause = goal, randomDistance(), drawExponential(rng, walkPause)
		default:
			distance += math.Copysign(move, goal-distance)
		}
		for left -= Step; left < 0; left += drawExponential(rng, meanSightTime(inSight)) {
			inSight = !inSight
		}
		shadow = keep*shadow + math.Sqrt(1-keep*keep)*rng.NormFloat64()
		loss := shadow * shadowNear
		if distance > breakpoint {
			loss = shadow * shadowFar
		}
		if !inSight {
			loss += outOfSightLoss
		}
		p.Rates[i] = WLANRate(distance, loss)
	}
	return p
}

// meanSightTime returns the mean time in sight or out of sight.
func meanSightTime(inSight bool) time.Duration {
	if inSight {
		return inSightTime
	}
	return outOfSightTime
}
