package lab

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/shaper"
)

// A packet of 1500 IP bytes carries 1448 of payload: 20 of IPv4, 20 of TCP
// and 12 of its timestamp option are headers.
const (
	packetIP      = 1500
	packetPayload = 1448
)

// PayloadShare is the part of IP bytes that is an app's, where packets are full.
const PayloadShare = float64(packetPayload) / packetIP

// boundStep is the grid on which the fluid flows; crossings are interpolated.
const boundStep = time.Millisecond

// maxBound ends the search of a transfer that the links cannot carry.
const maxBound = 4 * time.Hour

// Bound is the fluid bound of a transfer of n payload bytes between primary
// and server: the earliest time by which the links, used perfectly from the
// start, can have delivered its IP bytes, plus two round trips of the direct
// path (connect, request). A helper passes on what it has got as fast as its
// second link allows, and may buffer without limit. Schedules, outages and
// traces start with the transfer; random loss counts as lost capacity; delays
// of helped paths, and anything between server and web, count nothing. Links of
// a cell get what they would get of it alone, and all of them together what so
// many users get.
func Bound(t *Topology, n unit.Bytes, upload bool) (time.Duration, error) {
	return boundAt(t, n, upload, 0)
}

// boundAt is that of a transfer that begins so far into schedules, outages and
// traces.
func boundAt(t *Topology, n unit.Bytes, upload bool, into time.Duration) (time.Duration, error) {
	groups, err := t.fluidGroups(upload)
	if err != nil {
		return 0, err
	}
	for _, g := range groups {
		g.skipTo(into)
	}
	rtt, err := t.directRTT()
	if err != nil {
		return 0, err
	}
	need := float64(n) * packetIP / packetPayload
	before := 0.0
	for at := boundStep; at <= maxBound; at += boundStep {
		sum := 0.0
		for _, g := range groups {
			sum += g.carriedUntil(into + at)
		}
		if sum >= need {
			part := 1.0
			if sum > before {
				part = (need - before) / (sum - before)
			}
			return at - boundStep + time.Duration(part*float64(boundStep)) + 2*rtt, nil
		}
		before = sum
	}
	return 0, fmt.Errorf("the links cannot carry %v within %v", n, maxBound)
}

// CarriedPayload is the most payload that the links can carry in a time, from the start
// of schedules, outages and traces, as in Bound.
func CarriedPayload(t *Topology, upload bool, length time.Duration) (unit.Bytes, error) {
	groups, err := t.fluidGroups(upload)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for at := boundStep; at <= length; at += boundStep {
		sum = 0
		for _, g := range groups {
			sum += g.carriedUntil(at)
		}
	}
	return unit.Bytes(sum * PayloadShare), nil
}

// fluidGroup is the paths by one direction of a cell, or those by none.
type fluidGroup struct {
	paths         []*fluidPath
	cellShare     *shaper.Capacity // of all of them together, or nil
	carriedBefore float64          // of which so much passed before the transfer
}

// skipTo lets a time pass in which nothing is sent.
func (g *fluidGroup) skipTo(until time.Duration) {
	for _, p := range g.paths {
		p.skipTo(until)
	}
	if g.cellShare != nil {
		g.carriedBefore = g.cellShare.BytesUntil(until)
	}
}

func (g *fluidGroup) carriedUntil(at time.Duration) (sum float64) {
	for _, p := range g.paths {
		sum += p.carriedUntil(at)
	}
	if g.cellShare != nil {
		sum = min(sum, g.cellShare.BytesUntil(at)-g.carriedBefore)
	}
	return sum
}

// fluidGroups are all paths in the direction in which the data flow, by cell.
func (t *Topology) fluidGroups(upload bool) (groups []*fluidGroup, err error) {
	paths, err := t.fluidPaths(upload)
	if err != nil {
		return nil, err
	}
	by, lines := map[cellDirection]*fluidGroup{}, map[cellDirection]int{}
	for _, p := range paths {
		if by[p.cell] == nil {
			by[p.cell] = &fluidGroup{}
			groups = append(groups, by[p.cell])
		}
		by[p.cell].paths = append(by[p.cell].paths, p)
		lines[p.cell] += p.cellLines
	}
	for cell, g := range by {
		if cell.name == "" {
			continue
		}
		prog, err := t.Cell[cell.name].Program(cell.dir)
		if err != nil {
			return nil, err
		}
		g.cellShare = shaper.NewCellShare(&prog, lines[cell])
	}
	return groups, nil
}

// cellDirection is one direction of a cell; the zero value is none.
type cellDirection struct {
	name string
	dir  Direction
}

// fluidPath is one or two hops in a row, each of all lines between two nodes.
type fluidPath struct {
	hops        [][]*fluidLine
	cell        cellDirection // the one that all lines of a hop are in, and how many
	cellLines   int           // these are
	hopCapacity []float64     // what each hop may have sent so far, in all
	passedOn    []float64     // what each hop has passed on
}

