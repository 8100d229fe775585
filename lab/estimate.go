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
	unknownDuration = 2 * time.Minute        // what no bound is known of
)

// A scheme whose transfer takes longer than slowTransfer makes slowReps: one
// link alone, of which every transfer is like the other.
const (
	slowTransfer = 30 * time.Second
	slowReps     = 3
)

// estimateTimes fills in what is known of the time that the experiment takes.
func (e *Experiment) estimateTimes() error {
	fewer := map[string]int{}
	maps.Copy(fewer, e.Spec.RepsByScheme)
	e.Spec.RepsByScheme = fewer
	e.Expected, e.cpuSeconds = experimentExtra, experimentExtra.Seconds()/2
	for _, s := range e.Spec.Schemes {
		each, err := e.expectedTime(s)
		if err != nil {
			return err
		}
		if each > slowTransfer && e.Spec.Length == 0 && s == "single" {
			e.Spec.RepsByScheme[s] = slowReps
		}
		e.addScheme(s, each+transferExtra, e.Spec.busyCores(s, each))
	}
	return nil
}

// addScheme takes in that each transfer of a scheme takes so long, and so many processors.
func (e *Experiment) addScheme(scheme string, took time.Duration, cores float64) {
	if e.schemeTimes == nil {
		e.schemeTimes, e.schemeCores = map[string]time.Duration{}, map[string]float64{}
	}
	e.schemeTimes[scheme], e.schemeCores[scheme] = took, cores
	all := time.Duration(e.Spec.RepsOf(scheme)) * took
	e.Expected += all
	e.cpuSeconds += cores * all.Seconds()
}

// expectedTime is how long a transfer of a scheme takes, about, once its programs
// run; of two users' the time of the case it belongs to is shared by both.
func (e *Experiment) expectedTime(scheme string) (time.Duration, error) {
	if e.Dual != nil {
		return e.Dual.expectedTime(scheme), nil
	}
	return e.Spec.expectedTime(scheme)
}

// expectedTime is the one of a plan.
func (p RunSpec) expectedTime(scheme string) (time.Duration, error) {
	n := p.totalBytes()
	switch {
	case p.Length > 0 && p.Video == nil:
		return p.Length, nil
	case !p.Topology.hasShapedLink():
		return unshapedRate.Time(n), nil
	}
	t, kills, err := p.applyChanges()
	if err != nil {
		return 0, err
	}
	if t, err = t.reducedTo(schemeParticipants(t, scheme)); err != nil {
		return 0, err
	}
	if p.Video != nil {
		return p.expectedPlaybackTime(t)
	}
	d, err := p.fluidBound(t, kills)
	if err != nil {
		return unknownDuration, nil // no way is left: it will fail, or wait for it to come back
	}
	if strings.Contains(scheme, "noreinject") {
		return d * 13 / 10, nil
	}
	return d * 104 / 100, nil
}

// reducedTo is the topology with some of the helpers, and with the direct links or without.
func (t *Topology) reducedTo(helpers []string, direct bool) (*Topology, error) {
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
		if gone || !direct && slices.Contains(t.linksBetween("primary", "server"), name) {
			delete(c.Link, name)
		}
	}
	return c, nil
}

// Processor time that a transfer takes: to start and stop its programs, in
// seconds; in each second; and for each bit. Measured on a two-core machine
// (series of 34 to 378 transfers; 40/50/100: mpbond 0.75 processors).
const (
	mpbondStartCPU = 0.2
	otherStartCPU  = 0.1
	mpbondCores    = 0.05
	otherCores     = 0.03
	coresPerBit    = 0.007 / 1e6
)

// busyCores is how many processors a transfer of a scheme keeps busy, about, if it
// takes so long.
func (p RunSpec) busyCores(scheme string, took time.Duration) float64 {
	start, base := otherStartCPU, otherCores
	if strings.HasPrefix(scheme, "mpbond") || isOnloadScheme(scheme) || strings.HasPrefix(scheme, DualBoth) || strings.HasPrefix(scheme, DualIdle) {
		start, base = mpbondStartCPU, mpbondCores
	}
	base += start / (took + transferExtra).Seconds()
	n := p.totalBytes()
	switch {
	case p.Video != nil:
		n = p.playbackBytes(took)
	case p.Length > 0 && strings.HasPrefix(scheme, "single"):
		n /= 2 // of both carriers
	}
	return base + coresPerBit*float64(8*n)/max(took.Seconds(), .1)
}

// hasShapedLink tells whether any link is emulated.
func (t *Topology) hasShapedLink() bool {
	for _, l := range t.Link {
		if l.Shaped() {
			return true
		}
	}
	return false
}
