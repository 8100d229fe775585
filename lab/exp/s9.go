// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"

	"mpbond/lab/radio"
)

// The apps of the study in the order of its tables: the first ones move much data, the others wait
// for many small answers.
const dataIntensiveApps = 4

// phoneScenario is an app at a place.
type phoneScenario struct {
	app   phoneApp
	place int    // index in phonePlaces
	cell  string // in the record of row s9
}

// phoneScenarios returns all scenarios, by app and place.
func phoneScenarios() (all []phoneScenario) {
	for _, a := range phoneApps() {
		for i, p := range phonePlaces {
			all = append(all, phoneScenario{a, i, recountedCell(a.row, p.name)})
		}
	}
	return all
}

// isDataIntensive reports whether the scenario's app moves much data.
func (s phoneScenario) isDataIntensive() bool {
	return slices.ContainsFunc(phoneApps()[:dataIntensiveApps], func(a phoneApp) bool { return a.row == s.app.row })
}

// phoneCount holds the signs of a scenario for table 3 or 4: of MPTCP begun over WiFi and begun over
// LTE, relative to the better single link.
type phoneCount struct{ overWiFi, overLTE float64 }

// betterSign returns the sign of the better version. A scenario is better than the best single link if
// one version is.
func (c phoneCount) betterSign() float64 { return max(c.overWiFi, c.overLTE) }

// countSigns returns the signs of a metric in a scenario; false if it was not measured.
func (d Data) countSigns(s phoneScenario, m Metric) (c phoneCount, ok bool) {
	wifi := Summarize(d.gainOverLinks(s.cell, phoneMPTCPWiFi, m))
	lte := Summarize(d.gainOverLinks(s.cell, phoneMPTCPLTE, m))
	return phoneCount{signOf(wifi), signOf(lte)}, wifi.N > 0 && lte.N > 0
}

// countScenarios returns how many of the scenarios that among accepts a test holds for. It returns
// no value if one of them was not measured.
func (d Data) countScenarios(among func(phoneScenario) bool, holds func(phoneScenario) (is, ok bool)) []float64 {
	n := 0.0
	for _, s := range phoneScenarios() {
		if !among(s) {
			continue
		}
		is, ok := holds(s)
		if !ok {
			return nil
		}
		if is {
			n++
		}
	}
	return []float64{n}
}

// Scenarios that a count is about.
func anyScenario(phoneScenario) bool { return true }
func scenarioAt(place int) func(phoneScenario) bool {
	return func(s phoneScenario) bool { return s.place == place }
}
func goodWiFiScenario(s phoneScenario) bool { return !phonePlaces[s.place].wifi.bad }

// placeWbLb is the place with two bad links.
const placeWbLb = 3

// newCountPoint returns the point of a published count.
func newCountPoint(what string, published float64, of func(Data) []float64) Point {
	return Point{What: what, Unit: "scenarios", Low: published, High: published, Aim: AimNear, Of: of}
}

