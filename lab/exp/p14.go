// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"maps"
	"slices"

	"mpbond/lab/radio"
	"mpbond/lab/virtual"
	"mpbond/pbe/cc"
)

// realSetup describes the cells of p14 and p15.
const realSetup = "Places of virtual.Place, drawn from the seed of the run: cells of 5 to 20 MHz, a second one at " +
	"two of three; a signal of 6 to 22 dB that wanders and fades. Blocks are made by a CQI 8 ms old so that a tenth has " +
	"errors, retransmissions add up (chase combining), a subframe serves few users (proportional fair). " +
	"Acknowledgements leave in uplink grants: a request each 5 ms, a grant 4 to 8 ms later. The second carrier comes " +
	"when the first is used to 97 % over 0.5 s. Each 10 s in the mean the device moves to another cell: 30 to 80 ms " +
	"without service, another RNTI, a route of up to 15 ms more; one in five loses the queue. The wired part has 0.9 to " +
	"4 times the rate of the cells, a queue of 5 to 100 ms, cross traffic in bursts of a quarter of it, at one place in " +
	"five a policer, and random loss of 10⁻⁶ to 10⁻². The device is not told its RNTI after a handover."

// placeCell returns the cell of a place with some parts.
func placeCell(name string, number uint64, has virtual.Parts) Cell {
	return pbeModelCell(name, &model{makeCase: func(seed uint64) virtual.Case {
		return virtual.Place(seed/1000, number, seed%1000, has)
	}})
}

// meanRateRatio returns the ratio of pbe's mean rate to that of another scheme, for each repetition.
func meanRateRatio(cells []string, other string) func(Data) []float64 {
	return func(d Data) (all []float64) {
		var ours, theirs byRep
		for _, c := range cells {
			d.forEachPair(c, [2]string{pbe, other}, Rate, func(rep int, a, b float64) {
				ours.addRepValue(rep, a)
				theirs.addRepValue(rep, b)
			})
		}
		for rep := range ours {
			if len(ours[rep]) > 0 {
				all = append(all, meanOfValues(ours[rep])/meanOfValues(theirs[rep]))
			}
		}
		return all
	}
}

// rowP14Cells returns row p14: forty places in cells as they are.
func rowP14Cells(radio.Set) Row {
	r := commonPBERow("p14", "Forty places in cells as they are", "section 6.3.1", realSetup)
	r.Study, r.isUnpublished = CellRows, true
	r.Metrics = append(r.Metrics, DrainTime, Carriers)
	r.Places = true
	var all []string
	for n := range uint64(pbePlaces) {
		c := placeCell(fmt.Sprintf("place %d", n+1), n, virtual.AllParts)
		if n >= pbeQuick {
			c.Quick = 0
		}
		r.Cells = append(r.Cells, c)
		all = append(all, c.Name)
	}
	r.Groups = [][]string{all}
	for _, x := range []struct {
		scheme string
		least  float64
	}{{"bbr", 1.06}, {"cubic", 2.3}, {"verus", 1.6}, {"copa", 11}} {
		r.Points = append(r.Points, Point{What: "mean rate relative to " + x.scheme + "'s", Unit: "times", Low: x.least,
			High: x.least, Aim: AimFactor, Of: meanRateRatio(all, x.scheme)})
	}
	for _, x := range []struct {
		scheme string
		most   float64
		text   string
	}{{"bbr", 1 / 1.8, "1/1.8"}, {"cubic", 1 / 1.8, "1/1.8"}, {"verus", 1 / 3.6, "1/3.6"}} {
		r.Points = append(r.Points, r.fractionPoint(all, x.scheme, DelayP95, x.most, x.text))
	}
	for _, x := range []struct {
		scheme    string
		low, high float64
	}{{pbe, 100, 100}, {"bbr", 83, 83}, {"cubic", 0, 50}, {"copa", 0, 17}} {
		r.Points = append(r.Points, Point{What: "places with a second carrier by any scheme, where " + x.scheme + " has one",
			Unit: "%", Low: x.low, High: x.high, Aim: AimNear, Of: secondActivated(all, x.scheme)})
	}
	r.Points = append(r.Points, Point{What: "time in drain and internet, mean", Unit: "%", Low: 4, High: 18, Aim: AimNear,
		Of: perRepValues(all, meanOfValues, DrainTime)})
	return r
}

// secondActivated returns the part of the places at which a scheme activated a second carrier, of those at which some
// scheme did.
func secondActivated(cells []string, scheme string) func(Data) []float64 {
	return func(d Data) (all []float64) {
		var by byRep
		reps := map[int]bool{}
		for _, c := range cells {
			most := map[int]float64{}
			for _, s := range cc.Names {
				for _, r := range d.countedResults(c, s) {
					if v, ok := Carriers.Of(r); ok {
						most[r.Rep] = max(most[r.Rep], v)
					}
				}
			}
			for _, r := range d.countedResults(c, scheme) {
				reps[r.Rep] = true
				if v, ok := Carriers.Of(r); ok && most[r.Rep] > 1 {
					on := 0.0
					if v > 1 {
						on = 100
					}
					by.addRepValue(r.Rep, on)
				}
			}
		}
		for _, rep := range slices.Sorted(maps.Keys(reps)) {
			v := 0.0 // no scheme has one anywhere
			if rep < len(by) && len(by[rep]) > 0 {
				v = meanOfValues(by[rep])
			}
			all = append(all, v)
		}
		return all
	}
}

// partPlaces is the number of places of p15: each repetition is another one.
const partPlaces = 12

// rowP15Parts returns row p15: what each part of cells as they are does.
func rowP15Parts(radio.Set) Row {
	r := commonPBERow("p15", "Parts of cells as they are, one by one", "none: ours", "Places of p14, another one in each "+
		"repetition, with one of their parts, with none and with all: which part makes which difference between "+
		"controllers.")
	r.Study, r.isUnpublished = CellRows, true
	r.Metrics = []Metric{Rate, DelayP95, DrainTime, Carriers}
	for _, x := range []struct {
		name string
		has  virtual.Parts
	}{
		{"none", virtual.Parts{}},
		{"uplink grants", virtual.Parts{Uplink: true}},
		{"blocks and fading", virtual.Parts{Blocks: true}},
		{"carriers by use", virtual.Parts{Carriers: true}},
		{"handovers", virtual.Parts{Handovers: true}},
		{"wired part", virtual.Parts{Wire: true}},
		{"loss", virtual.Parts{Loss: true}},
		{"all", virtual.AllParts},
	} {
		c := pbeModelCell(x.name, &model{makeCase: func(seed uint64) virtual.Case {
			return virtual.Place(seed/1000, seed%1000%partPlaces, 1, x.has)
		}})
		if c.Schemes, c.Reps = []string{pbe, "bbr", "cubic", "copa"}, partPlaces; x.name != "all" {
			c.Quick = 0
		}
		r.Cells = append(r.Cells, c)
	}
	for _, c := range r.Cells {
		for _, other := range []string{"bbr", "cubic", "copa"} {
			p := r.factorPoint([]string{c.Name}, other, Rate, 0.98, "0.98 (required)")
			p.Aim, p.IsLimit = AimAtLeast, true
			r.Points = append(r.Points, p)
		}
		r.Points = append(r.Points, r.fractionPoint([]string{c.Name}, "bbr", DelayP95, 1, "shorter (required)"))
	}
	return r
}
