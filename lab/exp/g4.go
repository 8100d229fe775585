// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// Parameters of g4.
const (
	g4Cell   = "10 photos"
	g4Page   = "page"
	g4Home   = "0.89Mbit/s" // uplink
	g4Phone  = "0.9"
	g4Photos = 10
)

// rowG4Clientless returns row g4: uploads without a client.
func rowG4Clientless(radio.Set) Row {
	return Row{
		ID: "g4", Title: "Photos by a helper's own page, without a client", Source: golPaper + ", clientless",
		Judged: onloadScheme,
		Setup: fmt.Sprintf("%d photos as in g3 over an uplink of %s and one phone of %s Mbit/s, which is our "+
			"assumption (home 1 of g3 implies it), in a WLAN of 20 Mbit/s. With the scheme page, a device without "+
			"mpbond uploads them to the phone, file after file; curl plays the browser. The phone stores each "+
			"file and sends it over its own line, or back over the WLAN and the home line. The time ends when the "+
			"page reports the last arrival; it is polled five times a second.", g4Photos, g4Home, g4Phone),
		Cells: []Cell{Cell{Name: g4Cell, Upload: true, Network: func(uint64) (*lab.Topology, error) {
			return g4HomeNetwork()
		}, Reps: 3, Quick: 1,
			Items:   func(seed uint64, rep int) []unit.Bytes { return g3PhotoSizes(seed, rep)[:g4Photos] },
			Schemes: []string{onloadScheme, g4Page, "single", mptcp}}.limitSchemeReps(1, "single")},
		Metrics: []Metric{Time},
		Points: []Point{{What: "time of page relative to the client", Unit: "%", Low: 3, High: 3, Aim: AimAtMost,
			Of: func(d Data) []float64 { return d.Changes(g4Cell, [2]string{g4Page, onloadScheme}, Time) }}},
	}
}

// g4HomeNetwork returns a home whose router is the primary, since the phone uses its line.
func g4HomeNetwork() (*lab.Topology, error) {
	t, err := lab.Triangle("8/" + g4Phone + "/20")
	if err != nil {
		return nil, err
	}
	t.Node["primary"].Forward, t.Node["primary"].NAT = true, []string{"ps"}
	return t, setHomeLinks(t, g4Home)
}
