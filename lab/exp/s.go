// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/app"
	"mpbond/lab/radio"
)

// phonePaper is the source of rows s1 to s11.
const phonePaper = "Saha et al. 2017, Multipath TCP in Smartphones"

// Schemes of the rows of smartphones. Each uses links of the phone's own.
const (
	phoneWiFi      = "single:if=wlan0"
	phoneLTE       = "single:if=wwan0"
	phoneMPTCPWiFi = "mptcp:own:first=wlan0"
	phoneMPTCPLTE  = "mptcp:own:first=wwan0"
	phoneOurs      = "mpbond:if=wlan0+wwan0"

	// The kernel of the study had coupled congestion control. The present one has it only in these.
	phoneLIAWiFi = phoneMPTCPWiFi + ":cc=lia"
	phoneLIALTE  = phoneMPTCPLTE + ":cc=lia"
)

var (
	phoneSchemes = []string{phoneWiFi, phoneLTE, phoneMPTCPWiFi, phoneMPTCPLTE, phoneOurs}

	// phoneVersions are the versions of MPTCP that the study compares. phoneCoupledVersions are the same
	// with LIA.
	phoneVersions        = [2]string{phoneMPTCPWiFi, phoneMPTCPLTE}
	phoneCoupledVersions = [2]string{phoneLIAWiFi, phoneLIALTE}
)

// phonePlace is a place of the study: a good or bad WiFi, and a good or bad LTE. The study names no
// rates: these are assumed.
type phonePlace struct {
	name      string
	wifi, lte phoneLink
}

// phonePlaceNamed returns the place of the study with that name.
func phonePlaceNamed(name string) phonePlace {
	i := slices.IndexFunc(phonePlaces, func(p phonePlace) bool { return p.name == name })
	return phonePlaces[i]
}

// phoneLink is a link of the phone; rates in Mbit/s.
type phoneLink struct {
	down, up    float64
	delay, loss string // one way
	bad         bool
}

var (
	goodWiFi = phoneLink{down: 30, up: 30, delay: "10ms"}
	badWiFi  = phoneLink{down: 4, up: 2, delay: "20ms", loss: "0.7%", bad: true}
	goodLTE  = phoneLink{down: 25, up: 10, delay: "27.5ms"}
	badLTE   = phoneLink{down: 3, up: 1.5, delay: "42.5ms", bad: true}

	phonePlaces = []phonePlace{{"WgLg", goodWiFi, goodLTE}, {"WgLb", goodWiFi, badLTE}, {"WbLg", badWiFi, goodLTE},
		{"WbLb", badWiFi, badLTE}}
)

// buildPhoneTopology returns a network whose primary has two links to the server, and no helper.
// The radio of LTE sleeps at the start.
func (p phonePlace) buildPhoneTopology(uint64) (*lab.Topology, error) {
	t, err := lab.Triangle("50")
	if err != nil {
		return nil, err
	}
	delete(t.Link, "ps")
	for _, l := range []struct {
		name string
		kind radio.Kind
		of   phoneLink
	}{{"wlan0", radio.WiFi, p.wifi}, {"wwan0", radio.LTE, p.lte}} {
		link := &lab.Link{Ends: [2]string{"primary", "server"}}
		link.Delay, link.Loss = l.of.delay, l.of.loss
		link.Up = &lab.LinkSettings{Rate: fmt.Sprintf("%gMbit/s", l.of.up)}
		link.Down = &lab.LinkSettings{Rate: fmt.Sprintf("%gMbit/s", l.of.down)}
		if l.kind == radio.LTE {
			m, err := radio.Sets[0].Model(l.kind)
			if err != nil {
				return nil, err
			}
			link.SetRadio(m)
		}
		t.Link[l.name] = link
	}
	t.Node["primary"].Routes = []string{"default via wlan0"}
	return t, t.Check()
}

// phoneApp is an app of the study.
type phoneApp struct {
	row, name string
	script    func(p phonePlace, seed uint64, rep int) app.Script
	upload    bool
	reps      int
	metric    Metric
	more      []Metric
	wins      Metric // by which users notice that multipath is better; its zero value: metric
	// isTimed says that the script moves what it can in a fixed time: energy and time count for each
	// byte.
	isTimed bool
	// coupled says that MPTCP runs with LIA too.
	coupled bool
	// signs are the published signs at the places, in order.
	signs [4]phoneSigns
}

