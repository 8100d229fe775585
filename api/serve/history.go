// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
)

// Samples kept: a minute of seconds and an hour of means.
const (
	sampleInterval = time.Second
	maxSeconds     = 61 // so that a whole minute lies between the ends
	maxMeans       = 361
	samplesPerMean = 10 // samples
	// maxLines bounds the lines of each moment and plot; those with the most bytes are kept. So a
	// moment takes some KB, and all of them 3 MB at most.
	maxLines = 32
)

// counter holds the bytes of a subflow or stream so far, and its predicted delivery time.
type counter struct {
	key, name string // key identifies it, name is the line that it belongs to
	down, up  unit.Bytes
	pad       float64 // ms; 0: unknown
}

// plotLine is one line of a plot at a moment.
type plotLine struct {
	name     string
	down, up float64 // bit/s
	pad      float64 // ms
}

// moment is all lines at a time, by plot.
type moment struct {
	at    time.Time
	lines map[string][]plotLine
}

// History keeps the rates of the last minute and hour for plots. Run fills it. Safe for concurrent
// use.
type History struct {
	mu      sync.Mutex
	seconds []moment // oldest first
	means   []moment
	// lastCounters are the counters of the last sample, by plot and key.
	sampledAt    time.Time
	lastCounters map[string]map[string]counter
}

// Run samples a role each second until ctx ends.
func (h *History) Run(ctx context.Context, r Role) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		h.addCounterSample(time.Now(), r.readRoleCounters())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// readRoleCounters returns what a role has carried so far, by plot.
func (r Role) readRoleCounters() map[string][]counter {
	s := r.currentStatus(false)
	all := map[string][]counter{}
	for _, f := range r.listRoleSubflows() {
		c := counter{
			key:  f.Bond + "/" + strconv.FormatUint(uint64(f.ID), 10),
			down: f.RxBytes,
			up:   f.TxBytes,
			pad:  f.PADms,
		}
		if s.Role == "server" {
			c.down, c.up = c.up, c.down // down is towards the primary
		}
		c.name = lineDevice(s.Role, f)
		all[api.PlotDevices] = append(all[api.PlotDevices], c)
		c.name += " " + strconv.FormatUint(uint64(f.ID), 10)
		all[api.PlotSubflows] = append(all[api.PlotSubflows], c)
	}
	knows := s.Role != "server" // this role finds the apps, now or soon
	add := func(key, dest string, o api.AppInfo, down, up unit.Bytes) {
		c := counter{key, dest, down, up, 0}
		all[api.PlotDestinations] = append(all[api.PlotDestinations], c)
		switch {
		case knows && o.App == "":
			return // else it would move from one line to another
		case knows && o.App != api.AppUnknown:
			c.name = o.App
		}
		all[api.PlotApps] = append(all[api.PlotApps], c)
	}
	for _, f := range r.listRoleStreams() {
		add(f.Bond+"/"+strconv.FormatUint(f.ID, 10), plotDestination(f), f.AppInfo, f.DownBytes, f.UpBytes)
	}
	for _, f := range r.listRoleFlows() {
		add(f.Bond+"/udp "+strconv.FormatUint(f.ID, 10), datagramLine, f.AppInfo, f.DownBytes, f.UpBytes)
	}
	return all
}

// datagramLine is the line of datagram flows, which may have many destinations.
const datagramLine = "datagrams"

// lineDevice returns the device that a subflow counts for.
func lineDevice(role string, f api.BondSubflow) string {
	if role == "server" && f.Peer != f.Device && f.Device != "" {
		return f.Peer + "/" + f.Device // each primary chooses names of devices
	}
	return cmp.Or(f.Device, f.Peer)
}

// plotDestination returns the destination that a stream counts for.
func plotDestination(f api.BondStream) string {
	if host, _, err := net.SplitHostPort(f.Dest); err == nil {
		return host
	}
	return f.Dest
}

// addCounterSample adds the counters of a time.
func (h *History) addCounterSample(at time.Time, all map[string][]counter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.lastCounters == nil
	took := at.Sub(h.sampledAt)
	before := h.lastCounters
	h.sampledAt, h.lastCounters = at, map[string]map[string]counter{}
	m := moment{at, map[string][]plotLine{}}
	for plot, counters := range all {
		now := map[string]counter{}
		sums := map[string]*plotLine{}
		for _, c := range counters {
			was := before[plot][c.key] // the zero counter for a new one
			l := sums[c.name]
			if l == nil {
				l = &plotLine{name: c.name}
				sums[c.name] = l
			}
			l.down += float64(unit.RateOf(max(c.down-was.down, 0), took))
			l.up += float64(unit.RateOf(max(c.up-was.up, 0), took))
			l.pad = max(l.pad, c.pad)
			now[c.key] = c
		}
		h.lastCounters[plot] = now
		for _, l := range sums {
			m.lines[plot] = append(m.lines[plot], *l)
		}
		m.lines[plot] = busiestLines(m.lines[plot])
	}
	if first || took <= 0 {
		return // the period of earlier bytes is unknown
	}
	h.seconds = keepLastMoments(append(h.seconds, m), maxSeconds)
	if len(h.means) == 0 || at.Sub(h.means[len(h.means)-1].at) >= samplesPerMean*sampleInterval-sampleInterval/2 {
		h.means = keepLastMoments(append(h.means, meanMoment(h.seconds[max(len(h.seconds)-samplesPerMean, 0):])), maxMeans)
	}
}

