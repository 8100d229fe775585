// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/lab/app"
)

// RunSpec describes a series of transfers.
type RunSpec struct {
	Topology *Topology
	Schemes  []string
	Size     unit.Bytes
	Streams  int // concurrent downloads of that size; 0 is 1
	// Items are the sizes of files that one transfer fetches or sends instead of one of Size:
	// segments of a video, or photos. Schemes that move one file at a time keep this order.
	Items []unit.Bytes
	// Objects makes a transfer move that many objects of Size, one after the other over one
	// connection. Their times are reported apart: of the first one, and of the others, for which
	// connections, windows and estimates are warm.
	Objects int
	Upload  bool
	Reps    int
	Seed    uint64
	At      []string // "2s:hs1.rate=1Mbit/s", "3s:kill=helper1"
	Trace   string   // directory for programs' output and events, or none
	Pcap    string   // directory for packet captures, or none
	// Unchecked makes curl discard downloads and checks only their size. It is for rates at which
	// reading would take the processor.
	Unchecked bool
	// KeepDisturbed counts disturbed transfers instead of repeating them.
	KeepDisturbed bool
	// Length ends each transfer after that time, unless it is complete. It is for mean rates over
	// links that vary. Size must be more than the links can carry.
	Length time.Duration
	// Stride makes links that vary differ between repetitions: each begins that much further into
	// schedules, outages and traces than the one before.
	Stride time.Duration
	// Reports holds reports of the primary's modems beside each transfer, ordered by time, for schemes
	// that use them.
	Reports []CellReport
	// Video is played for Length instead, from its beginning.
	Video *Video
	// App makes each transfer play the script that it returns for the repetition instead, if set. It
	// must always return the same script.
	App func(rep int) app.Script
	// RepsByScheme limits the transfers of some schemes to fewer than Reps.
	RepsByScheme map[string]int
	// Traffic records all packets of primary and helpers in each result; with a Length in coarse
	// steps.
	Traffic bool
	// Handshakes records what it took to set up the primary's connections, Held how many bytes waited for
	// earlier ones in a download over Multipath TCP or mpbond.
	Handshakes, Held bool
	// Ping sends a small packet in each such interval over each shaped link between primary and
	// server, there and back, beside the transfer. 0: none.
	Ping time.Duration
	// Watch is called a few times a second during each transfer, if set.
	Watch func(Sample)
	// Tries is how often a disturbed or failed transfer is made. 0: a disturbed transfer is
	// repeated up to maxDiscarded times, a failed one not at all.
	Tries int
	// Skip reports whether a transfer is not to be made or repeated, if set.
	Skip func(scheme string, rep int) bool
	// WaitTurn is called before each transfer of a scheme, if set. Its done is called after the
	// transfer with all its repetitions.
	WaitTurn func(ctx context.Context, scheme string) (done func(), err error)
}

// RepsOf returns how many transfers a scheme makes.
func (p RunSpec) RepsOf(scheme string) int {
	if n, ok := p.RepsByScheme[scheme]; ok {
		return min(n, p.Reps)
	}
	return p.Reps
}

// startOffset returns how far into schedules a repetition begins.
func (p RunSpec) startOffset(rep int) time.Duration { return time.Duration(rep) * p.Stride }

// A transfer fails if it takes longer than transferTimeFactor times its expected time plus
// transferGrace. The slowest scheme that is known to succeed is a naive scheduler that leaves its
// last bytes to the slowest link. Over links with random loss and long round trips, congestion
// control uses a small part of the rate: the factor is lossyTimeFactor.
const (
	transferGrace      = 30 * time.Second
	transferTimeFactor = 4
	lossyTimeFactor    = 20
)

// session is a RunSpec, ready to run.
type session struct {
	spec     RunSpec
	topology *Topology // with the spec's changes of links
	kills    []nodeKill
	bound    time.Duration
	limits   map[string]time.Duration // longest time of a transfer by scheme
	timeouts map[string]int           // transfers that exceeded the limit, by scheme
	schemes  map[string]Scheme        // by name in the spec
	captures string                   // directory of captures of headers; "": none
}

// newRunSession checks a spec, and that this machine can run it.
func (p RunSpec) newRunSession() (*session, error) {
	s, err := p.parseSession()
	if err != nil {
		return nil, fault.New(fault.Usage, err, "")
	}
	return s, checkRequirements(p.Schemes, p.App != nil && p.App(0).Browser != "")
}

