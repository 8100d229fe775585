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

// How much is kept: a minute second by second, and an hour of means.
const (
	lookEvery   = time.Second
	keptSeconds = 61 // moments, so that a whole minute lies between the ends
	keptMeans   = 361
	meanOf      = 10 // looks
	// maxLanes are kept of each moment and plot, those with the most bytes: so a
	// moment takes some KB, and all of them 3 MB at most.
	maxLanes = 32
)

// counter is what a subflow or stream has carried so far, and how quickly a byte
// would arrive.
type counter struct {
	key, name string // key is of this one, name of what it is counted for
	down, up  unit.Bytes
	pad       float64 // ms; 0: not known
}

// lane is one line of a plot at a moment.
type lane struct {
	name     string
	down, up float64 // bit/s
	pad      float64 // ms
}

// moment is all lanes at a time, by plot.
type moment struct {
	at    time.Time
	lanes map[string][]lane
}

// History keeps rates of the last minute and hour, for plots. It is filled by
// Run, and safe for concurrent use.
type History struct {
	mu      sync.Mutex
	seconds []moment // oldest first
	means   []moment
	// before is what was counted at the last look, by plot and key.
	at     time.Time
	before map[string]map[string]counter
}

// Run looks at a role each second until ctx ends.
func (h *History) Run(ctx context.Context, r Role) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		h.add(time.Now(), r.counters())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// counters are what a role has carried so far, by plot.
func (r Role) counters() map[string][]counter {
	s := r.status(false)
	all := map[string][]counter{}
	for _, f := range r.subflows() {
		c := counter{key: f.Bond + "/" + strconv.FormatUint(uint64(f.ID), 10), down: f.RxBytes, up: f.TxBytes, pad: f.PADms}
		if s.Role == "server" {
			c.down, c.up = c.up, c.down // down is towards the primary
		}
		c.name = laneDevice(s.Role, f)
		all[api.PlotDevices] = append(all[api.PlotDevices], c)
		c.name += " " + strconv.FormatUint(uint64(f.ID), 10)
		all[api.PlotSubflows] = append(all[api.PlotSubflows], c)
	}
	knows := s.Role != "server" // whose streams and flows are, or soon will
	add := func(key, dest string, o api.Owner, down, up unit.Bytes) {
		c := counter{key, dest, down, up, 0}
		all[api.PlotDestinations] = append(all[api.PlotDestinations], c)
		switch {
		case knows && o.App == "":
			return // so that it is not counted for one name first, and then for another
		case knows && o.App != api.AppUnknown:
			c.name = o.App
		}
		all[api.PlotApps] = append(all[api.PlotApps], c)
	}
	for _, f := range r.streams() {
		add(f.Bond+"/"+strconv.FormatUint(f.ID, 10), laneDest(f), f.Owner, f.DownBytes, f.UpBytes)
	}
	for _, f := range r.flows() {
		add(f.Bond+"/udp "+strconv.FormatUint(f.ID, 10), laneFlows, f.Owner, f.DownBytes, f.UpBytes)
	}
	return all
}

// laneFlows is what datagram flows are counted for, each of which may go to many
// destinations.
const laneFlows = "datagrams"

// laneDevice is the device that a subflow is counted for.
func laneDevice(role string, f api.Subflow) string {
	if role == "server" && f.Peer != f.Device && f.Device != "" {
		return f.Peer + "/" + f.Device // names of devices are of each primary's choice
	}
	return cmp.Or(f.Device, f.Peer)
}

// laneDest is where a stream goes.
func laneDest(f api.StreamOf) string {
	if host, _, err := net.SplitHostPort(f.Dest); err == nil {
		return host
	}
	return f.Dest
}

// add takes what was counted at a time.
func (h *History) add(at time.Time, all map[string][]counter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.before == nil
	took := at.Sub(h.at)
	before := h.before
	h.at, h.before = at, map[string]map[string]counter{}
	m := moment{at, map[string][]lane{}}
	for plot, counters := range all {
		now := map[string]counter{}
		sums := map[string]*lane{}
		for _, c := range counters {
			was := before[plot][c.key] // the zero counter of one that has just begun
			l := sums[c.name]
			if l == nil {
				l = &lane{name: c.name}
				sums[c.name] = l
			}
			l.down += float64(unit.RateOf(max(c.down-was.down, 0), took))
			l.up += float64(unit.RateOf(max(c.up-was.up, 0), took))
			l.pad = max(l.pad, c.pad)
			now[c.key] = c
		}
		h.before[plot] = now
		for _, l := range sums {
			m.lanes[plot] = append(m.lanes[plot], *l)
		}
		m.lanes[plot] = busiest(m.lanes[plot])
	}
	if first || took <= 0 {
		return // what came before nobody knows when
	}
	h.seconds = kept(append(h.seconds, m), keptSeconds)
	if len(h.means) == 0 || at.Sub(h.means[len(h.means)-1].at) >= meanOf*lookEvery-lookEvery/2 {
		h.means = kept(append(h.means, mean(h.seconds[max(len(h.seconds)-meanOf, 0):])), keptMeans)
	}
}

// busiest are the lanes with the most bytes, not more than are kept.
func busiest(list []lane) []lane {
	slices.SortFunc(list, func(a, b lane) int {
		return cmp.Or(cmp.Compare(b.down+b.up, a.down+a.up), cmp.Compare(a.name, b.name))
	})
	return slices.Clip(list[:min(len(list), maxLanes)])
}

// kept are the last n of a list.
func kept(list []moment, n int) []moment {
	if len(list) > n {
		copy(list, list[len(list)-n:])
		clear(list[n:])
		list = list[:n]
	}
	return list
}

// mean is the mean of moments, at the last one's time. PADs are means over the
// moments that have one.
func mean(list []moment) moment {
	type sum struct {
		lane
		pads float64
	}
	m := moment{list[len(list)-1].at, map[string][]lane{}}
	sums := map[string]map[string]*sum{}
	for _, one := range list {
		for plot, lanes := range one.lanes {
			if sums[plot] == nil {
				sums[plot] = map[string]*sum{}
			}
			for _, l := range lanes {
				s := sums[plot][l.name]
				if s == nil {
					s = &sum{lane: lane{name: l.name}}
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
			m.lanes[plot] = append(m.lanes[plot], s.lane)
		}
		m.lanes[plot] = busiest(m.lanes[plot])
	}
	return m
}

// view is which plot is wanted.
type view struct {
	name string // of the plot
	up   bool   // bytes from the primary, else to it
	hour bool   // of means, else a minute of seconds
}

var plotTitles = map[string]string{api.PlotDevices: "by device", api.PlotSubflows: "by subflow", api.PlotApps: "by app", api.PlotDestinations: "by destination of apps"}

// plot is what a plot shows. Lines are in the order of their names, so that each
// keeps its colour.
func (h *History) plot(v view) api.Plot {
	h.mu.Lock()
	moments := slices.Clone(h.seconds)
	if v.hour {
		moments = slices.Clone(h.means)
	}
	h.mu.Unlock()
	p := api.Plot{Name: v.name, Unit: "bit/s", Times: []time.Time{}, Series: []api.Series{}}
	lanes := v.name
	direction := "Down"
	if v.up {
		direction = "Up"
	}
	p.Title = fmt.Sprintf("%s %s", direction, plotTitles[v.name])
	if v.name == api.PlotPAD {
		p.Title, p.Unit, lanes = "Predicted delivery time (PAD) by subflow", "ms", api.PlotSubflows
	}
	at := map[string]int{}
	for i, m := range moments {
		p.Times = append(p.Times, m.at)
		for _, l := range m.lanes[lanes] {
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