// phoneSigns are the published signs of one app at one place, of performance and energy.
type phoneSigns struct{ performance, energy phoneSign }

// phoneSign says how multipath compares with the better single link: '+' better, '=' the same, '-'
// worse, '!' not better, '~' not worse, '.' not published. One sign is that of the better of two
// versions. Two are those of connections that begin over WiFi, and over LTE.
type phoneSign string

// Metrics of scripts.
var (
	// Goodput counts the time in which a request was open.
	Goodput = Metric{Name: "goodput", Unit: "Mbit/s", More: true, Of: func(r lab.Result) (float64, bool) {
		return appValue(r, func(l app.Log) float64 { return l.Goodput() / 1e6 })
	}}
	// ScriptTime is how long the whole script took. In a browser that is the time until the load event,
	// by its navigation timing.
	ScriptTime = Metric{Name: "time of the script", Unit: "s", Of: func(r lab.Result) (float64, bool) {
		return appValue(r, func(l app.Log) float64 { return l.Seconds })
	}}
	// LoadTime is the time until the last object of a page has arrived.
	LoadTime = Metric{Name: "page load time", Unit: "s", Of: func(r lab.Result) (float64, bool) {
		return appValue(r, app.Log.LoadTime)
	}}
	// RequestTime is the mean time of a script's requests.
	RequestTime = Metric{Name: "request time", Unit: "s", Of: func(r lab.Result) (float64, bool) {
		if r.App == nil {
			return 0, false
		}
		s := Summarize(r.App.RequestTimes())
		return s.Mean, s.N > 0
	}}
	// FirstRange is the time until the first request is complete.
	FirstRange = Metric{Name: "time to the first 512 KB", Unit: "s", Of: func(r lab.Result) (float64, bool) {
		return appValue(r, app.Log.FirstEnd)
	}}
)

// appValue returns a value of a script's log. ok is false without one.
func appValue(r lab.Result, f func(app.Log) float64) (v float64, ok bool) {
	if r.App == nil {
		return 0, false
	}
	return f(*r.App), true
}

// playedMedia returns a metric of media that a script's answers are.
func playedMedia(name, unitName string, m app.Media, f func(app.Playback) float64) Metric {
	return Metric{Name: name, Unit: unitName, Of: func(r lab.Result) (float64, bool) {
		return appValue(r, func(l app.Log) float64 { return f(l.Play(m)) })
	}}
}

// LinkShare returns the metric of the share of bytes, in percent, that a link carried in the
// direction of the data.
func LinkShare(link string) Metric {
	return Metric{Name: "bytes by " + link, Unit: "%", Of: func(r lab.Result) (float64, bool) {
		all := unit.Bytes(0)
		for _, n := range r.Links {
			all += n
		}
		return 100 * float64(r.Links[link]) / float64(max(all, 1)), all > 0
	}}
}

// Promotions returns the metric of how often a radio woke.
func Promotions(set radio.Set, kind radio.Kind) Metric {
	return Metric{Name: fmt.Sprintf("promotions of %s", kind), Unit: "", needsPackets: true,
		Of: func(r lab.Result) (float64, bool) {
			m, err := set.Model(kind)
			if err != nil || len(r.Traffic) == 0 {
				return 0, false
			}
			n := 0
			for _, t := range radioTraces(r) {
				if t.Radio == kind && t.Device == "primary" {
					n += countPromotions(m, t.Packets)
				}
			}
			return float64(n), true
		}}
}

// countPromotions returns how often a radio wakes for packets, if it sleeps before them.
func countPromotions(m radio.Model, packets []radio.Packet) (n int) {
	tail := time.Duration(0)
	for _, p := range m.Tail {
		tail += p.Time
	}
	tail = max(tail, m.Inactivity)
	packets = slices.SortedFunc(slices.Values(packets), func(a, b radio.Packet) int { return int(a.At - b.At) })
	for i, p := range packets {
		if i == 0 || p.At-packets[i-1].At > tail {
			n++
		}
	}
	return n
}

// phonePlay is how long YouTube plays.
const phonePlay = time.Minute

