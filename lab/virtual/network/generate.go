// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"mpbond/base/unit"
)

// dice draws what a network is made of.
type dice struct{ *rand.Rand }

// logUniform draws a number whose logarithm is uniformly distributed.
func (d dice) logUniform(lo, hi float64) float64 { return lo * math.Exp(d.Float64()*math.Log(hi/lo)) }

// drawLinkRate draws a rate by logUniform.
func (d dice) drawLinkRate(lo, hi unit.Rate) unit.Rate {
	return unit.Rate(d.logUniform(float64(lo), float64(hi)))
}

// drawDuration draws a duration by logUniform.
func (d dice) drawDuration(lo, hi time.Duration) time.Duration {
	return time.Duration(d.logUniform(float64(lo), float64(hi)))
}

// drawBernoulli returns true with probability p.
func (d dice) drawBernoulli(p float64) bool { return d.Float64() < p }

// Ranges of random networks.
const (
	lowRate, highRate     = 300 * unit.Kbps, 200 * unit.Mbps
	lowRTT, highRTT       = 4 * time.Millisecond, 700 * time.Millisecond
	lowQueue, highQueue   = 20 * time.Millisecond, 2 * time.Second
	minQueue              = 10 * 1500 // devices hold some packets however slow they are
	maxLoss               = 0.02
	smallSize             = 2 * unit.KB
	largeSize             = 100 * unit.MB
	longestBound          = 60 * time.Second
	upShareLow, upShareHi = 0.1, 1.0 // of the rate down
)

// Limits restrict what is drawn. The zero value draws everything.
type Limits struct {
	// Class is stable or changing; empty: a third of the networks changes.
	Class string
	// Workload names the workload; empty: any.
	Workload string
	// Drives are recorded rates, of which some changing networks are made.
	Drives []Drive
}

// Drive has the recorded rates of two carriers at the same time.
type Drive struct {
	Rates [2][]RateStep
}

// WorkloadNames are the names of workloads in Limits.
var WorkloadNames = []string{"download", "upload", "cold", "warm", "streams", "page", "video", "beside"}

// Generate returns the network and the workload of a seed. They do not depend on Limits.Class other
// than by their changes.
func Generate(seed uint64, limits Limits) (*Network, *Workload) {
	d := dice{rand.New(rand.NewPCG(seed, 2021))}
	n := &Network{Seed: seed, Changing: d.drawBernoulli(1. / 3)}
	if limits.Class != "" {
		n.Changing = limits.Class == "changing"
	}
	n.drawRandomPaths(d)
	if d.drawBernoulli(0.5) {
		n.addRandomLoss(d)
	}
	if d.drawBernoulli(0.3) {
		n.addRandomJitter(d)
	}
	w := &Workload{Size: unit.Bytes(d.logUniform(float64(smallSize), float64(largeSize))), Streams: 1, Objects: 1}
	if d.drawBernoulli(0.4) {
		w.Direction = Upload
	}
	if d.drawBernoulli(0.4) {
		w.Objects = 2 + d.IntN(9)
	}
	if d.drawBernoulli(0.3) {
		w.Streams = 2 + d.IntN(7)
	}
	if w.Objects > 1 && d.drawBernoulli(0.5) {
		w.Pause = d.drawDuration(50*time.Millisecond, 3*time.Second)
	}
	switch x := d.Float64(); {
	case x < 0.05:
		w.Kind = Page
	case x < 0.1:
		w.Kind = Video
	case x < 0.15:
		w.Kind = Beside
	}
	w.restrictToName(limits.Workload, d)
	w.drawDetails(n, d)
	if n.Changing {
		n.addChanges(d)
		if d.drawBernoulli(0.2) {
			n.applyDriveRates(d, limits.Drives)
		}
	}
	w.reduceToBound(n)
	if n.Changing && w.IsWarm() {
		w.setBegin(n)
	}
	return n, w
}

// restrictToName makes the workload one of that name.
func (w *Workload) restrictToName(name string, d dice) {
	switch name {
	case "download":
		w.Direction = Download
	case "upload":
		w.Direction = Upload
	case "cold":
		w.Objects = 1
	case "warm":
		w.Objects = 2 + d.IntN(9)
	case "streams":
		w.Streams = 2 + d.IntN(7)
	case "page":
		w.Kind = Page
	case "video":
		w.Kind = Video
	case "beside":
		w.Kind = Beside
	}
	if plain := []string{"download", "upload", "cold", "warm", "streams"}; slices.Contains(plain, name) {
		w.Kind = Objects
	}
}