// busiestLines returns the lines with the most bytes, at most maxLines.
func busiestLines(list []plotLine) []plotLine {
	slices.SortFunc(list, func(a, b plotLine) int {
		return cmp.Or(cmp.Compare(b.down+b.up, a.down+a.up), cmp.Compare(a.name, b.name))
	})
	return slices.Clip(list[:min(len(list), maxLines)])
}

// keepLastMoments returns the last n moments.
func keepLastMoments(list []moment, n int) []moment {
	if len(list) > n {
		copy(list, list[len(list)-n:])
		clear(list[n:])
		list = list[:n]
	}
	return list
}

// meanMoment returns the mean of moments, at the time of the last. PADs are means over the moments
// that have one.
func meanMoment(list []moment) moment {
	type sum struct {
		plotLine
		pads float64
	}
	m := moment{list[len(list)-1].at, map[string][]plotLine{}}
	sums := map[string]map[string]*sum{}
	for _, one := range list {
		for plot, plotLines := range one.lines {
			if sums[plot] == nil {
				sums[plot] = map[string]*sum{}
			}
			for _, l := range plotLines {
				s := sums[plot][l.name]
				if s == nil {
					s = &sum{plotLine: plotLine{name: l.name}}
					sums[plot][l.name] = s
				}
				s.down += l.down / float64(len(list))
				s.up += l.up / float64(len(list))
				if l.pad > 0 {
					s.pad += l.pad
					s.pads++
				}
			}
		}
	}
	for plot, named := range sums {
		for _, s := range named {
			s.pad /= max(s.pads, 1)
			m.lines[plot] = append(m.lines[plot], s.plotLine)
		}
		m.lines[plot] = busiestLines(m.lines[plot])
	}
	return m
}

// plotQuery selects a plot.
type plotQuery struct {
	name string // of the plot
	up   bool   // from the primary, else to it
	hour bool   // an hour of means, else a minute of seconds
}

var plotTitles = map[string]string{
	api.PlotDevices:      "by device",
	api.PlotSubflows:     "by subflow",
	api.PlotApps:         "by app",
	api.PlotDestinations: "by destination of apps",
}

// buildHistoryPlot returns a plot. Lines are sorted by name, so that each keeps its colour.
func (h *History) buildHistoryPlot(v plotQuery) api.Plot {
	h.mu.Lock()
	moments := slices.Clone(h.seconds)
	if v.hour {
		moments = slices.Clone(h.means)
	}
	h.mu.Unlock()
	p := api.Plot{Name: v.name, Unit: "bit/s", Times: []time.Time{}, Series: []api.Series{}}
	plotLines := v.name
	direction := "Down"
	if v.up {
		direction = "Up"
	}
	p.Title = fmt.Sprintf("%s %s", direction, plotTitles[v.name])
	if v.name == api.PlotPAD {
		p.Title, p.Unit, plotLines = "Predicted delivery time (PAD) by subflow", "ms", api.PlotSubflows
	}
	at := map[string]int{}
	for i, m := range moments {
		p.Times = append(p.Times, m.at)
		for _, l := range m.lines[plotLines] {
			k, known := at[l.name]
			if !known {
				k = len(p.Series)
				at[l.name] = k
				p.Series = append(p.Series, api.Series{Name: l.name, Values: make([]*float64, len(moments))})
			}
			value := l.down
			switch {
			case v.name == api.PlotPAD && l.pad == 0:
				continue
			case v.name == api.PlotPAD:
				value = l.pad
			case v.up:
				value = l.up
			}
			p.Series[k].Values[i] = &value
		}
	}
	p.Series = slices.DeleteFunc(p.Series, func(s api.Series) bool {
		return !slices.ContainsFunc(s.Values, func(v *float64) bool { return v != nil })
	})
	slices.SortFunc(p.Series, func(a, b api.Series) int { return cmp.Compare(a.Name, b.Name) })
	return p
}