// phoneApps are the apps of the study in the order of its tables.
func phoneApps() []phoneApp {
	youtube := app.YouTube(phonePlay)
	startUp := playedMedia("start-up", "s", *youtube.Media, func(p app.Playback) float64 { return p.StartUp })
	stalled := playedMedia("stalled", "s", *youtube.Media, func(p app.Playback) float64 { return p.Stalled })
	waiting := playedMedia("start-up and stalled", "s", *youtube.Media, func(p app.Playback) float64 {
		return p.StartUp + p.Stalled
	})
	fixed := func(s app.Script) func(phonePlace, uint64, int) app.Script {
		return func(phonePlace, uint64, int) app.Script { return s }
	}
	seeded := func(draw func(uint64) app.Script) func(phonePlace, uint64, int) app.Script {
		return func(_ phonePlace, seed uint64, rep int) app.Script { return draw(seed*1000 + uint64(rep)) }
	}
	return []phoneApp{
		{row: "s1", name: "SpeedTest", script: fixed(app.SpeedTest()), reps: 5, metric: Goodput, isTimed: true,
			coupled: true,
			signs:   [4]phoneSigns{{"+", "+"}, {"=-", "=."}, {"-", "-"}, {"+", "+"}}},
		{row: "s2", name: "Dropbox", upload: true, reps: 5, metric: Goodput,
			script: func(p phonePlace, _ uint64, _ int) app.Script {
				if p.wifi.bad || p.lte.bad {
					return app.Dropbox(12 * unit.MB)
				}
				return app.Dropbox(40 * unit.MB)
			},
			signs: [4]phoneSigns{{"-", "-"}, {"-", "-"}, {"+", "-"}, {"+", "-"}}},
		{row: "s3", name: "Spotify", script: fixed(app.Spotify()), reps: 5, metric: Goodput, more: []Metric{FirstRange},
			signs: [4]phoneSigns{{"~.", "=."}, {"~.", "=."}, {"+", "-"}, {"+!", "+!"}}},
		{row: "s4", name: "YouTube", script: fixed(youtube), reps: 4, metric: Goodput, wins: waiting,
			more: []Metric{startUp, stalled}, coupled: true,
			signs: [4]phoneSigns{{"+", "="}, {"+", "="}, {"+", "="}, {"!+", "+"}}},
		{row: "s5", name: "large sites", script: seeded(app.LargeSite), reps: 12, metric: LoadTime,
			signs: [4]phoneSigns{{"-", "-"}, {"-", "+"}, {"!", "-"}, {"+!", "-"}}},
		{row: "s6", name: "small sites", script: seeded(app.SmallSite), reps: 12, metric: LoadTime,
			signs: [4]phoneSigns{{"-", "-"}, {"-", "-"}, {"!", "-"}, {"-", "-"}}},
		{row: "s7", name: "Facebook", script: seeded(app.Facebook), reps: 4, metric: RequestTime,
			signs: [4]phoneSigns{{"!", "!"}, {"!", "!"}, {"!", "+"}, {"-!", "-"}}},
		{row: "s8", name: "Messenger", script: seeded(app.Messenger), reps: 4, metric: RequestTime,
			signs: [4]phoneSigns{{"!", "-"}, {"!", "+!"}, {"!", "-"}, {"+!", "-="}}},
	}
}

// phoneRows returns rows s1 to s8.
func phoneRows(set radio.Set) (all []Row) {
	for _, a := range phoneApps() {
		all = append(all, a.rowOfApp(set))
	}
	return all
}

// rowOfApp returns the row of an app.
func (a phoneApp) rowOfApp(set radio.Set) Row {
	r := Row{ID: a.row, Title: "Smartphone, WiFi and LTE: " + a.name, Source: phonePaper, Judged: phoneOurs,
		Study: PhoneRows, Setup: phoneSetup() + " " + energySetup(set),
		NotCovered: "the app of 2017 itself, its servers and content; a phone's power meter; the utilisation " +
			"relative to the clock of its cores",
		Metrics: slices.Concat([]Metric{a.metric}, a.more, []Metric{a.energyMetric(set), Energy(set, "primary", true),
			CPUEnergy(set, "primary"), CPU("primary"), LinkShare("wlan0"), Promotions(set, radio.LTE)}),
	}
	for i, p := range phonePlaces {
		c := Cell{Name: p.name, Network: p.buildPhoneTopology, Upload: a.upload, Schemes: phoneSchemes, Reps: a.reps,
			App: func(seed uint64, rep int) app.Script { return a.script(p, seed, rep) }}
		if i == 0 {
			c.Quick = 1
		}
		r.Points = append(r.Points, a.signPoints(c, set, a.signs[i], phoneVersions, "")...)
		if a.coupled {
			c.Schemes = append(slices.Clone(c.Schemes), phoneCoupledVersions[:]...)
			r.Points = append(r.Points, a.signPoints(c, set, a.signs[i], phoneCoupledVersions, ", with LIA")...)
		}
		r.Cells = append(r.Cells, c)
	}
	r.Points = append(r.Points, a.sizePoints()...)
	r.Points = append(r.Points, a.promisePoints(r.Cells, set)...)
	return r
}

