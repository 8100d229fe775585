// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"

	"mpbond/lab/app"
	"mpbond/lab/radio"
)

// pageSchemes are compared in row s10.
var pageSchemes = []string{phoneWiFi, phoneMPTCPWiFi, phoneOurs}

// pageCell describes a cell of row s10: pages of a kind of sites at a place, loaded in a browser by one
// protocol, or by the lab's client.
type pageCell struct {
	place   phonePlace
	site    phoneApp    // row s5 or s6
	browser app.Browser // "": the lab's client
}

// pageCells returns the cells of row s10.
func pageCells() (all []pageCell) {
	for _, place := range []string{"WgLg", "WbLg"} {
		for _, a := range phoneApps() {
			if a.metric.Name != LoadTime.Name {
				continue
			}
			for _, browser := range []app.Browser{app.BrowserHTTP1, app.BrowserHTTP2, ""} {
				all = append(all, pageCell{phonePlaceNamed(place), a, browser})
			}
		}
	}
	return all
}

// cellName returns the name of the cell.
func (p pageCell) cellName() string {
	how := "lab's client"
	if p.browser != "" {
		how = "Chromium, " + string(p.browser)
	}
	return fmt.Sprintf("%s, %s, %s", p.place.name, p.site.name, how)
}

// withClient returns the cell of the same pages with another client.
func (p pageCell) withClient(browser app.Browser) pageCell {
	p.browser = browser
	return p
}

// pageStructures is how many structures of pages a cell has.
const pageStructures = 3

// rowS10Browser loads pages of rows s5 and s6 in Chromium.
func rowS10Browser(radio.Set) Row {
	r := Row{ID: "s10", Title: "Smartphone, WiFi and LTE: pages in a browser", Source: phonePaper, Judged: phoneOurs,
		Study: PhoneRows, isUnpublished: true,
		Setup: phoneSetup() + fmt.Sprintf(" Headless Chromium loads %d structures of large and of small sites, the first "+
			"ones of rows s5 and s6, as real files over TLS: by HTTP/1.1 with six connections to each host, and by HTTP/2 "+
			"with one. Its cache is empty. The time of the script is that until the load event, by its navigation "+
			"timing. It reaches kernel MPTCP by mptcpize and mpbond by SOCKS5. The lab's client loads the same structures by "+
			"HTTP/1.1.", pageStructures),
		NotCovered: "the study loaded real sites; the limits are our requirements. Chromium opens at most 32 connections " +
			"over a proxy, and 256 otherwise, so with HTTP/1.1 mpbond has fewer than the other schemes. With HTTP/2 it opens " +
			"up to six to a new host and closes all but one",
		Metrics: []Metric{ScriptTime, LoadTime, LinkShare("wlan0")}}
	var inBrowser []Cell
	for _, p := range pageCells() {
		c := Cell{Name: p.cellName(), Network: p.place.buildPhoneTopology, Schemes: pageSchemes, Reps: pageStructures,
			App: func(seed uint64, rep int) app.Script {
				s := p.site.script(p.place, seed, rep)
				s.Browser = p.browser
				return s
			}}
		c.Alone = p.browser != "" // a browser needs the processors itself
		if p.place.name == "WgLg" && p.site.row == "s6" && p.browser == app.BrowserHTTP2 {
			c.Quick = 1
		}
		r.Cells = append(r.Cells, c)
		if p.browser != "" {
			inBrowser = append(inBrowser, c)
		}
	}
	r.Points = []Point{{What: "pages load at most 3 % slower in a browser than by WiFi alone", Unit: "%",
		Low: maxPhoneLoss, High: maxPhoneLoss, PublishedText: "all (claimed)", Aim: AimAtMost,
		Cases: casesPerCell(inBrowser, func(d Data, c Cell) caseValue {
			s := Summarize(d.Changes(c.Name, [2]string{phoneOurs, phoneWiFi}, ScriptTime))
			return newCaseValue(s.N > 0, s.Mean, "%.1f %% slower", s.Mean)
		})},
		{What: "no pair of schemes has another order in a browser than with the lab's client", Unit: "pairs",
			PublishedText: "all (claimed)", Aim: AimAtMost, Cases: casesPerCell(inBrowser, Data.oppositePairs)}}
	return r
}

// oppositePairs returns how many pairs of schemes have the opposite order in a cell with a browser
// and with the lab's client, of those that are surely apart with both.
func (d Data) oppositePairs(c Cell) caseValue {
	opposite, measured := 0, false
	for _, p := range pageCells() {
		if p.cellName() != c.Name {
			continue
		}
		for i, a := range pageSchemes {
			for _, b := range pageSchemes[:i] {
				here, ok := d.orderOf(p, a, b, ScriptTime)
				there, alsoOK := d.orderOf(p.withClient(""), a, b, LoadTime)
				measured = ok && alsoOK
				if here*there < 0 {
					opposite++
				}
			}
		}
	}
	return newCaseValue(measured, float64(opposite), "%d pairs", opposite)
}

// orderOf returns the sign of how much longer pages take by scheme a than by b, 0 if that is not sure;
// false if not all were measured.
func (d Data) orderOf(p pageCell, a, b string, m Metric) (sign float64, measured bool) {
	s := Summarize(d.Changes(p.cellName(), [2]string{a, b}, m))
	if s.N < pageStructures {
		return 0, false
	}
	return signOf(s), true
}
