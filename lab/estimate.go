package lab

import (
	"maps"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
)

// What a transfer takes besides the time of its data.
const (
	transferExtra   = 600 * time.Millisecond // starting and stopping programs
	experimentExtra = 2 * time.Second        // making the lab, its keys and files
	unshapedRate    = 4000 * unit.Mbps       // about, for guesses
	unknownTransfer = 2 * time.Minute        // what no bound is known of
)

// A scheme whose transfer takes longer than slowTransfer makes slowReps: one
// link alone, of which every transfer is like the other.
const (
	slowTransfer = 30 * time.Second
	slowReps     = 3
)

// estimate fills in what is known of the time that the experiment takes.
func (e *Experiment) estimate() error {
	fewer := map[string]int{}
	maps.Copy(fewer, e.Plan.Fewer)
	e.Plan.Fewer = fewer
	e.Expected, e.work = experimentExtra, experimentExtra.Seconds()/2
	for _, s := range e.Plan.Schemes {
		each, err := e.expected(s)
		if err != nil {
			return err
		}
		if each > slowTransfer && e.Plan.Length == 0 && s == "single" {
			e.Plan.Fewer[s] = slowReps
		}
		e.add(s, each+transferExtra, e.Plan.cores(s, each))
	}
	return nil
}

// add takes in that each transfer of a scheme takes so long, and so many processors.
func (e *Experiment) add(scheme string, took time.Duration, cores float64) {
	if e.takes == nil {
		e.takes, e.need = map[string]time.Duration{}, map[string]float64{}
	}
	e.takes[scheme], e.need[scheme] = took, cores
	all := time.Duration(e.Plan.RepsOf(scheme)) * took
	e.Expected += all
	e.work += cores * all.Seconds()
}

// expected is how long a transfer of a scheme takes, about, once its programs
// run; of two users' the time of the case it belongs to is shared by both.
func (e *Experiment) expected(scheme string) (time.Duration, error) {
	if e.Dual != nil {
		return e.Dual.expected(scheme), nil
	}
	return e.Plan.expected(scheme)
}

// expected is the one of a plan.
func (p Plan) expected(scheme string) (time.Duration, error) {
	n := p.bytes()
	switch {
	case p.Length > 0 && p.Video == nil:
		return p.Length, nil
	case !p.Topology.shaped():
		return unshapedRate.Time(n), nil
	}
	t, kills, err := p.split()
	if err != nil {
		return 0, err
	}
	if t, err = t.reduced(participants(t, scheme)); err != nil {
		return 0, err
	}
	if p.Video != nil {
		return p.expectedPlayback(t)
	}
	d, err := p.bound(t, kills)
	if err != nil {
		return unknownTransfer, nil // no way is left: it will fail, or wait for it to come back
	}
	if strings.Contains(scheme, "noreinject") {
		return d * 13 / 10, nil
	}
	return d * 104 / 100, nil
}

// reduced is the topology with some of the helpers, and with the direct links or without.
func (t *Topology) reduced(helpers []string, direct bool) (*Topology, error) {
	c, err := t.clone()
	if err != nil {
		return nil, err
	}
	for _, h := range t.Helpers() {
		if !slices.Contains(helpers, h) {
			delete(c.Node, h)
		}
	}
	for name, l := range t.Link {
		gone := slices.ContainsFunc(l.Ends[:], func(n string) bool { return c.Node[n] == nil })
		if gone || !direct && slices.Contains(t.allBetween("primary", "server"), name) {
			delete(c.Link, name)
		}
	}
	return c, nil
}

// Processor time that a transfer takes: to start and stop its programs, in
// seconds; in each second; and for each bit. Measured on a two-core machine
// (series of 34 to 378 transfers; 40/50/100: mpbond 0.75 processors).
const (
	startBonded = 0.2
	startOther  = 0.1
	coresBonded = 0.05
	coresOther  = 0.03
	coresPerBit = 0.007 / 1e6
)

// cores is how many processors a transfer of a scheme keeps busy, about, if it
// takes so long.
func (p Plan) cores(scheme string, took time.Duration) float64 {
	start, base := startOther, coresOther
	if strings.HasPrefix(scheme, "mpbond") || onloads(scheme) || strings.HasPrefix(scheme, DualBoth) || strings.HasPrefix(scheme, DualIdle) {
		start, base = startBonded, coresBonded
	}
	base += start / (took + transferExtra).Seconds()
	n := p.bytes()
	switch {
	case p.Video != nil:
		n = p.playbackBytes(took)
	case p.Length > 0 && strings.HasPrefix(scheme, "single"):
		n /= 2 // of both carriers
	}
	return base + coresPerBit*float64(8*n)/max(took.Seconds(), .1)
}

// shaped tells whether any link is emulated.
func (t *Topology) shaped() bool {
	for _, l := range t.Link {
		if l.Shaped() {
			return true
		}
	}
	return false
}
