//go:build !router

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"mpbond/api"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/internal/cli"
	"mpbond/link/wire"
)

const (
	// keptRates is how many samples of a rate are kept: 5 minutes.
	keptRates = 600
	// keptNews is how many changes are kept.
	keptNews = 100
	// leastSpark is how many columns a sparkline needs to be worth anything.
	leastSpark = 8
)

// onloadFor is a part of the keys of those who onload.
const onloadFor = " onloads for "

// topView is what `mpbond top` knows: what it draws depends on nothing else.
type topView struct {
	last   look
	lanes  [][]topLane            // of last.all
	rates  map[string][]unit.Rate // both ways together, by what it is of
	before map[string]relayedAt   // of helpers, to reckon their rate
	news   []string               // oldest first

	appList []topLane // apps that are connected
	apps    []appsAt  // of the last second
}

// relayedAt is what a helper had relayed at a time.
type relayedAt struct {
	at    time.Time
	bytes unit.Bytes
}

// topLane is one line with a rate.
type topLane struct {
	key, name, state string
	tier             string // and whether it is metered; "" for tier primary
	down, up         unit.Rate
	pad              string
	waiting          unit.Bytes
	bad              bool
}

// look takes what all do now.
func (v *topView) look(l look) {
	v.last, v.lanes = l, nil
	rates, before := map[string][]unit.Rate{}, map[string]relayedAt{}
	for _, s := range l.all {
		lanes := v.lanesOf(s)
		v.lanes = append(v.lanes, lanes)
		for _, x := range lanes {
			if x.key == "" {
				continue
			}
			list := append(v.rates[x.key], x.down+x.up)
			rates[x.key] = list[max(0, len(list)-keptRates):]
		}
		if s.Helper != nil {
			before[s.Role] = relayedAt{l.at, s.Helper.RelayedBytes}
		}
		if s.Onload != nil {
			for name, t := range s.Onload.ByDevice() {
				before[s.Role+onloadFor+name] = relayedAt{l.at, t.Bytes}
			}
		}
	}
	v.appList = v.appLanes(l)
	for _, x := range v.appList {
		list := append(v.rates[x.key], x.down+x.up)
		rates[x.key] = list[max(0, len(list)-keptRates):]
	}
	v.rates, v.before = rates, before
}

// tell takes a change.
func (v *topView) tell(line string) {
	v.news = append(v.news, line)
	v.news = v.news[max(0, len(v.news)-keptNews):]
}

// lanesOf is what one mpbond carries bytes over. It asks for before, as the last
// look left it.
func (v *topView) lanesOf(s api.Status) (list []topLane) {
	for _, b := range s.Bonds {
		for _, p := range b.Paths {
			x := topLane{name: p.Device, state: strings.TrimSpace(p.Kind + " " + p.State), down: p.RxRate, up: p.TxRate, bad: p.State == api.Down || p.State == api.Silent, tier: tierWords(p.Tier, p.Metered)}
			if p.ID == 0 {
				x.state += ": " + p.LastError
			} else {
				x.key = fmt.Sprint(s.Role, b.ID, p.ID)
				x.pad, x.waiting = cli.Milliseconds(p.PADms), p.BacklogBytes
			}
			list = append(list, x)
		}
	}
	if h := s.Helper; h != nil && h.Primary != "" {
		x := topLane{key: s.Role + " relays", name: h.Primary, state: fmt.Sprintf("relayed, %d", h.Subflows), waiting: h.BufferBytes}
		if was, ok := v.before[s.Role]; ok {
			x.down = unit.RateOf(max(h.RelayedBytes-was.bytes, 0), v.last.at.Sub(was.at)) // both ways: it knows no more
		}
		list = append(list, x)
	}
	if s.Onload != nil {
		by := s.Onload.ByDevice()
		for _, name := range slices.Sorted(maps.Keys(by)) {
			x := topLane{key: s.Role + onloadFor + name, name: name, state: fmt.Sprintf("onloads, %d", by[name].Count)}
			if was, ok := v.before[x.key]; ok { // connections that have ended are missing
				x.down = unit.RateOf(max(by[name].Bytes-was.bytes, 0), v.last.at.Sub(was.at))
			}
			list = append(list, x)
		}
	}
	return list
}

