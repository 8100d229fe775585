// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"math"
	"strings"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// m13Place is a place indoors: rates in Mbit/s, and its published values.
type m13Place struct {
	name                 string
	wifi, own, helper    float64 // rates of the primary's WiFi and LTE, and of the helper's LTE
	wifiDelay, wifiLoss  string
	mpbond, mptcp, bytes float64 // seconds, and MB over cellular
}

// m13Places have rates inferred from published times and bytes, as m13's Setup explains.
var m13Places = []m13Place{
	{name: "A, good WiFi", wifi: 26, own: 21, helper: 8, wifiDelay: "10ms", mpbond: 1.5, mptcp: 1.0, bytes: 1.6},
	{name: "B, poor WiFi", wifi: 4.5, own: 22, helper: 14, wifiDelay: "20ms", wifiLoss: "0.5%", mpbond: 1.2, mptcp: 1.6,
		bytes: 3.3},
}

// Schemes of m13.
const (
	m13Cellular = "mpbond:if=wwan0"       // the primary's LTE, and the helper's
	m13All      = "mpbond:if=wlan0+wwan0" // all three links
	m13MPTCP    = "mptcp:own"
)

// rowM13Indoors returns row m13: indoors, with good or poor WiFi.
func rowM13Indoors(radio.Set) Row {
	cellular := Metric{Name: "by cellular", Unit: "MB", Of: func(r lab.Result) (float64, bool) {
		n := unit.Bytes(0)
		for link, got := range r.Links {
			if strings.HasPrefix(link, "wwan") {
				n += got
			}
		}
		return lab.PayloadShare * float64(n) / float64(unit.MB), r.Links != nil
	}}
	r := Row{
		ID: "m13", Title: "Indoors: WiFi good and poor (rates inferred from the published times)", Source: mpbondPaper +
			", indoor",
		Setup: "4 MB, 6 times (the paper 10 times). The primary has WiFi and LTE of its own, a helper LTE and a " +
			"pipe of 50 Mbit/s. The published times of MPBond hardly depend on the WiFi, and two LTE links would " +
			"explain them. So we take the primary's LTE and the helper's (mpbond:if=wwan0), since the pipe uses " +
			"the WiFi radio, and read the published bytes as those of MPTCP. Rates are inferred from times and " +
			"bytes: only the order of schemes can be reproduced. WiFi, own LTE, helper's LTE: " +
			m13PlaceRatesText() + "; round trips 20 (A) and 40 ms (B, with 0.5 % loss) of WiFi, 55 ms of LTE. Also " +
			"measured: mpbond with the one direct link that the routes prefer (WiFi, and the helper's LTE), and " +
			"with all three links, which --interface auto chooses where both have a default route.",
		NotCovered: "whether a WiFi radio can serve an access point and a pipe at once at these rates",
		Metrics:    []Metric{Time, cellular},
	}
	for _, p := range m13Places {
		c := Cell{Name: p.name, Network: p.buildPlaceTopology, Size: 4 * unit.MB, Reps: 6, Quick: 1,
			Schemes: []string{Product, m13Cellular, m13All, m13MPTCP, "single"}}
		r.Cells = append(r.Cells, c)
		values := func(scheme string, m Metric) func(Data) []float64 {
			return func(d Data) []float64 { return d.Values(c.Name, scheme, m) }
		}
		r.Points = append(r.Points,
			Point{What: "time of mpbond by two LTE links, " + p.name, Unit: "s", Low: p.mpbond, High: p.mpbond,
				Aim: AimAtMost, IsFitted: true, Of: values(m13Cellular, Time)},
			Point{What: "time of MPTCP by own WiFi and LTE, " + p.name, Unit: "s", Low: p.mptcp, High: p.mptcp,
				Aim: AimNear, IsFitted: true, Of: values(m13MPTCP, Time)},
			Point{What: "by cellular with MPTCP, " + p.name, Unit: "MB", Low: p.bytes, High: p.bytes, Aim: AimNear,
				IsFitted: true,
				Of:       values(m13MPTCP, cellular)})
	}
	poor := m13Places[1]
	change := math.Round(100 * (poor.mpbond/poor.mptcp - 1))
	r.Points = append(r.Points, Point{What: "time of mpbond by two LTE links relative to MPTCP, " + poor.name, Unit: "%",
		Low: change, High: change, Aim: AimReduction, IsFitted: true,
		Of: func(d Data) []float64 { return d.Changes(poor.name, [2]string{m13Cellular, m13MPTCP}, Time) }})
	return r
}

func m13PlaceRatesText() string {
	var all []string
	for _, p := range m13Places {
		all = append(all, fmt.Sprintf("%g, %g and %g Mbit/s at %s", p.wifi, p.own, p.helper, p.name))
	}
	return strings.Join(all, "; ")
}

// buildPlaceTopology returns a network whose primary has two links to the server.
func (p m13Place) buildPlaceTopology(uint64) (*lab.Topology, error) {
	t, err := lab.Triangle("50/50/50")
	if err != nil {
		return nil, err
	}
	for _, l := range []struct {
		name, node  string
		rate        float64
		delay, loss string
	}{
		{"wlan0", "primary", p.wifi, p.wifiDelay, p.wifiLoss},
		{"wwan0", "primary", p.own, "27.5ms", ""},
		{"wwan1", "helper1", p.helper, "27.5ms", ""},
	} {
		link := &lab.Link{Ends: [2]string{l.node, "server"}}
		link.Rate, link.Delay, link.Loss = fmt.Sprintf("%gMbit/s", l.rate), l.delay, l.loss
		t.Link[l.name] = link
	}
	delete(t.Link, "ps")
	delete(t.Link, "hs1")
	t.Node["primary"].Routes, t.Node["helper1"].Routes = []string{"default via wlan0"}, []string{"default via wwan1"}
	return t, t.Check()
}
