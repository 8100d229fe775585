// SPDX-License-Identifier: Apache-2.0

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
	// maxRates is the number of samples kept of a rate: 5 minutes.
	maxRates = 600
	// maxChanges is the number of changes kept.
	maxChanges = 100
	// minSparklineWidth is the least number of columns for a sparkline.
	minSparklineWidth = 8
)

// onloadKeyPart is a part of the keys of primaries that onload.
const onloadKeyPart = " onloads for "

// topView holds the state of `mpbond top`. What it draws depends on nothing else.
type topView struct {
	last     topSnapshot
	rows     [][]topRow             // of last.statuses
	rates    map[string][]unit.Rate // both directions together, by key
	previous map[string]relaySample // of helpers, to compute their rate
	changes  []string               // oldest first

	apps       []topRow    // apps that are connected
	appSamples []appSample // of the last second
}

// relaySample is what a helper had relayed at a time.
type relaySample struct {
	at    time.Time
	bytes unit.Bytes
}

// topRow is one line with rates.
type topRow struct {
	key, name, state string
	tier             string // and whether it is metered; "" for tier primary
	down, up         unit.Rate
	pad              string
	waiting          unit.Bytes
	unhealthy        bool
}

// applySnapshot takes in a new state of all roles.
func (v *topView) applySnapshot(l topSnapshot) {
	v.last, v.rows = l, nil
	rates, before := map[string][]unit.Rate{}, map[string]relaySample{}
	for _, s := range l.statuses {
		list := v.listRoleRows(s)
		v.rows = append(v.rows, list)
		for _, x := range list {
			if x.key == "" {
				continue
			}
			all := append(v.rates[x.key], x.down+x.up)
			rates[x.key] = all[max(0, len(all)-maxRates):]
		}
		if s.Helper != nil {
			before[s.Role] = relaySample{l.at, s.Helper.RelayedBytes}
		}
		if s.Onload != nil {
			for name, t := range s.Onload.ByDevice() {
				before[s.Role+onloadKeyPart+name] = relaySample{l.at, t.Bytes}
			}
		}
	}
	v.apps = v.listAppRows(l)
	for _, x := range v.apps {
		list := append(v.rates[x.key], x.down+x.up)
		rates[x.key] = list[max(0, len(list)-maxRates):]
	}
	v.rates, v.previous = rates, before
}

// addChangeLine takes in a change.
func (v *topView) addChangeLine(line string) {
	v.changes = append(v.changes, line)
	v.changes = v.changes[max(0, len(v.changes)-maxChanges):]
}

// listRoleRows returns the rows of one role. It reads previous, which is of the last snapshot.
func (v *topView) listRoleRows(s api.Status) (list []topRow) {
	for _, b := range s.Bonds {
		for _, p := range b.Subflows {
			x := topRow{name: p.Device, state: strings.TrimSpace(p.Kind + " " + p.State), down: p.RxRate,
				up: p.TxRate, unhealthy: p.State == api.Down ||
					p.State == api.Silent, tier: formatTier(p.Tier, p.Metered)}
			if p.ID == 0 {
				x.state += ": " + p.LastError
			} else {
				x.key = fmt.Sprint(s.Role, b.ID, p.ID)
				x.pad, x.waiting = cli.FormatMilliseconds(p.PADms), p.BacklogBytes
			}
			list = append(list, x)
		}
	}
	if h := s.Helper; h != nil && h.Primary != "" {
		x := topRow{key: s.Role + " relays", name: h.Primary, state: fmt.Sprintf("relayed, %d", h.Subflows),
			waiting: h.BufferBytes}
		if was, ok := v.previous[s.Role]; ok {
			// both directions, which the status does not separate
			x.down = unit.RateOf(max(h.RelayedBytes-was.bytes, 0), v.last.at.Sub(was.at))
		}
		list = append(list, x)
	}
	if s.Onload != nil {
		by := s.Onload.ByDevice()
		for _, name := range slices.Sorted(maps.Keys(by)) {
			x := topRow{key: s.Role + onloadKeyPart + name, name: name,
				state: fmt.Sprintf("onloads, %d", by[name].Count)}
			if was, ok := v.previous[x.key]; ok { // without connections that have ended
				x.down = unit.RateOf(max(by[name].Bytes-was.bytes, 0), v.last.at.Sub(was.at))
			}
			list = append(list, x)
		}
	}
	return list
}

