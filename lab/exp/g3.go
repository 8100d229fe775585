// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
	"mpbond/lab/vary"
)

// The photos of g3.
const (
	g3Photos   = 30
	g3MeanSize = 2.5e6 // bytes
	g3Sigma    = 0.74e6
	g3MinSize  = 0.28e6 // of one photo: three deviations below the mean
	g3Reps     = 30
	// g3RealPhotos is how many photos are sent with real packets: all would take half an hour.
	g3RealPhotos = 10
)

// g3Homes are the paper's five homes: the published rates of their lines, and the seconds over ADSL
// alone, with one phone and with two.
var g3Homes = []struct {
	down, up float64 // Mbit/s
	took     [3]float64
}{
	{6.48, 0.83, [3]float64{664, 336, 256}}, {21.64, 2.77, [3]float64{183, 125, 84}},
	{8.67, 0.62, [3]float64{841, 208, 133}},
	{6.20, 0.65, [3]float64{848, 236, 186}}, {6.82, 0.58, [3]float64{894, 279, 182}},
}

// g3Schemes are the schemes with published values.
var g3Schemes = [3]string{"single", onloadScheme + ":helpers=1", onloadScheme}

// rowG3PhotoUploads returns row g3: uploads of photos.
func rowG3PhotoUploads(radio.Set) Row {
	r := Row{
		ID: "g3", Title: "30 photos are uploaded from five homes", Source: golPaper + ", uploads", Judged: onloadScheme,
		Setup: "30 photos, sizes normal with 2.5 ± 0.74 MB, to a web server by PUT. Links carry what the " +
			"published seconds imply for photos of that mean, as payload: ADSL by the seconds of ADSL alone, the " +
			"first phone by what one phone adds, the second by what the second adds; 40 ms there and back for " +
			"ADSL, 100 ms for phones that are connected, a WLAN of 20 Mbit/s. So the row shows how much of these " +
			"links is used. " + g3ImpliedText() + " In virtual time, each repetition with other photos. Ten of them " +
			"are also sent once with real packets (mpbond put, nginx), and over one phone alone, kernel MPTCP and " +
			"mpbond's bond; virtual time should agree with them within 15 %.",
		Metrics: []Metric{Time, Wasted, EndApart},
	}
	var real []string
	for i := range g3Homes {
		home := fmt.Sprintf("home %d", i+1)
		c := Cell{Name: home, Upload: true, Items: g3PhotoSizes, Network: func(uint64) (*lab.Topology, error) {
			return g3HomeNetwork(i)
		},
			VirtualTime: true, Reps: g3Reps, Schemes: []string{g3Schemes[0], g3Schemes[1], g3Schemes[2], onloadGRD,
				onloadRR, onloadMIN}, Published: map[string]float64{}}
		if i == 0 {
			c.Quick = 1
		}
		for n, s := range g3Schemes {
			published := g3Homes[i].took[n]
			c.Published[s] = published
			r.Points = append(r.Points, Point{What: home + ": time, " + g3SchemeNames[n], Unit: "s", Low: published,
				High: published, Aim: AimNear, IsFitted: true,
				Of: func(d Data) []float64 { return d.Values(home, s, Time) }})
		}
		r.Points = append(r.Points, bestSchedulerPoint(c))
		r.Cells = append(r.Cells, c)
		c.Name, c.Reps, c.Published, c.Schemes = fmt.Sprintf("%s, %d photos", home, g3RealPhotos), 1, nil, g3Schemes[:]
		c.Items = func(seed uint64, rep int) []unit.Bytes { return g3PhotoSizes(seed, rep)[:g3RealPhotos] }
		few := c
		few.Name += realPackets
		few.VirtualTime, few.Schemes = false, append(g3Schemes[:], "single:helper1", mptcp, Product)
		r.Cells, real = append(r.Cells, c, few), append(real, few.Name)
	}
	r.Groups = [][]string{real}
	for n, s := range g3Schemes {
		r.Points = append(r.Points, agreementPoint(r.Cells, s, g3SchemeNames[n]))
	}
	return r
}

var g3SchemeNames = [3]string{"ADSL alone", "one phone", "two phones"}

// g3PhotoSizes returns the sizes of photos. Each repetition has its own.
func g3PhotoSizes(seed uint64, rep int) (all []unit.Bytes) {
	rng := vary.Rand(seed, fmt.Sprint("g3/photos ", rep))
	for range g3Photos {
		all = append(all, unit.Bytes(max(g3MinSize, g3MeanSize+g3Sigma*rng.NormFloat64())))
	}
	return all
}

// g3ImpliedRates returns the rates in Mbit/s that the seconds of a home imply: ADSL, the first
// phone, the second one.
func g3ImpliedRates(home int) (rates [3]float64) {
	before := 0.0
	for i, seconds := range g3Homes[home].took {
		all := g3Photos * g3MeanSize * 8 / 1e6 / seconds
		rates[i], before = all-before, all
	}
	return rates
}

// g3ImpliedText describes what the published values imply about the homes' lines.
func g3ImpliedText() string {
	text := "The published seconds and rates of ADSL do not fit 75 MB:"
	for i, h := range g3Homes {
		r := g3ImpliedRates(i)
		text += fmt.Sprintf(" home %d with %.2f Mbit/s would take %.0f s and took %.0f, which is %.2f Mbit/s "+
			"(or %.1f MB in all), its phones %.2f and %.2f Mbit/s;",
			i+1, h.up, g3Photos*g3MeanSize*8/1e6/h.up, h.took[0], r[0], h.up*h.took[0]/8, r[1], r[2])
	}
	return text[:len(text)-1] + ". So the published rates are not those that lines are synchronised to, or photos " +
		"were smaller."
}

// g3HomeNetwork returns the network of a home.
func g3HomeNetwork(home int) (*lab.Topology, error) {
	r := g3ImpliedRates(home)
	line := func(payload float64) string { return fmt.Sprintf("%.4f", payload/lab.PayloadShare) }
	t, err := lab.Triangle(fmt.Sprintf("%g/%s/20,%s/20", g3Homes[home].down, line(r[1]), line(r[2])))
	if err != nil {
		return nil, err
	}
	return t, setHomeLinks(t, line(r[0])+"Mbit/s")
}