// draw lays everything out for a screen of that size.
func (v *topView) draw(width, height int) (rows []cli.Row) {
	add := func(style int, format string, args ...any) {
		rows = append(rows, cli.Row{Text: cli.Truncate(text.Printable(fmt.Sprintf(format, args...)), width), Style: style})
	}
	if v.last.err != nil {
		add(cli.StyleBad, "%v", v.last.err)
	}
	for i, s := range v.last.all {
		up := time.Duration(s.UptimeSeconds * float64(time.Second)).Round(time.Second)
		add(cli.StyleHead, "%s %s, up %v, %v of memory", s.Role, s.Name, up, s.MemoryBytes)
		for _, b := range s.Bonds {
			add(cli.StylePlain, "bond %s with %s: %d streams, %d datagram flows, %v to schedule, %v out of order", b.ID, b.Peer, b.Streams, b.Flows, b.MetaBytes, b.ReorderBytes)
		}
		v.drawLanes(v.lanes[i], width, add)
		if s.Onload != nil {
			state, today := onloadWords(*s.Onload)
			add(cli.IfElse(s.Onload.Open, cli.StyleDim, cli.StyleBad), "%s", state)
			add(cli.StyleDim, "%s", today)
		}
		for _, d := range s.Devices {
			if !d.Self && !d.Online {
				add(cli.StyleDim, "%s (%s) is not there", d.Name, strings.Join(d.Roles, ", "))
			}
			if text, rests := aboutDevice(d); text != "" {
				add(cli.IfElse(rests, cli.StyleBad, cli.StyleDim), "%s: %s", d.Name, text)
			}
		}
		for _, c := range s.Caps {
			add(cli.IfElse(c.State == policy.CapFine.String(), cli.StyleDim, cli.StyleBad), "%s: %s", c.Name, c.Text)
		}
		for _, p := range s.Pipes {
			if p.Error != "" {
				add(cli.StyleBad, "pipe to %s at %s: %s", p.Device, p.Address, p.Error)
			}
		}
		add(cli.StylePlain, "")
	}
	v.drawApps(width, add)
	if room := height - len(rows) - 1; room > 0 { // the newest changes that there is room for
		for _, line := range v.news[max(0, len(v.news)-room):] {
			add(cli.StyleDim, "%s", line)
		}
	}
	for len(rows) < height-1 {
		add(cli.StylePlain, "")
	}
	rows = rows[:max(min(len(rows), height-1), 0)]
	if height > 0 {
		add(cli.StyleDim, "q ends this; rates are means over a second; PAD is the predicted delivery time of a byte sent now")
	}
	return rows
}

// tierWords are of a tier, "" for primary, and of what costs money.
func tierWords(tier string, metered bool) string {
	if tier == wire.TierPrimary.String() {
		tier = ""
	}
	return strings.Trim(tier+", "+cli.IfElse(metered, "metered", ""), ", ")
}

// aboutDevice is what else is to be known of a device, "" for nothing, and whether
// it is kept from carrying.
func aboutDevice(d api.Device) (text string, rests bool) {
	var told []string
	say := func(format string, what string) {
		if what != "" {
			told = append(told, fmt.Sprintf(format, what))
		}
	}
	say("it is %s", cli.IfElse(d.Paused, "paused", ""))
	say("it rests: %s", d.Rests)
	say("tier %s", tierWords(d.Tier, false))
	if power := battery(d.Facts); power != "-" {
		say("battery %s", power)
	}
	told = append(append(told, linkFacts(d.Facts)...), radios(d.Radios)...)
	return strings.Join(told, ", "), d.Paused || d.Rests != "" || d.Facts != nil && d.Facts.Refuses != ""
}

// drawLanes draws the lanes of one mpbond, each with a sparkline where there is
// room: all of one scale, so that they can be compared.
func (v *topView) drawLanes(list []topLane, width int, add func(style int, format string, args ...any)) {
	if len(list) == 0 {
		return
	}
	name, state, tier := len("BY"), len("STATE"), 0
	for _, x := range list {
		name, state, tier = max(name, utf8.RuneCountInString(x.name)), max(state, utf8.RuneCountInString(x.state)), max(tier, len(x.tier))
	}
	name, state = min(name, 20), min(state, 16)
	tierOf := func(string) string { return "" }
	if tier > 0 {
		tierOf = func(s string) string { return fmt.Sprintf("%-*s  ", tier, s) }
	}
	const columns = "  %-*s  %-*s  %s%12s  %12s  %9s  %8s  "
	head := fmt.Sprintf(columns, name, "BY", state, "STATE", tierOf("TIER"), "DOWN", "UP", "PAD", "WAITING")
	note, sparks := v.sparks(list, width-utf8.RuneCountInString(head))
	add(cli.StyleHead, "%s", head+note)
	for _, x := range list {
		line := fmt.Sprintf(columns, name, cli.Truncate(x.name, name), state, cli.Truncate(x.state, state), tierOf(cmp.Or(x.tier, "-")), x.down, x.up, cmp.Or(x.pad, "-"), x.waiting)
		style := cli.StylePlain
		switch {
		case x.bad && x.key == "":
			style, line = cli.StyleBad, fmt.Sprintf("  %-*s  %s", name, cli.Truncate(x.name, name), x.state)
		case x.bad:
			style = cli.StyleBad
		}
		add(style, "%s", line+sparks(x.key))
	}
}

// spark draws the last values, the newest at the right, with top as the full
// height. What is 0 is blank; what is not never is.
func spark(values []unit.Rate, width int, top unit.Rate) string {
	values = values[max(0, len(values)-width):]
	bars := []rune("▁▂▃▄▅▆▇█")
	out := []rune(strings.Repeat(" ", width-len(values)))
	for _, r := range values {
		switch {
		case r <= 0 || top <= 0:
			out = append(out, ' ')
		default:
			out = append(out, bars[min(int(float64(r)/float64(top)*float64(len(bars))), len(bars)-1)])
		}
	}
	return string(out)
}