// parseSession checks a spec without looking at this machine.
func (p RunSpec) parseSession() (*session, error) {
	if err := p.expandObjects(); err != nil {
		return nil, err
	}
	if err := p.checkItems(); err != nil {
		return nil, err
	}
	if err := p.checkApp(); err != nil {
		return nil, err
	}
	if len(p.Items) == 0 && slices.ContainsFunc(p.Schemes, isOnloadScheme) {
		if p.Streams > 1 || p.Length != 0 || p.Video != nil || p.Unchecked {
			return nil, fmt.Errorf("onload moves whole, checked files: omit streams, a length, a video and " +
				"unchecked transfers")
		}
		p.Items, p.Size = []unit.Bytes{p.Size}, 0
	}
	s := &session{spec: p, schemes: map[string]Scheme{}, limits: map[string]time.Duration{}, timeouts: map[string]int{}}
	var err error
	if s.topology, s.kills, err = p.applyChanges(); err != nil {
		return nil, err
	}
	if s.bound, err = p.fluidBound(s.topology, s.kills); err != nil {
		return nil, err
	}
	if p.Video != nil {
		if err := p.Video.checkLadder(); err != nil {
			return nil, err
		}
		if p.Upload || p.Streams > 1 || p.Size != 0 || p.Length <= 0 {
			return nil, fmt.Errorf("a video is one download of a fixed length")
		}
	}
	if p.Streams > 1 && p.Upload {
		return nil, fmt.Errorf("several streams can only download")
	}
	for _, name := range p.Schemes {
		if s.schemes[name], err = newSchemeByName(name); err != nil {
			return nil, err
		}
		if p.Video != nil && !s.schemes[name].Capabilities().video {
			return nil, fmt.Errorf("%s cannot play a video", name)
		}
		if len(p.Items) > 0 && !s.schemes[name].Capabilities().items {
			return nil, fmt.Errorf("%s cannot move several items", name)
		}
		if p.App != nil && !s.schemes[name].Capabilities().apps {
			return nil, fmt.Errorf("%s cannot play the script of an app", name)
		}
		if p.Objects > 0 && s.schemes[name].Capabilities().ownReport {
			return nil, fmt.Errorf("%s does not move objects one after the other over one connection", name)
		}
		expected, err := p.expectedTransferTime(name)
		if err != nil {
			return nil, err
		}
		s.limits[name] = transferGrace + s.topology.timeFactor()*expected
	}
	return s, nil
}

// timeFactor returns by which factor a transfer may exceed its expected time.
func (t *Topology) timeFactor() time.Duration {
	for _, l := range t.Link {
		for _, s := range []*LinkSettings{&l.LinkSettings, l.Up, l.Down} {
			if s != nil && s.Loss != "" {
				return lossyTimeFactor
			}
		}
	}
	return transferTimeFactor
}

// Check returns why the spec cannot run, on this machine or at all.
func (p RunSpec) Check() error {
	_, err := p.newRunSession()
	return err
}

// HasFailures reports whether something fails in the course of the transfer, rather than changing.
func (p RunSpec) HasFailures() bool {
	return slices.ContainsFunc(p.At, func(at string) bool {
		return strings.Contains(at, ":kill=") || strings.Contains(at, ":off=") || strings.HasSuffix(at, "outage=on")
	})
}

// Bound returns the fluid bound of one transfer of the spec.
func (p RunSpec) Bound() (time.Duration, error) {
	t, kills, err := p.applyChanges()
	if err != nil {
		return 0, err
	}
	return p.fluidBound(t, kills)
}

// nodeKill kills the programs in a node at a time after the start of a transfer.
type nodeKill struct {
	at   time.Duration
	node string
}

// applyChanges returns a copy of the topology with the spec's changes of links, which the emulator
// applies exactly on time. It returns the other changes separately.
func (p RunSpec) applyChanges() (*Topology, []nodeKill, error) {
	t, err := p.Topology.cloneTopology()
	if err != nil {
		return nil, nil, err
	}
	var kills []nodeKill
	for _, s := range p.At {
		when, what, ok := strings.Cut(s, ":")
		at, err := time.ParseDuration(when)
		if !ok || err != nil || at < 0 {
			return nil, nil, fmt.Errorf("--at %q: write TIME:LINK.PROPERTY=VALUE, TIME:kill=NODE or "+
				"TIME:off=NODE, like 2s:hs1.rate=1Mbit/s", s)
		}
		verb, node, _ := strings.Cut(what, "=")
		switch verb {
		case "kill", "off":
			if t.Node[node] == nil {
				return nil, nil, fmt.Errorf("--at %q: no node %q", s, node)
			}
		}
		switch verb {
		case "kill":
			kills = append(kills, nodeKill{at, node})
		case "off":
			if err := t.addOutages(at, node); err != nil {
				return nil, nil, fmt.Errorf("--at %q: %w", s, err)
			}
		default:
			if err := t.AddChange(at, what); err != nil {
				return nil, nil, fmt.Errorf("--at %w", err)
			}
		}
	}
	return t, kills, nil
}

// fluidBound returns the bound over t. A helper whose programs are killed carries nothing from then
// on.
func (p RunSpec) fluidBound(t *Topology, kills []nodeKill) (time.Duration, error) {
	t, err := t.cloneTopology()
	if err != nil {
		return 0, err
	}
	for _, k := range kills {
		if slices.Contains(t.Helpers(), k.node) {
			if err := t.addOutages(k.at, k.node); err != nil {
				return 0, err
			}
		}
	}
	return Bound(t, p.totalBytes(), p.Upload)
}

// cloneTopology returns a deep copy.
func (t *Topology) cloneTopology() (*Topology, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	c := &Topology{}
	return c, json.Unmarshal(b, c)
}

// addOutages makes all emulated links of a node drop everything from a time on.
func (t *Topology) addOutages(at time.Duration, node string) error {
	found := false
	for _, link := range t.Links() {
		if _, err := t.linkEndIndex(node, link); err != nil || !t.Link[link].Shaped() {
			continue
		}
		found = true
		if err := t.AddChange(at, link+".outage=on"); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no link of %s is emulated", node)
	}
	return nil
}