// drawDetails sets what follows from the kind of a workload.
func (w *Workload) drawDetails(n *Network, d dice) {
	switch w.Kind {
	case Page:
		w.Direction, w.Streams, w.Objects, w.Size = Download, 1, 1, 0
		for range pageObjects {
			size := unit.Bytes(d.logUniform(1e3, 150e3))
			w.Sizes, w.Size = append(w.Sizes, size), w.Size+size
		}
	case Video:
		w.Direction, w.Streams, w.Objects = Download, 1, 8
		all := unit.Rate(0)
		for i := range n.Paths {
			all += n.Paths[i].slowestRate(Download)
		}
		w.Size = unit.Rate(float64(min(all, 20*unit.Mbps)) * d.logUniform(0.2, 0.8)).Bytes(segmentLength)
	case Beside:
		w.Objects, w.Pause = 1, 0
		w.Size = max(w.Size, 500*unit.KB)
	}
}

// slowestRate returns the first rate of the slowest link.
func (p *Path) slowestRate(d Direction) unit.Rate {
	r := unit.Rate(math.MaxInt64)
	for i := range p.Hops {
		r = min(r, p.Hops[i].linkInDirection(d).Rates[0].Rate)
	}
	return r
}

// reduceToBound reduces the size of objects until the fluid bound of all of them is at most
// longestBound.
func (w *Workload) reduceToBound(n *Network) {
	if w.Kind == Video || w.Kind == Page {
		return
	}
	for w.Size > smallSize {
		all := *w
		all.Size *= unit.Bytes(w.Objects)
		all.Objects = 1
		if b := Bounds(n, &all); b.Fluid <= longestBound {
			return
		} else if f := float64(longestBound) / float64(b.Fluid); b.Fluid == never || f > 0.9 {
			w.Size = w.Size * 9 / 10
		} else {
			w.Size = unit.Bytes(float64(w.Size) * f)
		}
	}
}

// setBegin sets Begin so that a scheme which takes up to twice as long as the fluid bound for the
// objects before the last one, and some round trips for each, is ready in time.
func (w *Workload) setBegin(n *Network) {
	before := *w
	before.Size *= unit.Bytes(w.Objects - 1)
	before.Objects = 1
	pauses := time.Duration(w.Objects-1) * (w.Pause + 4*n.shortestPathRTT())
	w.Begin = 2*Bounds(n, &before).Fluid + pauses + time.Second
}

// drawRandomPaths draws the paths: a direct one and some over helpers, or more direct ones over own
// links.
func (n *Network) drawRandomPaths(d dice) {
	n.Paths = append(n.Paths, Path{"direct", []Hop{drawServerHop(d, "ps")}})
	if d.drawBernoulli(0.75) {
		for i := range 1 + d.IntN(6) {
			n.Paths = append(n.Paths, Path{fmt.Sprintf("helper%d", i+1),
				[]Hop{drawPipeHop(d, fmt.Sprintf("pipe%d", i+1)), drawServerHop(d, fmt.Sprintf("hs%d", i+1))}})
		}
	} else {
		for i := range 1 + d.IntN(3) {
			n.Paths = append(n.Paths, Path{fmt.Sprintf("own%d", i+1), []Hop{drawServerHop(d, fmt.Sprintf("own%d", i+1))}})
		}
	}
}

// drawServerHop draws a link to the server.
func drawServerHop(d dice, name string) Hop {
	down := d.drawLinkRate(lowRate, highRate)
	up := max(lowRate, unit.Rate(float64(down)*d.logUniform(upShareLow, upShareHi)))
	rtt := d.drawDuration(lowRTT, highRTT)
	queue := d.drawDuration(lowQueue, highQueue)
	return newHopWithQueue(name, up, down, rtt, queue)
}

// drawPipeHop draws a pipe: Bluetooth, WiFi, USB or Ethernet.
func drawPipeHop(d dice, name string) Hop {
	var rate unit.Rate
	var rtt time.Duration
	switch x := d.Float64(); {
	case x < 0.2:
		rate, rtt = d.drawLinkRate(unit.Mbps, 2*unit.Mbps), d.drawDuration(20*time.Millisecond, 50*time.Millisecond)
	case x < 0.7:
		rate, rtt = d.drawLinkRate(2*unit.Mbps, 300*unit.Mbps), d.drawDuration(2*time.Millisecond, 20*time.Millisecond)
	case x < 0.85:
		rate, rtt = d.drawLinkRate(100*unit.Mbps, 400*unit.Mbps), d.drawDuration(time.Millisecond, 3*time.Millisecond)
	default:
		rate, rtt = 1000*unit.Mbps, time.Millisecond
	}
	return newHopWithQueue(name, rate, rate, rtt, d.drawDuration(lowQueue, 200*time.Millisecond))
}

// newHopWithQueue returns a hop with a queue that lasts that long at its rate.
func newHopWithQueue(name string, up, down unit.Rate, rtt, queue time.Duration) Hop {
	link := func(r unit.Rate) Link {
		return Link{Rates: []RateStep{{0, r}}, Delay: rtt / 2, Queue: max(minQueue, r.Bytes(queue))}
	}
	return Hop{Name: name, Up: link(up), Down: link(down)}
}

