// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"time"

	"mpbond/lab"
	"mpbond/lab/radio"
	"mpbond/lab/vary"
)

const (
	m9Step    = 100 * time.Millisecond // the paper's
	m9Combine = "combine:256KB"
)

// m9Places are the distances of the devices, and whether the phones are on a train: our choice.
var m9Places = []struct {
	walk  vary.Walk
	train bool
}{
	{walk: oneBody}, {walk: oneBody}, {walk: oneBody}, {walk: oneBody}, {oneBody, true},
	{walk: vary.Walk{Near: 1, Far: 10}}, {walk: vary.Walk{Near: 1, Far: 10}}, {vary.Walk{Near: 1, Far: 10}, true},
	{walk: vary.Walk{Near: 5, Far: 25}}, {walk: vary.Walk{Near: 10, Far: 35}},
}

// m9Recorded are recordings for each place: of the pipe and the HS-path at one place and time (but
// for the last), and a PS-path of another source.
var m9Recorded = []struct{ ps, hs, pipe string }{
	{"mahimahi/Verizon-LTE-short.down", "wifi-cellular-pairs/7_1_cellular.csv", "wifi-cellular-pairs/7_1_wifi.csv"},
	{"mahimahi/TMobile-LTE-short.down", "wifi-cellular-pairs/7_2_cellular.csv", "wifi-cellular-pairs/7_2_wifi.csv"},
	{"mahimahi/ATT-LTE-driving-2016.down", "wifi-cellular-pairs/8_1_cellular.csv", "wifi-cellular-pairs/8_1_wifi.csv"},
	{"nyc-cellular/trace-2767958-taxi1", "wifi-cellular-pairs/8_2_cellular.csv", "wifi-cellular-pairs/8_2_wifi.csv"},
	{"nyc-cellular/trace-3201711-timessquare", "wifi-cellular-pairs/11_1_cellular.csv",
		"wifi-cellular-pairs/11_1_wifi.csv"},
	{"mahimahi/Verizon-LTE-short.down", "wifi-cellular-pairs/11_2_cellular.csv", "wifi-cellular-pairs/11_2_wifi.csv"},
	{"mahimahi/TMobile-LTE-short.down", "wifi-cellular-pairs/12_1_cellular.csv", "wifi-cellular-pairs/12_1_wifi.csv"},
	{"mahimahi/ATT-LTE-driving-2016.down", "wifi-cellular-pairs/13_1_cellular.csv",
		"wifi-cellular-pairs/13_1_wifi.csv"},
	{"nyc-cellular/trace-2767958-taxi1", "wifi-cellular-pairs/13_2_cellular.csv", "wifi-cellular-pairs/13_2_wifi.csv"},
	{"mahimahi/TMobile-LTE-short.down", "nyc-cellular/trace-3201711-timessquare", "wifi-cellular-pairs/12_1_wifi.csv"},
}

// rowM9TenPlaces returns row m9: a minute at each of ten places.
func rowM9TenPlaces(set radio.Set) Row {
	median, low := percentile{0.5, m9Step}, percentile{0.05, m9Step}
	active := perMegabyte(Energy(set, "", false))
	r := Row{
		ID: "m9", Title: "Links that vary as in the wild, 1 min at each of 10 places", Source: mpbondPaper +
			", in the wild",
		Setup: commonSetup + fmt.Sprintf(" PS and HS are carriers that vary as lab/vary makes LTE, of drawn "+
			"means, in queues of %v; the pipe is the WLAN of one person (five places), or of two who walk up to "+
			"10, 25 or 35 m from each other; at two places both phones are on a train, with handoffs. Samples of "+
			"%v, as packets come to the primary. Changes of their percentiles are of all places together, in each "+
			"third of the minute, except thirds in which the other scheme's is 0. That of 5 %% is relative to "+
			"kernel MPTCP; the paper's may be relative to another scheme. While all radios are on, the energy of "+
			"a byte cannot fall more than the rate rises. %s",
			cellularQueue, m9Step, energySetup(set)),
		NotCovered: "the paper's recordings, which are not known to us",
		Metrics: []Metric{Rate, BoundShare, median.newSampleMetric("median of samples"),
			low.newSampleMetric("5 % point of samples"), active, perMegabyte(Energy(set, "", true)), LongestGap},
		Samples: payloadSamples(m9Step),
	}
	var cells []string
	for _, traced := range []bool{false, true} {
		for i, at := range m9Places {
			c := Cell{Name: fmt.Sprintf("place %d", i+1), Schemes: []string{Product, mptcp, m9Combine}, Length: minute,
				Reps: 1}
			if i == 0 || i == 7 {
				c.Quick = 1
			}
			if traced {
				files := m9Recorded[i]
				c.Name = fmt.Sprintf("recordings %d", i+1)
				c.FromRecordings = func(dir string) (*lab.Topology, error) {
					v, err := loadRecordings(dir, minute, map[string]string{"ps": files.ps, "hs1": files.hs,
						"pipe1": files.pipe})
					if err != nil {
						return nil, err
					}
					return v.applyToTriangle("1/1/1", 0)
				}
			} else {
				place := "m9/" + c.Name
				c.Network = func(seed uint64) (*lab.Topology, error) {
					v := linkProfiles{"pipe1": walkProfile(seed, place, "pipe1", at.walk)}
					for _, link := range []string{"ps", "hs1"} {
						p := carrierProfile(seed, place, link)
						if at.train {
							p.Gaps = vary.Handoffs(vary.Rand(seed, place+"/handoffs of "+link), minute)
						}
						v[link] = p
					}
					return v.applyToTriangle("1/1/1", 0)
				}
			}
			r.Cells = append(r.Cells, c)
			cells = append(cells, c.Name)
		}
	}
	r.Groups, r.Spread = [][]string{cells}, cells
	all := group{"all places", cells, false}
	gain := func(p percentile, what, other string, published float64) Point {
		return Point{What: fmt.Sprintf("%s relative to %s", what, other), Unit: "%", Low: published, High: published,
			Aim: AimIncrease,
			Of:  func(d Data) []float64 { return p.timePartChanges(d, cells, [2]string{Product, other}) }}
	}
	r.Points = []Point{
		gain(median, "median of samples", mptcp, 13), gain(median, "median of samples", m9Combine, 23),
		all.comparePoint(mptcp, active, -19, -19), all.comparePoint(m9Combine, active, -24, -24),
		gain(low, "5 % point of samples", mptcp, 90),
	}
	return r
}