// drawTopView lays everything out for a screen of that size.
func (v *topView) drawTopView(width, height int) (rows []cli.Row) {
	add := func(style int, format string, args ...any) {
		rows = append(rows, cli.Row{Text: cli.Truncate(text.Printable(fmt.Sprintf(format, args...)), width),
			Style: style})
	}
	if v.last.err != nil {
		add(cli.StyleBad, "%v", v.last.err)
	}
	for i, s := range v.last.statuses {
		up := time.Duration(s.UptimeSeconds * float64(time.Second)).Round(time.Second)
		add(cli.StyleHead, "%s %s, up %v, %v of memory", s.Role, s.Name, up, s.MemoryBytes)
		for _, b := range s.Bonds {
			add(cli.StylePlain, "bond %s with %s: %d streams, %d datagram flows, %v to schedule, %v out of order",
				b.ID, b.Peer, b.Streams, b.Flows, b.MetaBytes, b.ReorderBytes)
		}
		v.drawSubflows(v.rows[i], width, add)
		if s.Onload != nil {
			state, today := describeOnload(*s.Onload)
			add(cli.IfElse(s.Onload.Open, cli.StyleDim, cli.StyleBad), "%s", state)
			add(cli.StyleDim, "%s", today)
		}
		for _, d := range s.Devices {
			if !d.Self && !d.Online {
				add(cli.StyleDim, "%s (%s) is away", d.Name, strings.Join(d.Roles, ", "))
			}
			if text, suspended := describeDevice(d); text != "" {
				add(cli.IfElse(suspended, cli.StyleBad, cli.StyleDim), "%s: %s", d.Name, text)
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
	v.drawAppTable(width, add)
	if room := height - len(rows) - 1; room > 0 { // the newest changes that fit
		for _, line := range v.changes[max(0, len(v.changes)-room):] {
			add(cli.StyleDim, "%s", line)
		}
	}
	for len(rows) < height-1 {
		add(cli.StylePlain, "")
	}
	rows = rows[:max(min(len(rows), height-1), 0)]
	if height > 0 {
		add(cli.StyleDim, "q: quit; rates are means over a second; PAD is the predicted delivery time of a byte "+
			"sent now")
	}
	return rows
}

// formatTier formats a tier and whether data costs money; it leaves out the primary tier.
func formatTier(tier string, metered bool) string {
	if tier == wire.TierPrimary.String() {
		tier = ""
	}
	return strings.Trim(tier+", "+cli.IfElse(metered, "metered", ""), ", ")
}

// describeDevice describes further facts of a device, "" if there are none, and reports whether it
// is kept from carrying.
func describeDevice(d api.Device) (text string, suspended bool) {
	var parts []string
	addPart := func(format string, what string) {
		if what != "" {
			parts = append(parts, fmt.Sprintf(format, what))
		}
	}
	addPart("%s", cli.IfElse(d.Paused, "paused", ""))
	addPart("suspended: %s", d.Suspended)
	addPart("tier %s", formatTier(d.Tier, false))
	if power := formatBattery(d.Facts); power != "-" {
		addPart("battery %s", power)
	}
	parts = append(append(parts, listLinkFacts(d.Facts)...), listRadioEnergy(d.Radios)...)
	return strings.Join(parts, ", "), d.Paused || d.Suspended != "" || d.Facts != nil && d.Facts.Refuses != ""
}

// drawSubflows draws the subflows of one role, each with a sparkline if there is room. All
// sparklines have the same scale.
func (v *topView) drawSubflows(list []topRow, width int, add func(style int, format string, args ...any)) {
	if len(list) == 0 {
		return
	}
	name, state, tier := len("DEVICE"), len("STATE"), 0
	for _, x := range list {
		name, state = max(name, utf8.RuneCountInString(x.name)), max(state, utf8.RuneCountInString(x.state))
		tier = max(tier, len(x.tier))
	}
	name, state = min(name, 20), min(state, 16)
	tierOf := func(string) string { return "" }
	if tier > 0 {
		tierOf = func(s string) string { return fmt.Sprintf("%-*s  ", tier, s) }
	}
	const columns = "  %-*s  %-*s  %s%12s  %12s  %9s  %8s  "
	head := fmt.Sprintf(columns, name, "DEVICE", state, "STATE", tierOf("TIER"), "DOWN", "UP", "PAD", "WAITING")
	note, sparks := v.layoutSparklines(list, width-utf8.RuneCountInString(head))
	add(cli.StyleHead, "%s", head+note)
	for _, x := range list {
		line := fmt.Sprintf(columns, name, cli.Truncate(x.name, name), state, cli.Truncate(x.state, state),
			tierOf(cmp.Or(x.tier, "-")), x.down, x.up, cmp.Or(x.pad, "-"), x.waiting)
		style := cli.StylePlain
		switch {
		case x.unhealthy && x.key == "":
			style, line = cli.StyleBad, fmt.Sprintf("  %-*s  %s", name, cli.Truncate(x.name, name), x.state)
		case x.unhealthy:
			style = cli.StyleBad
		}
		add(style, "%s", line+sparks(x.key))
	}
}

// drawSparkline draws the last values, the newest at the right, with top as the full height. Only 0
// is blank.
func drawSparkline(values []unit.Rate, width int, top unit.Rate) string {
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