// rowS9Counts recounts tables 3, 4 and 5 of the study from the transfers of rows s1 to s8.
func rowS9Counts(set radio.Set) Row {
	r := Row{ID: "s9", Title: "Smartphone, WiFi and LTE: how many of 32 scenarios gain", Source: phonePaper +
		", tables 3 to 5",
		Setup: fmt.Sprintf("Computed from the transfers of rows s1 to s8. A scenario is an app at a place. It is better "+
			"than the best single link if MPTCP is that begins over WiFi or over LTE; the same, if the change is at most "+
			"%d %% or its 95 %% interval includes 0.", sameTolerance),
		NotCovered: "the margin that the study counted as the same, which it does not name; processor time relative to " +
			"the clock of the phone's cores",
		Metrics: []Metric{Time}, Judged: phoneOurs, Study: PhoneRows, tables: phonePicture(set)}
	for _, a := range phoneApps() {
		r.recounts = append(r.recounts, a.row)
	}
	performance := func(d Data, s phoneScenario) (phoneCount, bool) { return d.countSigns(s, s.app.metric) }
	ofEnergy := func(d Data, s phoneScenario) (phoneCount, bool) { return d.countSigns(s, s.app.energyMetric(set)) }
	add := func(what string, published float64, among func(phoneScenario) bool,
		count func(Data, phoneScenario) (phoneCount, bool), is func(phoneCount) bool) {
		r.Points = append(r.Points, newCountPoint(what, published, func(d Data) []float64 {
			return d.countScenarios(among, func(s phoneScenario) (bool, bool) {
				c, ok := count(d, s)
				return is(c), ok
			})
		}))
	}
	better := func(c phoneCount) bool { return c.betterSign() > 0 }
	same := func(c phoneCount) bool { return c.betterSign() == 0 }
	worse := func(c phoneCount) bool { return c.betterSign() < 0 }
	both := func(c phoneCount) bool { return c.overWiFi > 0 && c.overLTE > 0 }
	onlyWiFi := func(c phoneCount) bool { return c.overWiFi > 0 && c.overLTE <= 0 }
	onlyLTE := func(c phoneCount) bool { return c.overWiFi <= 0 && c.overLTE > 0 }
	add("table 3: better performance", 13, anyScenario, performance, better)
	add("table 3: the same performance", 5, anyScenario, performance, same)
	add("table 3: worse performance", 14, anyScenario, performance, worse)
	add("table 3: better, begun over either link", 6, anyScenario, performance, both)
	add("table 3: better only if begun over WiFi", 5, anyScenario, performance, onlyWiFi)
	add("table 3: better only if begun over LTE", 2, anyScenario, performance, onlyLTE)
	add("table 3: better where both links are bad", 6, scenarioAt(placeWbLb), performance, better)
	add("table 3: better, of 16 with much data", 11, phoneScenario.isDataIntensive, performance, better)
	add("table 3: not better, of 16 interactive ones", 14,
		func(s phoneScenario) bool { return !s.isDataIntensive() }, performance,
		func(c phoneCount) bool { return !better(c) })
	r.Points = append(r.Points, beginPoint("begun over WiFi ahead of begun over LTE, of 16 with good WiFi", 12,
		goodWiFiScenario), beginPoint("begun over WiFi ahead of begun over LTE, of 8 with two bad links", 5,
		scenarioAt(placeWbLb)))
	add("table 4: less energy", 7, anyScenario, ofEnergy, better)
	add("table 4: the same energy", 10, anyScenario, ofEnergy, same)
	add("table 4: more energy", 15, anyScenario, ofEnergy, worse)
	add("table 4: less only if begun over WiFi", 3, anyScenario, ofEnergy, onlyWiFi)
	add("table 4: less only if begun over LTE", 3, anyScenario, ofEnergy, onlyLTE)
	add("table 4: less, begun over either link", 1, anyScenario, ofEnergy, both)
	add("table 4: less where both links are bad", 3, scenarioAt(placeWbLb), ofEnergy, better)
	r.Points = append(r.Points,
		crossPoint("better performance and less energy", 4, set, 1, 1),
		crossPoint("better performance and the same energy", 4, set, 1, 0),
		crossPoint("better performance and more energy", 5, set, 1, -1),
		crossPoint("worse performance and less energy", 3, set, -1, 1),
		newCountPoint("table 5: less processor time per second than the best single link", 7, func(d Data) []float64 {
			return d.countScenarios(anyScenario, func(s phoneScenario) (bool, bool) {
				c, ok := d.countSigns(s, CPU("primary"))
				return better(c), ok
			})
		}),
		Point{What: "scenarios in which mpbond is better in time and energy", Unit: "scenarios", Low: leastBetterInBoth,
			High: leastBetterInBoth, PublishedText: fmt.Sprintf("at least %d (claimed)", leastBetterInBoth), Aim: AimAtLeast,
			IsLimit: true, Of: func(d Data) []float64 {
				return d.countScenarios(anyScenario, func(s phoneScenario) (is, ok bool) {
					time := Summarize(d.gainOverLinks(s.cell, phoneOurs, s.app.metric))
					energy := Summarize(d.gainOverLinks(s.cell, phoneOurs, s.app.energyMetric(set)))
					return signOf(time) > 0 && signOf(energy) > 0, time.N > 0 && energy.N > 0
				})
			}})
	return r
}