// skipTo lets a time pass in which nothing is sent.
func (p *fluidPath) skipTo(until time.Duration) {
	for i, h := range p.hops {
		for _, line := range h {
			p.hopCapacity[i] += line.carriedUntil(until)
		}
	}
}

func (p *fluidPath) carriedUntil(at time.Duration) float64 {
	arrived := 0.0
	for i, h := range p.hops {
		c := 0.0
		for _, line := range h {
			c += line.carriedUntil(at)
		}
		p.passedOn[i] += c - p.hopCapacity[i]
		p.hopCapacity[i] = c
		if i > 0 {
			p.passedOn[i] = min(p.passedOn[i], arrived)
		}
		arrived = p.passedOn[i]
	}
	return arrived
}

// appendHop puts a hop after those before it.
func (p *fluidPath) appendHop(hop []*fluidLine) {
	p.hops, p.hopCapacity, p.passedOn = append(p.hops, hop), append(p.hopCapacity, 0), append(p.passedOn, 0)
	other := func(l *fluidLine) bool { return l.cell != hop[0].cell }
	if p.cell.name == "" && !slices.ContainsFunc(hop, other) {
		p.cell, p.cellLines = hop[0].cell, len(hop)
	}
}

// newFluidLine is a line, and what it would get of its cell if no other one took of it.
type fluidLine struct {
	linkCapacity, cellAlone *shaper.Capacity // alone: nil outside a cell
	cell                    cellDirection
	last                    [2]float64 // own and alone so far
	total                   float64
}

func (l *fluidLine) carriedUntil(at time.Duration) float64 {
	if l.cellAlone == nil {
		return l.linkCapacity.BytesUntil(at)
	}
	now := [2]float64{l.linkCapacity.BytesUntil(at), l.cellAlone.BytesUntil(at)}
	l.total += min(now[0]-l.last[0], now[1]-l.last[1])
	l.last = now
	return l.total
}

// newFluidLine makes the line of a link that begins at a node.
func (t *Topology) newFluidLine(from, link string) (*fluidLine, error) {
	prog, err := t.lineProgram(from, link)
	if err != nil {
		return nil, err
	}
	l := &fluidLine{linkCapacity: shaper.NewCapacity(&prog)}
	if name := t.Link[link].Cell; name != "" {
		end, err := t.endIndex(from, link)
		if err != nil {
			return nil, err
		}
		l.cell = cellDirection{name, Direction(end)}
		cell, err := t.Cell[name].Program(l.cell.dir)
		if err != nil {
			return nil, err
		}
		l.cellAlone = shaper.NewCellShare(&cell, 1)
	}
	return l, nil
}

// fluidPaths lists a direct path for each link, and one path by each helper, in
// the direction in which the data flow.
func (t *Topology) fluidPaths(upload bool) (paths []*fluidPath, err error) {
	hop := func(from, to string, links []string) (lines []*fluidLine, err error) {
		if upload {
			from = to
		}
		for _, link := range links {
			l, err := t.newFluidLine(from, link)
			if err != nil {
				return nil, err
			}
			lines = append(lines, l)
		}
		return lines, nil
	}
	add := func(hops ...[]*fluidLine) {
		p := &fluidPath{}
		for _, h := range hops {
			p.appendHop(h)
		}
		paths = append(paths, p)
	}
	for _, link := range t.linksBetween("server", "primary") {
		lines, err := hop("server", "primary", []string{link})
		if err != nil {
			return nil, err
		}
		add(lines)
	}
	for _, h := range t.Helpers() {
		hs, err1 := hop("server", h, t.linksBetween("server", h))
		pipe, err2 := hop(h, "primary", t.linksBetween(h, "primary"))
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		if upload {
			hs, pipe = pipe, hs
		}
		add(hs, pipe)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no way between a node \"primary\" and a node \"server\": the bound is not known")
	}
	return paths, nil
}

// lineProgram is what the line of a link will do that begins at a node.
func (t *Topology) lineProgram(from, link string) (p shaper.Program, err error) {
	end, err := t.endIndex(from, link)
	if err != nil {
		return p, err
	}
	p, err = t.Link[link].Program(Direction(end))
	if err == nil && t.Link[link].LTE != nil && Direction(end) == Downlink {
		var peak unit.Rate
		peak, err = t.peakRate(link)
		p.Base.Rate = min(p.Base.Rate, peak)
	}
	return p, err
}

func (t *Topology) directRTT() (rtt time.Duration, err error) {
	link := t.linkBetween("primary", "server")
	if link == "" {
		return 0, nil
	}
	for _, from := range []string{"primary", "server"} {
		p, err := t.lineProgram(from, link)
		if err != nil {
			return 0, err
		}
		rtt += p.Base.Delay
	}
	return rtt, nil
}
