// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/shaper"
)

// A packet of 1500 IP bytes carries 1448 bytes of payload. IPv4 and TCP headers take 20 bytes each,
// the TCP timestamp option 12.
const (
	packetIP      = 1500
	packetPayload = 1448
)

// PayloadShare is the payload's share of IP bytes where packets are full.
const PayloadShare = float64(packetPayload) / packetIP

// boundStep is the time step of the fluid model. Crossings are interpolated.
const boundStep = time.Millisecond

// maxBound ends the search for the bound of a transfer that the links cannot carry.
const maxBound = 4 * time.Hour

// Bound returns the fluid bound of a transfer of n payload bytes between primary and server. It is
// the earliest time by which perfectly used links can have delivered its IP bytes, plus two round
// trips of the direct path (connect, request).
//
// A helper forwards data as fast as its second link allows and may buffer without limit. Schedules,
// outages and traces start with the transfer. Random loss counts as lost capacity. Delays of helped
// paths, and anything between server and web, count as zero. A link of a cell gets what it would
// get alone; all links of the cell together get what that many users get.
func Bound(t *Topology, n unit.Bytes, upload bool) (time.Duration, error) {
	return boundStartingAt(t, n, upload, 0)
}

// boundStartingAt is like Bound for a transfer that begins that far into schedules, outages and
// traces.
func boundStartingAt(t *Topology, n unit.Bytes, upload bool, into time.Duration) (time.Duration, error) {
	groups, err := t.fluidGroups(upload)
	if err != nil {
		return 0, err
	}
	for _, g := range groups {
		g.skipGroupTo(into)
	}
	rtt, err := t.directLinkRTT()
	if err != nil {
		return 0, err
	}
	need := float64(n) * packetIP / packetPayload
	before := 0.0
	for at := boundStep; at <= maxBound; at += boundStep {
		sum := 0.0
		for _, g := range groups {
			sum += g.groupBytesUntil(into + at)
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

// CarriedPayload returns the most payload that the links can carry in a time, from the start of
// schedules, outages and traces. The model is that of Bound.
func CarriedPayload(t *Topology, upload bool, length time.Duration) (unit.Bytes, error) {
	groups, err := t.fluidGroups(upload)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for at := boundStep; at <= length; at += boundStep {
		sum = 0
		for _, g := range groups {
			sum += g.groupBytesUntil(at)
		}
	}
	return unit.Bytes(sum * PayloadShare), nil
}

// fluidGroup is the paths that share one direction of a cell, or the paths outside any cell.
type fluidGroup struct {
	paths         []*fluidPath
	cellShare     *shaper.Capacity // for all paths together; nil outside a cell
	carriedBefore float64          // by cellShare before the transfer
}

// skipGroupTo advances to a time without sending.
func (g *fluidGroup) skipGroupTo(until time.Duration) {
	for _, p := range g.paths {
		p.skipPathTo(until)
	}
	if g.cellShare != nil {
		g.carriedBefore = g.cellShare.BytesUntil(until)
	}
}

// groupBytesUntil returns the bytes that the group can have carried by a time.
func (g *fluidGroup) groupBytesUntil(at time.Duration) (sum float64) {
	for _, p := range g.paths {
		sum += p.pathBytesUntil(at)
	}
	if g.cellShare != nil {
		sum = min(sum, g.cellShare.BytesUntil(at)-g.carriedBefore)
	}
	return sum
}

// fluidGroups returns all paths in the direction of the data, grouped by cell.
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

// cellDirection is one direction of a cell. The zero value stands for no cell.
type cellDirection struct {
	name string
	dir  Direction
}

// fluidPath is one or two hops in a row. A hop is all lines between two nodes.
type fluidPath struct {
	hops        [][]*fluidLine
	cell        cellDirection // common to all lines of a hop
	cellLines   int           // number of lines in cell
	hopCapacity []float64     // bytes that each hop could send so far
	passedOn    []float64     // bytes that each hop has forwarded so far
}

// skipPathTo advances to a time without sending.
func (p *fluidPath) skipPathTo(until time.Duration) {
	for i, h := range p.hops {
		for _, line := range h {
			p.hopCapacity[i] += line.lineBytesUntil(until)
		}
	}
}

// pathBytesUntil returns the bytes that can have arrived at the end of the path by a time.
func (p *fluidPath) pathBytesUntil(at time.Duration) float64 {
	arrived := 0.0
	for i, h := range p.hops {
		c := 0.0
		for _, line := range h {
			c += line.lineBytesUntil(at)
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

// appendFluidHop appends a hop behind those of the path.
func (p *fluidPath) appendFluidHop(hop []*fluidLine) {
	p.hops, p.hopCapacity, p.passedOn = append(p.hops, hop), append(p.hopCapacity, 0), append(p.passedOn, 0)
	other := func(l *fluidLine) bool { return l.cell != hop[0].cell }
	if p.cell.name == "" && !slices.ContainsFunc(hop, other) {
		p.cell, p.cellLines = hop[0].cell, len(hop)
	}
}

// fluidLine is one direction of a link, with its share of a cell if no other line used the cell.
type fluidLine struct {
	// cellAlone is nil outside a cell.
	linkCapacity, cellAlone *shaper.Capacity
	cell                    cellDirection
	last                    [2]float64 // linkCapacity and cellAlone at the last call
	total                   float64
}

// lineBytesUntil returns the bytes that the line can have carried by a time.
func (l *fluidLine) lineBytesUntil(at time.Duration) float64 {
	if l.cellAlone == nil {
		return l.linkCapacity.BytesUntil(at)
	}
	now := [2]float64{l.linkCapacity.BytesUntil(at), l.cellAlone.BytesUntil(at)}
	l.total += min(now[0]-l.last[0], now[1]-l.last[1])
	l.last = now
	return l.total
}

// newFluidLine returns the line of a link that begins at a node.
func (t *Topology) newFluidLine(from, link string) (*fluidLine, error) {
	prog, err := t.lineProgram(from, link)
	if err != nil {
		return nil, err
	}
	l := &fluidLine{linkCapacity: shaper.NewCapacity(&prog)}
	if name := t.Link[link].Cell; name != "" {
		end, err := t.linkEndIndex(from, link)
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

// fluidPaths returns a direct path for each direct link and one path for each helper, in the
// direction of the data.
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
			p.appendFluidHop(h)
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
		return nil, fmt.Errorf("no path between the nodes \"primary\" and \"server\": the bound is unknown")
	}
	return paths, nil
}

// lineProgram returns the program of the line of a link that begins at a node.
func (t *Topology) lineProgram(from, link string) (p shaper.Program, err error) {
	end, err := t.linkEndIndex(from, link)
	if err != nil {
		return p, err
	}
	p, err = t.Link[link].Program(Direction(end))
	if err == nil && t.Link[link].LTE != nil && Direction(end) == Downlink {
		err = t.addAirRate(&p, link)
	}
	return p, err
}

// directLinkRTT returns the round-trip time of the first direct link, 0 without one.
func (t *Topology) directLinkRTT() (rtt time.Duration, err error) {
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
