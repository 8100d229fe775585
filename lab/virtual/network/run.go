// SPDX-License-Identifier: Apache-2.0

package network

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Options configure a run.
type Options struct {
	// Control names the congestion control of all TCP connections: cubic, bbr, or ChosenByHop.
	Control string
	// DrawSeed is the seed of random losses and jitter. Another one draws others on the same
	// network.
	DrawSeed uint64
	// Eta is the reinjection threshold; 0 is the default.
	Eta float64
	// Limit ends a run that takes longer; 0: an hour.
	Limit time.Duration
	// Hints are forecasts of stalls that the primary gets.
	Hints []Hint
	// Finished, if not nil, gets the time of each object.
	Finished func(took time.Duration)
	arrived  func(at time.Duration, total uint64) // bytes at the reading apps
	// Trace, if not nil, gets the events of both ends.
	Trace func(trace.Event)
}

// Hint is a forecast of a stall of a path, for the primary.
type Hint struct {
	At          time.Duration // since the first object began
	Path        int
	Probability float64
	ValidFor    time.Duration // how long it counts
	HandedOff   bool
}

// Result is what one scheme made of a workload.
type Result struct {
	Scheme string        `json:"scheme"`
	Time   time.Duration `json:"time"`
	// Gap is the longest time between bytes at the reading app, from the first byte on.
	Gap time.Duration `json:"gap"`
	// Copied counts the bytes that were given to a second subflow. Duplicate counts those that
	// arrived twice. Both are of all objects.
	Copied    unit.Bytes `json:"copied"`
	Duplicate unit.Bytes `json:"duplicate"`
	// Tail and Silent are the parts of Copied sent at the end of a transfer and after a silence.
	Tail   unit.Bytes    `json:"tail"`
	Silent unit.Bytes    `json:"silent"`
	Total  unit.Bytes    `json:"total"` // payload of all objects
	Ended  time.Duration `json:"ended"` // the end of the last object, since the first began
	Events int           `json:"events"`
	// DrawSeed is Options.DrawSeed of the run.
	DrawSeed uint64 `json:"luck,omitempty"`
	// fast and slow are the second fastest and the second slowest of several runs with other seeds,
	// of which this is the median; 0 without random losses and jitter.
	fast, slow time.Duration
	Err        string `json:"error,omitempty"`
}

// Sizes of a request and of the answer to an upload, and when the first object begins.
const (
	requestSize = 200
	replySize   = 200
	startAt     = 4 * time.Second
	runLimit    = time.Hour
)

// RunBond runs a workload over a bond with that scheduler.
func RunBond(n *Network, scheduler string, w *Workload, o Options) Result {
	s := newSimulation(n.Seed, o.DrawSeed)
	b, err := newVirtualBond(s, scheduler, o.Eta, o.Trace)
	if err != nil {
		return Result{Scheme: scheduler, Err: err.Error()}
	}
	for i := range n.Paths {
		b.joinPathSubflow(wire.SubflowID(i+1), &n.Paths[i], o.Control, n.Seed+uint64(8*i))
	}
	c := &bondExchanger{net: b, workload: w}
	b.ends[primary].onStream = func(*bond.Stream) {}
	b.ends[server].onStream = c.acceptServerStream
	for i, e := range b.ends {
		e.onChange = func(s *bond.Stream) {
			if a, ok := s.User.(*bondApp); ok {
				a.readAndWrite(i)
			}
		}
	}
	d := &driver{sim: s, workload: w, exchanger: c, limit: o.Limit,
		result: Result{Scheme: scheduler, DrawSeed: o.DrawSeed}}
	if o.arrived != nil {
		reader := primary
		if w.Direction == Upload {
			reader = server
		}
		d.progressed = func() {
			total := uint64(0)
			for _, a := range c.apps {
				total += a.received[reader]
			}
			o.arrived(s.now, total)
		}
	}
	d.finished = o.Finished
	for _, h := range o.Hints {
		s.scheduleTask(startAt+h.At, func(*packet) { b.ends[primary].takeHint(h) }, nil)
	}
	r := d.runWorkload(func() error { return b.err })
	for i, e := range b.ends {
		for _, a := range c.apps {
			r.Copied -= unit.Bytes(a.written[i])
		}
		r.Copied += e.sentData
		st := e.bond.Stats()
		r.Duplicate += st.Duplicate
		r.Tail += st.ReinjectedTail
		r.Silent += st.ReinjectedSilent
	}
	return r
}

// takeHint passes a hint to the bond.
func (e *end) takeHint(h Hint) {
	e.bond.SetHazard(wire.SubflowID(h.Path+1), bond.Hazard{Probability: h.Probability, HandedOff: h.HandedOff,
		Until: e.virtualNow().Add(h.ValidFor)}, e.virtualNow())
	e.processBondEvents()
}

// joinPathSubflow joins the subflow of a path, with its helper.
func (b *bonded) joinPathSubflow(id wire.SubflowID, p *Path, control string, seed uint64) {
	up, down := newPathLines(b.sim, p)
	j := &join{net: b, id: id}
	if len(p.Hops) == 1 {
		x, y := connectTCPEnds(b.sim, up, down, control, seed)
		u, d := newHopChannel(x, y), newHopChannel(y, x)
		j.out, j.in = [2]*channel{u, d}, [2]*channel{d, u}
	} else {
		x, h := connectTCPEnds(b.sim, up[:1], down[1:], control, seed)
		g, y := connectTCPEnds(b.sim, up[1:], down[:1], control, seed+2)
		pipeUp, pipeDown := newHopChannel(x, h), newHopChannel(h, x)
		hsUp, hsDown := newHopChannel(g, y), newHopChannel(y, g)
		connectHelperHops(b.sim, pipeUp, pipeDown, hsDown, hsUp)
		j.helped, j.out, j.in = true, [2]*channel{pipeUp, hsDown}, [2]*channel{pipeDown, hsUp}
	}
	j.sendFirstFlight()
}