// addRandomLoss gives about half of the links random loss.
func (n *Network) addRandomLoss(d dice) {
	n.forEachHop(func(h *Hop) {
		if d.drawBernoulli(0.5) {
			p := d.logUniform(1e-4, maxLoss)
			h.Up.Loss, h.Down.Loss = p, p
		}
	})
}

// addRandomJitter gives about half of the links jitter.
func (n *Network) addRandomJitter(d dice) {
	n.forEachHop(func(h *Hop) {
		if d.drawBernoulli(0.5) {
			j := min(d.drawDuration(time.Millisecond, 30*time.Millisecond), h.Down.Delay)
			h.Up.Jitter, h.Down.Jitter = j, j
			if d.drawBernoulli(0.5) {
				h.Up.Reorders, h.Down.Reorders = true, true
			}
		}
	})
}

func (n *Network) forEachHop(f func(h *Hop)) {
	for i := range n.Paths {
		for j := range n.Paths[i].Hops {
			f(&n.Paths[i].Hops[j])
		}
	}
}

// changesUntil is how long rates change. The last one remains.
const changesUntil = 120 * time.Second

// addChanges makes rates change: steps, fades and outages. The first path keeps a rate in the end.
func (n *Network) addChanges(d dice) {
	first := true
	n.forEachHop(func(h *Hop) {
		always := first
		first = false
		if !always && !d.drawBernoulli(0.6) {
			return
		}
		kind := d.IntN(3)
		for _, l := range []*Link{&h.Up, &h.Down} {
			base := l.Rates[0].Rate
			switch kind {
			case 0:
				l.Rates = drawSteppedRates(d, base)
			case 1:
				l.Rates = drawFadingRates(d, base)
			default:
				l.Rates = drawOutages(d, base)
			}
		}
	})
}

// applyDriveRates gives the links to the server of the first two paths the rates of a drive, in
// both directions. It begins somewhere in the drive and repeats it.
func (n *Network) applyDriveRates(d dice, drives []Drive) {
	which, at := d.Float64(), d.Float64()
	if len(drives) == 0 {
		return
	}
	r := drives[int(which*float64(len(drives)))]
	for i := range min(2, len(n.Paths)) {
		hops := n.Paths[i].Hops
		h := &hops[len(hops)-1]
		list := rotateSteps(r.Rates[i], at)
		h.Up.Rates, h.Down.Rates = list, list
		h.Up.Queue, h.Down.Queue = max(h.Up.Queue, driveQueue), max(h.Down.Queue, driveQueue)
	}
}

// driveQueue is the least queue of a link with recorded rates.
const driveQueue = 96 * unit.KB

// rotateSteps returns recorded rates that begin with a later one: that at the given share (0 to 1)
// of their number. After the last one they begin again, until changesUntil. The very last rate,
// which lasts for ever, is at least lowRate.
func rotateSteps(rates []RateStep, share float64) (list []RateStep) {
	begin := int(share * float64(len(rates)))
	at := time.Duration(0)
	for i := begin; at < changesUntil; i++ {
		k := i % len(rates)
		list = append(list, RateStep{at, rates[k].Rate})
		if k+1 < len(rates) {
			at += rates[k+1].At - rates[k].At
		} else {
			at += 500 * time.Millisecond
		}
	}
	last := &list[len(list)-1]
	last.Rate = max(last.Rate, lowRate)
	return list
}

// drawSteppedRates draws a rate that jumps every few seconds.
func drawSteppedRates(d dice, base unit.Rate) (list []RateStep) {
	for at := time.Duration(0); at < changesUntil; at += d.drawDuration(500*time.Millisecond, 10*time.Second) {
		list = append(list, RateStep{at, max(lowRate, unit.Rate(float64(base)*d.logUniform(0.2, 1)))})
	}
	return list
}

// drawFadingRates draws a rate that sinks slowly and recovers.
func drawFadingRates(d dice, base unit.Rate) (list []RateStep) {
	list = append(list, RateStep{0, base})
	at := d.drawDuration(200*time.Millisecond, 5*time.Second)
	for at < changesUntil {
		depth, length := d.logUniform(0.02, 0.5), d.drawDuration(500*time.Millisecond, 8*time.Second)
		const parts = 20
		for i := 1; i <= parts; i++ {
			x := float64(i) / parts
			f := math.Pow(depth, math.Sin(math.Pi*x))
			list = append(list, RateStep{at + time.Duration(x*float64(length)), max(lowRate/10, unit.Rate(float64(base)*f))})
		}
		at += length + d.drawDuration(500*time.Millisecond, 10*time.Second)
	}
	return list
}

// drawOutages draws a rate that is zero at times.
func drawOutages(d dice, base unit.Rate) (list []RateStep) {
	list = append(list, RateStep{0, base})
	at := d.drawDuration(200*time.Millisecond, 8*time.Second)
	for at < changesUntil {
		length := d.drawDuration(100*time.Millisecond, 5*time.Second)
		list = append(list, RateStep{at, 0}, RateStep{at + length, base})
		at += length + d.drawDuration(time.Second, 20*time.Second)
	}
	return list
}