// sizePoints returns the points of the published sizes of effects.
func (a phoneApp) sizePoints() (all []Point) {
	if a.isTimed {
		for _, place := range []string{"WgLg", "WbLb"} {
			all = append(all, Point{What: place + ": goodput of the better version over the better link", Unit: "%", Low: 65,
				High: 125, Aim: AimIncrease, Of: func(d Data) []float64 {
					return d.gainOverLinks(place, d.bestScheme(place, []string{phoneMPTCPWiFi, phoneMPTCPLTE}, a.metric), a.metric)
				}})
		}
	}
	for _, place := range map[string][]string{"s5": {"WgLg", "WgLb"}, "s6": {"WgLg", "WgLb", "WbLb"}}[a.row] {
		all = append(all, Point{What: place + ": page load time begun over WiFi, over that of WiFi alone", Unit: "%", Low: 75,
			High: 130, Aim: AimIncrease, Of: func(d Data) []float64 {
				return d.Changes(place, [2]string{phoneMPTCPWiFi, phoneWiFi}, a.metric)
			}})
	}
	return all
}

// phoneEnergy returns the energy of both radios, with tails, and of the processor.
func phoneEnergy(set radio.Set) Metric {
	radios, cpu := Energy(set, "primary", true), CPUEnergy(set, "primary")
	return Metric{Name: "E", Unit: "J", needsPackets: true, energySet: &set, Of: func(r lab.Result) (float64, bool) {
		a, ok1 := radios.Of(r)
		b, ok2 := cpu.Of(r)
		return a + b, ok1 && ok2
	}}
}

// energyMetric returns the energy of the app: of both radios and the processor, for each MB if the script
// moves what it can.
func (a phoneApp) energyMetric(set radio.Set) Metric {
	if a.isTimed {
		return perMegabyte(phoneEnergy(set))
	}
	return phoneEnergy(set)
}

// waitingTime returns the time that users wait for, for each MB if the script moves what it can.
func (a phoneApp) waitingTime() Metric {
	switch {
	case a.isTimed:
		return Metric{Name: "time per MB", Unit: "s", Of: func(r lab.Result) (float64, bool) {
			v, ok := Goodput.Of(r)
			return 8 / v, ok && v > 0
		}}
	case a.wins.Of != nil:
		return a.wins
	}
	return Time
}

// gainOverLinks returns by how many percent a scheme is better than the better single link, for
// each repetition.
func (d Data) gainOverLinks(cell, scheme string, m Metric) []float64 {
	best := d.bestScheme(cell, []string{phoneWiFi, phoneLTE}, m)
	all := d.Changes(cell, [2]string{scheme, best}, m)
	if !m.More {
		for i := range all {
			all[i] = -all[i]
		}
	}
	return all
}

// signPoints returns the points of a place: the published signs of kernel MPTCP, in two versions, whose
// names end in suffix.
func (a phoneApp) signPoints(c Cell, set radio.Set, signs phoneSigns, versions [2]string, suffix string) (all []Point) {
	for _, x := range []struct {
		what   string
		metric Metric
		signs  phoneSign
	}{{a.metric.Name, a.metric, signs.performance}, {"energy", a.energyMetric(set), signs.energy}} {
		for i, sign := range x.signs {
			p := Point{What: fmt.Sprintf("%s: %s, how much better than the better single link%s", c.Name, x.what, suffix),
				Unit: "%", Aim: AimSign}
			if len(x.signs) == 1 {
				p.Of = func(d Data) []float64 {
					return d.gainOverLinks(c.Name, d.bestScheme(c.Name, versions[:], x.metric), x.metric)
				}
			} else {
				p.What += [...]string{", begun over WiFi", ", begun over LTE"}[i]
				p.Of = func(d Data) []float64 { return d.gainOverLinks(c.Name, versions[i], x.metric) }
			}
			switch sign {
			case '.':
				continue
			case '!':
				p.Aim, p.PublishedText = AimNotMore, "not better"
			case '~':
				p.Aim, p.PublishedText = AimNotLess, "not worse"
			case '+':
				p.Low, p.PublishedText = 1, "better"
			case '-':
				p.Low, p.PublishedText = -1, "worse"
			case '=':
				p.PublishedText = "the same"
			}
			p.High = p.Low
			all = append(all, p)
		}
	}
	return all
}

