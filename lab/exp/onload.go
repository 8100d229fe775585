// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/shaper"
	"mpbond/onload/board"
	"mpbond/onload/simulate"
)

// Schemes of the rows of onloading. They have the lab's names, in virtual time too.
const (
	onloadScheme                                = "onload" // the default scheduler over all helpers
	onloadGRD, onloadRR, onloadMIN, onloadQueue = onloadScheme + ":grd", onloadScheme + ":rr", onloadScheme + ":min",
		onloadScheme + ":queue"
	golPaper = "3GOL: Rossi et al., CoNEXT 2013"
)

// Metrics of onloading.
var (
	Wasted = Metric{Name: "wasted", Unit: "MB", Of: func(r lab.Result) (float64, bool) {
		return float64(r.Duplicate) / float64(unit.MB), strings.HasPrefix(r.Scheme, onloadScheme)
	}}
	// EndApart is the time between the ends of the first and the last device. Only virtual time has
	// it.
	EndApart = Metric{Name: "devices end apart", Unit: "s", Of: func(r lab.Result) (float64, bool) {
		return r.EndSpread, strings.HasPrefix(r.Scheme, onloadScheme) && r.Virtual != nil
	}}
)

// onloadExperiment returns the experiment of a cell whose items move in virtual time, by the same
// schemes as real ones and over what the same network's links would carry.
func (c Cell) onloadExperiment(reps int, o Options) lab.Experiment {
	m := itemMover{items: func(rep int) []unit.Bytes { return c.itemsOfRepetition(o, rep) }, upload: c.Upload,
		stride: c.Stride}
	ways := sync.OnceValues(func() ([]devicePath, error) {
		t, err := c.buildCellTopology(o)
		if err != nil {
			return nil, err
		}
		return devicePaths(t, c.Upload, time.Duration(reps)*c.Stride+moveAhead)
	})
	p := lab.RunSpec{Schemes: c.Schemes, Reps: reps, RepsByScheme: c.RepsByScheme, Seed: o.Seed}
	return lab.NewVirtualExperiment(c.Name, p, moveCPUTime, func(scheme string, rep int) (r lab.Result) {
		all, err := ways()
		if err == nil {
			r, err = m.runItemTransfer(scheme, all, rep)
		}
		if err != nil {
			r.Error = err.Error()
		}
		return r
	})
}

// moveCPUTime estimates the processor time of a transfer of items in virtual time.
const moveCPUTime = 5 * time.Millisecond

// Link rates are sampled in steps, for longer than any transfer takes.
const (
	moveStep  = 100 * time.Millisecond
	moveAhead = 20 * time.Minute
)

// devicePath is the path of one device.
type devicePath struct {
	device string
	rates  []simulate.Step // of payload, of the slowest link
	rtt    time.Duration
	radio  [2]time.Duration // promotion and tail, if it sleeps
}

// devicePaths returns the direct path and those through helpers, for a time.
func devicePaths(t *lab.Topology, upload bool, length time.Duration) (all []devicePath, err error) {
	dir := lab.Downlink
	if upload {
		dir = lab.Uplink
	}
	add := func(device string, links ...string) {
		w := devicePath{device: device}
		var hops []shaper.Program
		for _, name := range links {
			l := t.Link[name]
			for i, text := range []string{l.Promotion, l.Tail} {
				if text != "" {
					at, e := time.ParseDuration(text)
					err, w.radio[i] = errors.Join(err, e), at
				}
			}
			for _, d := range []lab.Direction{lab.Uplink, lab.Downlink} {
				p, e := l.Program(d)
				err = errors.Join(err, e)
				w.rtt += p.Base.Delay
				if d == dir {
					hops = append(hops, p)
				}
			}
		}
		w.rates = slowestRates(hops, length)
		all = append(all, w)
	}
	add("primary", "ps")
	for i, h := range t.Helpers() {
		add(h, fmt.Sprint("hs", i+1), fmt.Sprint("pipe", i+1))
	}
	return all, err
}

// slowestRates returns the rates of hops in a row.
func slowestRates(hops []shaper.Program, length time.Duration) (rates []simulate.Step) {
	carried, last := make([]*shaper.Capacity, len(hops)), make([]float64, len(hops))
	for i := range hops {
		carried[i] = shaper.NewCapacity(&hops[i])
	}
	for at := time.Duration(0); at < length; at += moveStep {
		least := math.Inf(1)
		for i, h := range carried {
			sum := h.BytesUntil(at + moveStep)
			least = min(least, sum-last[i])
			last[i] = sum
		}
		rate := unit.Rate(math.Round(8 * lab.PayloadShare * least / moveStep.Seconds()))
		if n := len(rates); n == 0 || rates[n-1].Rate != rate {
			rates = append(rates, simulate.Step{At: at, Rate: rate})
		}
	}
	return rates
}

// simulatedPathFrom returns the path from a time on, as far as it is known.
func (w devicePath) simulatedPathFrom(from time.Duration) simulate.Path {
	p := simulate.Path{RTT: w.rtt, Promotion: w.radio[0], Tail: w.radio[1]}
	at := func(t time.Duration) int {
		return sort.Search(len(w.rates), func(i int) bool { return w.rates[i].At > t })
	}
	p.Rates = slices.Clone(w.rates[at(from)-1 : at(from+moveAhead)])
	for i := range p.Rates {
		p.Rates[i].At = max(0, p.Rates[i].At-from)
	}
	return p
}

// itemMover moves items in virtual time.
type itemMover struct {
	items  func(rep int) []unit.Bytes
	upload bool
	stride time.Duration
}