// leastBetterInBoth is in how many scenarios mpbond must be better in time and energy. Kernel MPTCP
// was in four.
const leastBetterInBoth = 6

// beginPoint returns the point of how often it is better to begin over WiFi.
func beginPoint(what string, published float64, among func(phoneScenario) bool) Point {
	return newCountPoint(what, published, func(d Data) []float64 {
		return d.countScenarios(among, func(s phoneScenario) (is, ok bool) {
			best := d.bestScheme(s.cell, []string{phoneMPTCPWiFi, phoneMPTCPLTE}, s.app.metric)
			return best == phoneMPTCPWiFi, best != ""
		})
	})
}

// crossPoint returns the point of how many scenarios have both a sign of performance and one of
// energy.
func crossPoint(what string, published float64, set radio.Set, performanceSign, energySign float64) Point {
	return newCountPoint(what, published, func(d Data) []float64 {
		return d.countScenarios(anyScenario, func(s phoneScenario) (bool, bool) {
			p, ok1 := d.countSigns(s, s.app.metric)
			e, ok2 := d.countSigns(s, s.app.energyMetric(set))
			return p.betterSign() == performanceSign && e.betterSign() == energySign, ok1 && ok2
		})
	})
}

// phonePicture returns the table of all scenarios: the published signs of performance and energy,
// and those measured with kernel MPTCP and mpbond.
func phonePicture(set radio.Set) func(Record) []Table {
	return func(rec Record) []Table {
		t := Table{
			Title: "Performance and energy relative to the better single link: + better, = the same, − worse, " +
				"≤ not better, ≥ not worse, . not published; one sign of the better version of MPTCP, or two: " +
				"begun over WiFi, and over LTE",
			Head: []string{"app", "place", "published", mptcp, Product, "performance of mpbond", "energy of mpbond"}}
		d := rec.Results
		for _, s := range phoneScenarios() {
			p, ok1 := d.countSigns(s, s.app.metric)
			energy := s.app.energyMetric(set)
			e, ok2 := d.countSigns(s, energy)
			ours, less := Summarize(d.gainOverLinks(s.cell, phoneOurs, s.app.metric)),
				Summarize(d.gainOverLinks(s.cell, phoneOurs, energy))
			if !ok1 || !ok2 || ours.N == 0 || less.N == 0 {
				continue
			}
			published := s.app.signs[s.place]
			t.Add(s.app.name, phonePlaces[s.place].name,
				fmt.Sprintf("P %s E %s", published.performance.readableSigns(), published.energy.readableSigns()),
				fmt.Sprintf("P %s%s E %s%s", signText(p.overWiFi), signText(p.overLTE), signText(e.overWiFi),
					signText(e.overLTE)),
				fmt.Sprintf("P %s E %s", signText(signOf(ours)), signText(signOf(less))),
				ours.Text("%"), less.Text("%"))
		}
		return []Table{t}
	}
}

// signText returns a sign as a character.
func signText(sign float64) string {
	switch {
	case sign > 0:
		return "+"
	case sign < 0:
		return "−"
	}
	return "="
}

// readableSigns returns published signs for people.
func (s phoneSign) readableSigns() (text string) {
	for _, c := range s {
		switch c {
		case '-':
			text += "−"
		case '!':
			text += "≤"
		case '~':
			text += "≥"
		default:
			text += string(c)
		}
	}
	return text
}