// Promises of mpbond on a phone, each for every place.
const (
	maxPhoneLoss    = 3.0   // percent, relative to the better single link
	maxRequestLoss  = 0.003 // s, of mean request times instead
	maxPhoneEnergy  = 1.05  // relative to the cheaper of the links that are about as fast
	aboutAsFast     = 3.0   // percent
	worthOfJoule    = 0.010 // s that an additional joule must save
	leastShareOfOne = 99.0  // percent of the bytes by one link
)

// promisePoints returns what mpbond promises in the cells of the row.
func (a phoneApp) promisePoints(cells []Cell, set radio.Set) []Point {
	energy := a.energyMetric(set)
	surely := Point{What: "no loss: nowhere surely behind the better single link", Unit: "%", Low: 0, High: 0,
		PublishedText: "all (claimed)", Aim: AimAtMost,
		Cases: casesPerCell(cells, func(d Data, c Cell) caseValue {
			s := Summarize(d.gainOverLinks(c.Name, phoneOurs, a.metric))
			_, high := s.confidenceInterval()
			return newCaseValue(s.N > 1, -high, "%s", s.Text("%"))
		})}
	noLoss := Point{What: "no loss: at most 3 % behind the better single link", Unit: "%", Low: maxPhoneLoss,
		High: maxPhoneLoss, PublishedText: "all (claimed)", Aim: AimAtMost,
		Cases: casesPerCell(cells, func(d Data, c Cell) caseValue {
			s := Summarize(d.gainOverLinks(c.Name, phoneOurs, a.metric))
			loss := -s.Mean
			if best := d.bestScheme(c.Name, []string{phoneWiFi, phoneLTE}, a.metric); a.metric.Name == RequestTime.Name {
				if x := Summarize(d.Differences(c.Name, [2]string{phoneOurs, best}, a.metric)); x.Mean <= maxRequestLoss {
					loss = min(loss, 0)
				}
			}
			return newCaseValue(s.N > 0, loss, "%.1f %% behind", loss)
		})}
	energyPoint := Point{What: "no loss of energy: at most 5 % more than the cheaper link, or each joule saves 10 ms",
		Unit: "", Low: maxPhoneEnergy, High: maxPhoneEnergy, PublishedText: "all (claimed)", Aim: AimAtMost,
		Cases: casesPerCell(cells, func(d Data, c Cell) caseValue {
			ours, ok := d.phoneValue(c.Name, phoneOurs, energy)
			base, link, found := d.cheaperLink(c.Name, a.metric, energy)
			if !ok || !found {
				return caseValue{}
			}
			saved := d.savedSeconds(c.Name, link, a.waitingTime())
			if more := ours - base; more > 0 && saved >= worthOfJoule*more {
				return newCaseValue(true, 0, "%.1f J more save %.2f s", more, saved)
			}
			return newCaseValue(true, ours/base, "%.2f times the energy of %s", ours/base, link)
		})}
	metric := a.metric
	if a.wins.Of != nil {
		metric = a.wins
	}
	wins := Point{What: "wins kept: at least as good as kernel MPTCP where that is surely better than both links",
		Unit: "%", Low: 0, High: 0, PublishedText: "all (claimed)", Aim: AimAtMost,
		Cases: casesPerCell(cells, func(d Data, c Cell) caseValue {
			best := d.bestScheme(c.Name, []string{phoneMPTCPWiFi, phoneMPTCPLTE}, metric)
			s := Summarize(d.gainOverLinks(c.Name, best, metric))
			if low, _ := s.confidenceInterval(); s.N == 0 || low <= 0 {
				return newCaseValue(s.N > 0, 0, "MPTCP is not surely better than one link")
			}
			change := d.Changes(c.Name, [2]string{phoneOurs, best}, metric)
			x := Summarize(change)
			behind := x.Mean
			if metric.More {
				behind = -x.Mean
			}
			if behind-x.Half <= 0 { // within its interval
				behind = min(behind, 0)
			}
			return newCaseValue(x.N > 0, behind, "%.1f %% behind %s", behind, best)
		})}
	all := []Point{surely, noLoss, wins, energyPoint}
	if a.metric.Name != LoadTime.Name && a.metric.Name != RequestTime.Name {
		return all
	}
	goodWiFi := slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return phonePlaceNamed(c.Name).wifi.bad })
	all = append(all, Point{What: "one link carries at least 99 % of the bytes where WiFi is good", Unit: "%",
		Low: leastShareOfOne, High: leastShareOfOne, PublishedText: "all (claimed)", Aim: AimAtLeast,
		Cases: casesPerCell(goodWiFi, func(d Data, c Cell) caseValue {
			share, ok := d.phoneValue(c.Name, phoneOurs, LinkShare("wlan0"))
			return newCaseValue(ok, max(share, 100-share), "%.1f %%", max(share, 100-share))
		})})
	if a.metric.Name == RequestTime.Name {
		all = append(all, Point{What: "LTE sleeps where WiFi is good", Unit: "promotions", Low: 0, High: 0,
			PublishedText: "all (claimed)", Aim: AimAtMost,
			Cases: casesPerCell(goodWiFi, func(d Data, c Cell) caseValue {
				n, ok := d.phoneValue(c.Name, phoneOurs, Promotions(set, radio.LTE))
				return newCaseValue(ok, n, "%.1f promotions", n)
			})})
	}
	return all
}