// runItemTransfer computes one transfer by a scheme.
func (m itemMover) runItemTransfer(scheme string, ways []devicePath, rep int) (r lab.Result, err error) {
	name, used, err := parseMover(scheme, ways)
	if err != nil {
		return r, err
	}
	s, err := board.New(name)
	if err != nil {
		return r, err
	}
	c := simulate.Case{Upload: m.upload}
	for _, w := range used {
		c.Paths = append(c.Paths, w.simulatedPathFrom(time.Duration(rep)*m.stride))
	}
	for i, n := range m.items(rep) {
		// As from a server that supports ranges, and to one that keeps what it receives.
		c.Items = append(c.Items, board.Item{Object: i, To: n, Splittable: !m.upload, NoCopies: m.upload})
		r.Bytes += n
	}
	res, err := simulate.Run(c, s)
	r.Seconds, r.SHA, r.Duplicate, r.Devices = res.Took.Seconds(), true, res.Wasted, map[string]unit.Bytes{}
	first := res.Took
	for i, w := range used {
		first = min(first, res.Ended[i])
		r.Devices[w.device] = res.Carried[i]
	}
	r.EndSpread, r.Virtual = (res.Took - first).Seconds(), &lab.VirtualResult{}
	return r, err
}

// parseMover returns the scheduler and the paths of a scheme of the lab.
func parseMover(scheme string, ways []devicePath) (scheduler string, used []devicePath, err error) {
	base, rest, _ := strings.Cut(scheme, ":")
	switch base {
	case "single":
		for _, w := range ways {
			if w.device == cmp.Or(rest, "primary") {
				return board.Default, []devicePath{w}, nil
			}
		}
	case onloadScheme:
		helpers := len(ways) - 1
		scheduler = board.Default
		for _, option := range strings.Split(rest, ":") {
			if n, ok := strings.CutPrefix(option, "helpers="); ok {
				if _, err := fmt.Sscan(n, &helpers); err != nil || helpers < 0 || helpers >= len(ways) {
					return "", nil, fmt.Errorf("%s: %d helpers", scheme, len(ways)-1)
				}
			} else if option != "" {
				scheduler = option
			}
		}
		return scheduler, ways[:1+helpers], nil
	}
	return "", nil, fmt.Errorf("%s cannot move items in virtual time", scheme)
}

// orderChanges returns by how many percent a scheme's times differ from another one's, as the mean
// of several cells in which a repetition meets the same network.
func (d Data) orderChanges(cells []string, pair [2]string) (percent []float64) {
	var by byRep
	for _, c := range cells {
		d.forEachPair(c, pair, Time, func(rep int, ours, base float64) { by.addRepValue(rep, 100*(ours/base-1)) })
	}
	for _, v := range by {
		if len(v) == len(cells) {
			percent = append(percent, meanOfValues(v))
		}
	}
	return percent
}

// recordedMark ends the name of a cell with recordings instead of generated profiles.
const recordedMark = ", recorded"

// mergeRecorded renames cells with recordings to those without where the latter were not run.
func (d Data) mergeRecorded() Data {
	all := Data{}
	for name, results := range d {
		plain := strings.TrimSuffix(name, recordedMark)
		if _, both := d[plain]; plain == name || !both {
			all[plain] = results
		}
	}
	return all
}

// realPackets ends the name of a cell with real packets. The cell without it is the same in virtual
// time.
const realPackets = ", real packets"

// agreementPoint returns a point: how many times as long a scheme takes with real packets as in
// virtual time, over all cells with both.
func agreementPoint(cells []Cell, scheme, name string) Point {
	return Point{What: name + ": time, real by virtual", Unit: "times", Low: 1, High: 1,
		PublishedText: "1 ± 0.15 (required)", Aim: AimNear, IsLimit: true, Of: func(d Data) (times []float64) {
			d = d.mergeRecorded()
			for _, c := range cells {
				if same, is := strings.CutSuffix(c.Name, realPackets); is {
					for _, v := range d.cellChanges([2]string{c.Name, same}, scheme, Time) {
						times = append(times, 1+v/100)
					}
				}
			}
			return times
		}}
}

// sameTimeShare is by how much a time may be longer that counts as the same.
const sameTimeShare = 0.005

// bestSchedulerPoint returns a point: the product's time relative to the best other scheduler of a
// cell. The same transfers decide which is the best.
func bestSchedulerPoint(c Cell) Point {
	return Point{What: c.Name + ": time relative to the best other scheduler", Unit: "times", Low: 1, High: 1 +
		sameTimeShare, PublishedText: "at most 1.005 (required)", Aim: AimAtMost, IsLimit: true,
		Of: func(d Data) (times []float64) {
			d = d.mergeRecorded()
			var others []string
			for _, s := range c.Schemes {
				if s != onloadScheme && strings.HasPrefix(s, onloadScheme) {
					others = append(others, s)
				}
			}
			for _, v := range d.Changes(c.Name, [2]string{onloadScheme, d.bestScheme(c.Name, others, Time)}, Time) {
				times = append(times, 1+v/100)
			}
			return times
		}}
}

// setHomeLinks sets the delays of ADSL and 3G, and the uplink of the home line.
func setHomeLinks(t *lab.Topology, up string) error {
	for name, l := range t.Link {
		switch {
		case name == "ps":
			l.Delay, l.Up = "20ms", &lab.LinkSettings{Rate: up}
		case strings.HasPrefix(name, "hs"):
			l.Delay = "50ms"
		}
	}
	return t.Check()
}
