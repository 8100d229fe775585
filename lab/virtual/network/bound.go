// SPDX-License-Identifier: Apache-2.0

package network

import (
	"math"
	"sort"
	"time"
)

// Bound has the least times that a network allows a bond for the measured object of a workload,
// from its request on. Both count packet headers, random loss as lost capacity, the delay of each
// path, and the round trip of the request over the shortest path. The bond is connected before.
// Helpers have buffers without limit.
type Bound struct {
	// Fluid assumes links that are always used.
	Fluid time.Duration `json:"fluid"`
	// SlowStart also assumes that the window of each TCP connection begins with ten packets and
	// doubles with each round trip. For a warm object it begins with what the objects before can
	// have made of it.
	SlowStart time.Duration `json:"slow_start"`
}

// Bounds returns the bounds of a workload that begins at startAt. They are 0 where no bound is
// known: for small requests beside bulk, and for a video on a changing network, since the time at
// which its segments begin depends on the scheme.
func Bounds(n *Network, w *Workload) (b Bound) {
	switch {
	case w.Kind == Beside || n.Changing && w.Kind == Video:
		return Bound{}
	case w.Kind == Page:
		// Each object of a connection takes a round trip.
		rounds := (len(w.Sizes) + pageConnections - 1) / pageConnections
		least := time.Duration(rounds) * n.shortestPathRTT()
		b = objectBound(n, w, 0)
		return Bound{max(b.Fluid, least), max(b.SlowStart, least)}
	case w.Kind == Video:
		for i := range w.Objects {
			one := objectBound(n, w, i)
			b.Fluid += one.Fluid
			b.SlowStart += one.SlowStart
		}
		return b
	}
	return objectBound(n, w, w.Objects-1)
}

// objectBound returns the bounds of an object that follows a number of others.
func objectBound(n *Network, w *Workload, before int) Bound {
	least := n.shortestPathRTT()
	request := startAt + w.Begin
	begin := request + least/2
	back := time.Duration(0)
	if w.Direction == Upload { // the data leaves with the request, the answer comes back
		begin -= least / 2
		back = least / 2
	}
	need := float64(w.Size) * 1500 / mss
	var paths [2][]*flowPath
	for i := range n.Paths {
		for k := range paths {
			paths[k] = append(paths[k], newFlowPath(&n.Paths[i], w, begin, k == 1, before))
		}
	}
	end := func(all []*flowPath) time.Duration {
		at := findEarliest(func(t time.Duration) bool {
			sum := 0.0
			for _, p := range all {
				sum += p.maxArrived(t)
			}
			return sum >= need
		}, begin)
		if at == never {
			return never
		}
		return at - request + back
	}
	return Bound{end(paths[0]), end(paths[1])}
}

// shortestPathRTT returns the round trip of the shortest path.
func (n *Network) shortestPathRTT() time.Duration {
	least := never
	for i := range n.Paths {
		d := time.Duration(0)
		for j := range n.Paths[i].Hops {
			h := &n.Paths[i].Hops[j]
			d += h.Up.Delay + h.Down.Delay
		}
		least = min(least, d)
	}
	return least
}

// findEarliest returns the first time at which reached is true. It may return up to
// a two-thousandth of it more, at least 10 µs.
func findEarliest(reached func(time.Duration) bool, from time.Duration) time.Duration {
	step := time.Millisecond
	for !reached(from + step) {
		if step > 24*time.Hour {
			return never
		}
		step *= 2
	}
	lo, hi := from, from+step
	for hi-lo > max((hi-startAt)/2000, 10*time.Microsecond) {
		if m := (lo + hi) / 2; reached(m) {
			hi = m
		} else {
			lo = m
		}
	}
	return hi
}

// flowPath computes what can have arrived over a path by a time.
type flowPath struct {
	hops  []*flowHop
	delay time.Duration
}

