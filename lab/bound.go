package lab

import (
	"fmt"
	"time"

	"mpbond/lab/shaper"
	"mpbond/unit"
)

// A packet of 1500 IP bytes carries 1448 of payload: 20 of IPv4, 20 of TCP
// and 12 of its timestamp option are headers.
const (
	packetIP      = 1500
	packetPayload = 1448
)

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
// of helped paths, and anything between server and web, count nothing.
func Bound(t *Topology, n unit.Bytes, upload bool) (time.Duration, error) {
	return boundAt(t, n, upload, 0)
}

// boundAt is that of a transfer that begins so far into schedules, outages and
// traces.
func boundAt(t *Topology, n unit.Bytes, upload bool, into time.Duration) (time.Duration, error) {
	paths, err := t.fluidPaths(upload)
	if err != nil {
		return 0, err
	}
	for _, p := range paths {
		p.skip(into)
	}
	rtt, err := t.directRTT()
	if err != nil {
		return 0, err
	}
	need := float64(n) * packetIP / packetPayload
	before := 0.0
	for at := boundStep; at <= maxBound; at += boundStep {
		sum := 0.0
		for _, p := range paths {
			sum += p.until(into + at)
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

// Carried is the most payload that the links can carry in a time, from the start
// of schedules, outages and traces, as in Bound.
func Carried(t *Topology, upload bool, length time.Duration) (unit.Bytes, error) {
	paths, err := t.fluidPaths(upload)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for at := boundStep; at <= length; at += boundStep {
		sum = 0
		for _, p := range paths {
			sum += p.until(at)
		}
	}
	return unit.Bytes(sum * packetPayload / packetIP), nil
}

// fluidPath is one or two hops in a row, each of all lines between two nodes.
type fluidPath struct {
	hops [][]*shaper.Capacity
	sent []float64 // what each hop may have sent so far, in all
	out  []float64 // what each hop has passed on
}

// skip lets a time pass in which nothing is sent.
func (p *fluidPath) skip(until time.Duration) {
	for i, h := range p.hops {
		for _, line := range h {
			p.sent[i] += line.Until(until)
		}
	}
}

func (p *fluidPath) until(at time.Duration) float64 {
	arrived := 0.0
	for i, h := range p.hops {
		c := 0.0
		for _, line := range h {
			c += line.Until(at)
		}
		p.out[i] += c - p.sent[i]
		p.sent[i] = c
		if i > 0 {
			p.out[i] = min(p.out[i], arrived)
		}
		arrived = p.out[i]
	}
	return arrived
}

// fluidPaths lists the direct path and one path by each helper, in the
// direction in which the data flow.
func (t *Topology) fluidPaths(upload bool) (paths []*fluidPath, err error) {
	ways := [][]string{{"server", "primary"}}
	for _, h := range t.Helpers() {
		ways = append(ways, []string{"server", h, "primary"})
	}
	for _, way := range ways {
		p := &fluidPath{sent: make([]float64, 2), out: make([]float64, 2)}
		for i := range len(way) - 1 {
			from, to := way[i], way[i+1]
			if upload {
				from, to = way[len(way)-1-i], way[len(way)-2-i]
			}
			var hop []*shaper.Capacity
			for _, link := range t.allBetween(from, to) {
				prog, err := t.program(from, link)
				if err != nil {
					return nil, err
				}
				hop = append(hop, shaper.NewCapacity(&prog))
			}
			if hop != nil {
				p.hops = append(p.hops, hop)
			}
		}
		if len(p.hops) == len(way)-1 {
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no way between a node \"primary\" and a node \"server\": the bound is not known")
	}
	return paths, nil
}

// program is what the line of a link will do that begins at a node.
func (t *Topology) program(from, link string) (p shaper.Program, err error) {
	end, err := t.end(from, link)
	if err != nil {
		return p, err
	}
	return t.Link[link].Program(Dir(end))
}

func (t *Topology) directRTT() (rtt time.Duration, err error) {
	link := t.between("primary", "server")
	if link == "" {
		return 0, nil
	}
	for _, from := range []string{"primary", "server"} {
		p, err := t.program(from, link)
		if err != nil {
			return 0, err
		}
		rtt += p.Base.Delay
	}
	return rtt, nil
}