// phoneValue returns the mean of a metric.
func (d Data) phoneValue(cell, scheme string, m Metric) (mean float64, ok bool) {
	s := Summarize(d.Values(cell, scheme, m))
	return s.Mean, s.N > 0
}

// cheaperLink returns the energy of the single link that needs the least of those that are about as
// fast as the faster one.
func (d Data) cheaperLink(cell string, metric, energy Metric) (least float64, link string, ok bool) {
	fastest := d.bestScheme(cell, []string{phoneWiFi, phoneLTE}, metric)
	for _, s := range []string{phoneWiFi, phoneLTE} {
		change := Summarize(d.Changes(cell, [2]string{s, fastest}, metric)).Mean
		if metric.More {
			change = -change
		}
		if s != fastest && change > aboutAsFast {
			continue
		}
		if e, measured := d.phoneValue(cell, s, energy); measured && (!ok || e < least) {
			least, link, ok = e, s, true
		}
	}
	return least, link, ok
}

// savedSeconds returns how much less time mpbond takes than a link.
func (d Data) savedSeconds(cell, link string, taken Metric) float64 {
	return -Summarize(d.Differences(cell, [2]string{phoneOurs, link}, taken)).Mean
}

// phoneSetup describes the places.
func phoneSetup() string {
	var places []string
	for _, l := range []struct {
		name string
		of   phoneLink
	}{{"good WiFi", goodWiFi}, {"bad WiFi", badWiFi}, {"good LTE", goodLTE}, {"bad LTE", badLTE}} {
		text := fmt.Sprintf("%s %g/%g", l.name, l.of.down, l.of.up)
		if l.of.loss != "" {
			text += " with " + l.of.loss + " loss"
		}
		places = append(places, text)
	}
	return "A phone with WiFi and LTE at four places; Wg and Wb are good and bad WiFi, Lg and Lb good and bad LTE. " +
		"Rates down/up in Mbit/s, which the study does not name: " + strings.Join(places, "; ") + "; round trips 20, " +
		"40, 55 and 85 ms. The radio of LTE sleeps at the start, and the programs know it. Apps are scripts " +
		"(lab/app), the same for all schemes of a repetition. MPTCP begins over the link that its scheme names; " +
		"the present kernel has one packet scheduler, which prefers the subflow that drains first, where that of " +
		"2017 preferred the least round trip. That kernel also coupled the windows of subflows; s1 and s4 have MPTCP " +
		"with LIA (RFC 6356) too, as a BPF program, where this machine's kernel accepts it."
}