// flowHop is a hop of a flowPath. Its capacity is that of its link; its window limits what enters.
type flowHop struct {
	link   *Link
	offset time.Duration // delay of the hops before it: its first byte may enter then
	begin  time.Duration
	steps  []float64     // bytes that the link can carry until each of its rate steps
	window float64       // bytes of the first round trip; +Inf: no limit
	rtt    time.Duration // of this hop
}

// newFlowPath returns the path of a workload whose data begins to move at begin. slowStart adds the
// windows of slow start, after a number of objects before.
func newFlowPath(p *Path, w *Workload, begin time.Duration, slowStart bool, before int) *flowPath {
	f := &flowPath{}
	hops := make([]*Hop, 0, 2)
	for i := range p.Hops {
		hops = append(hops, &p.Hops[i])
	}
	if w.Direction == Download && len(hops) == 2 {
		hops[0], hops[1] = hops[1], hops[0]
	}
	for _, h := range hops {
		l := h.linkInDirection(w.Direction)
		g := &flowHop{link: l, offset: f.delay, begin: begin, window: math.Inf(1), rtt: h.Up.Delay + h.Down.Delay}
		if slowStart {
			g.window = initialWindow
			g.window += float64(w.Size) / mss * float64(before)
			g.window *= 1500
		}
		sum := 0.0
		for i := range l.Rates {
			if i > 0 {
				sum += float64(l.Rates[i-1].Rate) / 8 * (l.Rates[i].At - l.Rates[i-1].At).Seconds()
			}
			g.steps = append(g.steps, sum)
		}
		f.delay += l.Delay
		f.hops = append(f.hops, g)
	}
	return f
}

// maxLinkBytes returns the bytes that the link can have carried by t, since the time 0.
func (g *flowHop) maxLinkBytes(t time.Duration) float64 {
	i := sort.Search(len(g.link.Rates), func(i int) bool { return g.link.Rates[i].At > t }) - 1
	if i < 0 {
		return 0
	}
	return (g.steps[i] + float64(g.link.Rates[i].Rate)/8*(t-g.link.Rates[i].At).Seconds()) * (1 - g.link.Loss)
}

// maxDepartedBytes returns the most bytes that can have left the hop by t.
func (g *flowHop) maxDepartedBytes(t time.Duration) float64 {
	from := g.begin + g.offset
	if t <= from {
		return 0
	}
	all := g.maxLinkBytes(t) - g.maxLinkBytes(from)
	if math.IsInf(g.window, 1) || g.rtt <= 0 {
		return all
	}
	// Rounds that the window limits: what has entered by the end of a round, and then the link.
	sum, window := 0.0, g.window
	for at := from; at < t; at += g.rtt {
		// Everything that entered before this round has left by now at most; what enters later
		// leaves at the rate of the link.
		if rest := g.maxLinkBytes(t) - g.maxLinkBytes(at); sum+rest < all {
			all = sum + rest
		}
		sum += window
		if window *= 2; sum > all {
			break
		}
	}
	return min(all, sum)
}

// maxArrived returns the most bytes that can have arrived over the path by t. For each moment
// before t, the bytes that leave the second hop by t have left the first hop before that moment, or
// leave the second hop after it: both are bounded.
func (f *flowPath) maxArrived(t time.Duration) float64 {
	last := f.hops[len(f.hops)-1]
	t -= last.link.Delay
	all := last.maxDepartedBytes(t)
	if len(f.hops) == 1 {
		return all
	}
	first := f.hops[0]
	from := last.begin + last.offset
	end := last.maxLinkBytes(t)
	consider := func(moment time.Duration) {
		if moment > from && moment <= t {
			all = min(all, first.maxDepartedBytes(moment-first.link.Delay)+end-last.maxLinkBytes(moment))
		}
	}
	consider(t)
	for _, r := range last.link.Rates {
		consider(r.At)
	}
	for _, r := range first.link.Rates {
		consider(r.At + first.link.Delay)
	}
	return all
}
