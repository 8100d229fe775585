// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"math"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
	"mpbond/lab/vary"
)

// Mean rates of carriers at places: log-normal with this median and sigma, within bounds. Five
// recorded downlinks of others (those of vary.LTE, and the New York set's walk at Times Square)
// have a geometric mean of 7.7 Mbit/s; the logarithms of their means deviate by 0.72.
const (
	carrierMedian  = 8 * unit.Mbps
	carrierSigma   = 0.7
	minCarrierRate = unit.Mbps
	maxCarrierRate = 30 * unit.Mbps
)

// carrierProfile returns the rate of a carrier at a place for a minute.
func carrierProfile(seed uint64, place, link string) vary.Profile {
	rng := vary.Rand(seed, place+"/"+link)
	mean := unit.Rate(float64(carrierMedian) * math.Exp(carrierSigma*rng.NormFloat64()))
	return vary.LTE(rng, min(max(mean, minCarrierRate), maxCarrierRate), minute)
}

// walkProfile returns the WLAN between two devices at a place for a minute.
func walkProfile(seed uint64, place, link string, w vary.Walk) vary.Profile {
	return vary.WLAN(vary.Rand(seed, place+"/"+link), w, minute)
}

// oneBody is the distance between devices of one person.
var oneBody = vary.Walk{Near: 1, Far: 3}

// m0aStep is the paper's.
const m0aStep = 200 * time.Millisecond

// m0aRecorded are recordings for three devices, from different places: mahimahi's and the New York
// set's.
var m0aRecorded = [][]string{
	{"mahimahi/ATT-LTE-driving-2016.down", "mahimahi/TMobile-LTE-short.down", "mahimahi/Verizon-LTE-short.down"},
	{"mahimahi/TMobile-LTE-short.down", "mahimahi/Verizon-LTE-short.down", "mahimahi/ATT-LTE-driving-2016.down"},
	{"mahimahi/Verizon-LTE-short.down", "mahimahi/ATT-LTE-driving-2016.down", "mahimahi/TMobile-LTE-short.down"},
	{"nyc-cellular/trace-3201711-timessquare", "nyc-cellular/trace-2767958-taxi1", "mahimahi/Verizon-LTE-short.down"},
	{"nyc-cellular/trace-2767958-taxi1", "nyc-cellular/trace-3201711-timessquare",
		"mahimahi/ATT-LTE-driving-2016.down"},
}

// m0aPlaces is as many as the time of a full run allows.
var m0aPlaces = len(m0aRecorded)

// m0aPlaceNetwork returns the network of devices at a place. Each device has its own carrier, and
// all are near each other.
func m0aPlaceNetwork(
	seed uint64,
	place string,
	devices int,
	own func(i int, link string) (vary.Profile, error),
) (*lab.Topology, error) {
	v := linkProfiles{}
	for i := range devices {
		link := "ps"
		if i > 0 {
			link = fmt.Sprintf("hs%d", i)
			pipe := fmt.Sprintf("pipe%d", i)
			v[pipe] = walkProfile(seed, place, pipe, oneBody)
		}
		p, err := own(i, link)
		if err != nil {
			return nil, err
		}
		v[link] = p
	}
	return v.applyToTriangle(map[int]string{2: "1/1/1", 3: "1/1/1,1/1"}[devices], 0)
}

// m0aPlaceCell returns a place with two or three devices. With two, the primary alone is a scheme
// too.
func m0aPlaceCell(place string, devices int) Cell {
	c := Cell{Name: fmt.Sprintf("%s, %d devices", place, devices), Schemes: []string{Product, mptcp}, Length: minute,
		Reps: 1}
	if devices == 2 {
		c.Schemes = append(c.Schemes, "single")
	}
	c.Network = func(seed uint64) (*lab.Topology, error) {
		return m0aPlaceNetwork(seed, place, devices, func(_ int, link string) (vary.Profile, error) {
			return carrierProfile(seed, place, link), nil
		})
	}
	return c
}

// rowM0aCarriers returns row m0a: several devices with different carriers.
func rowM0aCarriers(radio.Set) Row {
	r := Row{
		ID: "m0a", Title: "Carriers that vary, together: one to three devices, 1 min at each place",
		Source: mpbondPaper + ", motivation",
		Setup: commonSetup + fmt.Sprintf(" Three carriers vary as lab/vary makes it, in queues of %v at their "+
			"mean rates; devices are 1 to 3 m from each other. The means at %d places are drawn, so the possible "+
			"gain is our choice. The time of perfect links shows how much of it is reached. The published gain of "+
			"more than twice the rate cannot be relative to the best device: we take the primary's own. The paper "+
			"may have used separate downloads; here it is one. Samples of %v.",
			cellularQueue, m0aPlaces, m0aStep),
		NotCovered: "the paper's places, which are not known to us",
		Metrics: []Metric{Rate, BoundShare, percentile{0.5, m0aStep}.newSampleMetric("median of samples"),
			percentile{0.05, m0aStep}.newSampleMetric("5 % point of samples"), LongestGap},
		Samples: payloadSamples(m0aStep),
	}
	var places []string
	together := map[int][]string{}
	for _, traced := range []bool{false, true} {
		for at := range m0aPlaces {
			place := fmt.Sprintf("place %d", at+1)
			if traced {
				place = fmt.Sprintf("recordings %d", at+1)
			}
			places = append(places, place)
			for _, devices := range []int{2, 3} {
				c := m0aPlaceCell(place, devices)
				if at == 0 {
					c.Quick = 1
				}
				if traced {
					c.Network, c.FromRecordings = nil, func(dir string) (*lab.Topology, error) {
						return m0aPlaceNetwork(1, place, devices, func(i int, _ string) (vary.Profile, error) {
							return loadRecording(dir, m0aRecorded[at][i], minute)
						})
					}
				}
				r.Cells = append(r.Cells, c)
				together[devices] = append(together[devices], c.Name)
			}
		}
	}
	r.Groups, r.Spread = [][]string{together[2], together[3]}, append(slices.Clone(together[2]), together[3]...)
	for i, published := range [][2]float64{{15.8, 474}, {63, 695}} {
		devices := 2 + i
		// places are not samples of one value
		r.Points = append(r.Points, Point{What: fmt.Sprintf("rate of %d devices relative to one, mean of places", devices),
			Unit: "%", Low: published[0], High: published[1], PublishedText: fmt.Sprintf("%g…%g %% (a span of cases)",
				published[0], published[1]), Aim: AimIncrease,
			Of: func(d Data) (percent []float64) {
				for _, place := range places {
					cells := [2]string{m0aPlaceCell(place, devices).Name, m0aPlaceCell(place, 2).Name}
					percent = append(percent, d.crossChanges(cells, [2]string{Product, "single"}, Rate)...)
				}
				return percent
			}})
	}
	return r
}
