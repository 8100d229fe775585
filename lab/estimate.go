// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"maps"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
)

// Time of a transfer besides that of its data.
const (
	transferExtra   = 600 * time.Millisecond // to start and stop programs
	experimentExtra = 2 * time.Second        // to make the lab, its keys and files
	unshapedRate    = 4000 * unit.Mbps       // for rough estimates
	unknownDuration = 2 * time.Minute        // where the bound is unknown
)

// Single-link schemes whose transfers take longer than slowTransfer make slowReps transfers, since
// their runs hardly vary.
const (
	slowTransfer = 30 * time.Second
	slowReps     = 3
)

// estimateTimes fills in the expected times of the experiment.
func (e *Experiment) estimateTimes() error {
	fewer := map[string]int{}
	maps.Copy(fewer, e.Spec.RepsByScheme)
	e.Spec.RepsByScheme = fewer
	e.Expected, e.cpuSeconds = experimentExtra, experimentExtra.Seconds()/2
	for _, s := range e.Spec.Schemes {
		each, err := e.expectedSchemeTime(s)
		if err != nil {
			return err
		}
		if each > slowTransfer && e.Spec.Length == 0 && s == "single" {
			e.Spec.RepsByScheme[s] = slowReps
		}
		extra := transferExtra
		if e.Spec.App != nil && strings.HasPrefix(s, "mpbond") { // waitRadiosAsleep
			extra += e.Spec.Topology.longestTail() + radioSlack
		}
		e.addSchemeEstimate(s, each+extra, e.Spec.estimateBusyCores(s, each))
	}
	return nil
}

// longestTail returns the longest tail of the radios of a network.
func (t *Topology) longestTail() (longest time.Duration) {
	for _, l := range t.Link {
		if tail, err := time.ParseDuration(l.Tail); err == nil { // else it has no radio
			longest = max(longest, tail)
		}
	}
	return longest
}

// addSchemeEstimate adds a scheme whose transfers take that time and keep that many processors
// busy.
func (e *Experiment) addSchemeEstimate(scheme string, took time.Duration, cores float64) {
	if e.schemeTimes == nil {
		e.schemeTimes, e.schemeCores = map[string]time.Duration{}, map[string]float64{}
	}
	e.schemeTimes[scheme], e.schemeCores[scheme] = took, cores
	all := time.Duration(e.Spec.RepsOf(scheme)) * took
	e.Expected += all
	e.cpuSeconds += cores * all.Seconds()
}

// expectedSchemeTime estimates the time of a transfer of a scheme once its programs run. Both users
// of a DualSpec share the time of a case.
func (e *Experiment) expectedSchemeTime(scheme string) (time.Duration, error) {
	if e.Dual != nil {
		return e.Dual.halfCaseTime(scheme), nil
	}
	return e.Spec.expectedTransferTime(scheme)
}

// expectedTransferTime estimates the time of a transfer of a scheme.
func (p RunSpec) expectedTransferTime(scheme string) (time.Duration, error) {
	n := p.totalBytes()
	switch {
	case p.App != nil && p.App(0).Length > 0:
		return p.App(0).Length, nil
	case p.Length > 0 && p.Video == nil:
		return p.Length, nil
	case !p.Topology.hasShapedLink():
		return unshapedRate.Time(n), nil
	}
	t, kills, err := p.applyChanges()
	if err != nil {
		return 0, err
	}
	if t, err = t.reducedTopology(schemeParticipants(t, scheme)); err != nil {
		return 0, err
	}
	if link, is := strings.CutPrefix(scheme, "single:if="); is {
		for _, other := range t.linksBetween("primary", "server") {
			if other != link {
				delete(t.Link, other)
			}
		}
	}
	if p.Video != nil {
		return p.expectedPlaybackTime(t)
	}
	d, err := p.fluidBound(t, kills)
	if err != nil {
		return unknownDuration, nil // no path is left: it fails, or waits for a link
	}
	if p.App != nil {
		if p.App(0).Browser != "" {
			d += browserTime
		}
		return p.App(0).ExpectedTime(d), nil
	}
	if strings.Contains(scheme, "noreinject") {
		return d * 13 / 10, nil
	}
	return d * 104 / 100, nil
}

// reducedTopology returns a copy of the topology with some of the helpers, and with or without the
// direct links.
func (t *Topology) reducedTopology(helpers []string, direct bool) (*Topology, error) {
	c, err := t.cloneTopology()
	if err != nil {
		return nil, err
	}
	for _, h := range t.Helpers() {
		if !slices.Contains(helpers, h) {
			delete(c.Node, h)
		}
	}
	for name, l := range t.Link {
		missing := slices.ContainsFunc(l.Ends[:], func(n string) bool { return c.Node[n] == nil })
		if missing || !direct && slices.Contains(t.linksBetween("primary", "server"), name) {
			delete(c.Link, name)
		}
	}
	return c, nil
}

// Processor time of a transfer: seconds to start and stop its programs, processors while it runs,
// and seconds for each bit. Measured on a machine of two cores, in series of 34 to 378 transfers
// (40/50/100: mpbond 0.75 processors).
const (
	mpbondStartCPU = 0.2
	otherStartCPU  = 0.1
	mpbondCores    = 0.05
	otherCores     = 0.03
	coresPerBit    = 0.007 / 1e6
)

// estimateBusyCores estimates how many processors a transfer of a scheme keeps busy if it takes
// that long.
func (p RunSpec) estimateBusyCores(scheme string, took time.Duration) float64 {
	start, base := otherStartCPU, otherCores
	if strings.HasPrefix(scheme, "mpbond") || isOnloadScheme(scheme) || strings.HasPrefix(scheme, DualBoth) ||
		strings.HasPrefix(scheme, DualIdle) {
		start, base = mpbondStartCPU, mpbondCores
	}
	base += start / (took + transferExtra).Seconds()
	n := p.totalBytes()
	switch {
	case p.Video != nil:
		n = p.playbackBytes(took)
	case p.Length > 0 && strings.HasPrefix(scheme, "single"):
		n /= 2 // the size is that of both carriers
	}
	return base + coresPerBit*float64(8*n)/max(took.Seconds(), .1)
}

// hasShapedLink reports whether any link is emulated.
func (t *Topology) hasShapedLink() bool {
	for _, l := range t.Link {
		if l.Shaped() {
			return true
		}
	}
	return false
}
