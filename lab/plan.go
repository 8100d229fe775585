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
)

// Plan says what to measure.
type Plan struct {
	Topology *Topology
	Schemes  []string
	Size     unit.Bytes
	Streams  int // downloads of that size at once; 0 is 1
	// Items are the sizes of files that are fetched in one transfer, or sent, instead of
	// one of Size: segments of a video, or photos. What fetches one after the other does so
	// in this order.
	Items  []unit.Bytes
	Upload bool
	Reps   int
	Seed   uint64
	At     []string // "2s:hs1.rate=1Mbit/s", "3s:kill=helper1"
	Trace  string   // directory for programs' output and events, or none
	Pcap   string   // directory for packet captures, or none
	// Unchecked downloads are thrown away by curl, and only their size is
	// checked: for rates at which reading them would take the processor.
	Unchecked bool
	// KeepDisturbed counts disturbed transfers instead of repeating them.
	KeepDisturbed bool
	// Length ends each transfer after that time, unless it is complete: for mean
	// rates over links that vary. Size must then be more than the links can carry.
	Length time.Duration
	// Stride makes links that vary differ from one repetition to the next: each
	// begins so much further into schedules, outages and traces than the one before.
	Stride time.Duration
	// Video is played for Length instead, from its beginning.
	Video *Video
	// Fewer says how many transfers slow schemes make, if not Reps.
	Fewer map[string]int
	// Traffic has each result tell all packets of primary and helpers; with a Length
	// as in coarse.
	Traffic bool
	// Ping, if not 0, sends a small packet in each such interval over each emulated
	// link between primary and server, there and back, beside the transfer.
	Ping time.Duration
	// Watch, if set, is called a few times a second during each transfer.
	Watch func(Sample)
	// Tries is how often a transfer is made that is disturbed or fails; 0: disturbed
	// ones maxDiscarded times more, failed ones not again.
	Tries int
	// Skip, if set, tells which transfers are not to be made, or repeated.
	Skip func(scheme string, rep int) bool
	// Turn, if set, is called before each transfer of a scheme, and what it
	// returns when the transfer has been made, with all its repetitions.
	Turn func(ctx context.Context, scheme string) (done func(), err error)
}

// RepsOf is how many transfers a scheme makes.
func (p Plan) RepsOf(scheme string) int {
	if n, ok := p.Fewer[scheme]; ok {
		return min(n, p.Reps)
	}
	return p.Reps
}

// into is how far into schedules a repetition begins.
func (p Plan) into(rep int) time.Duration { return time.Duration(rep) * p.Stride }

// A transfer that takes transferPatience times as long as it should, and
// transferGrace besides, is ended: it has failed. The slowest that is known to
// succeed is a naive scheduler that leaves its rest to the slowest link.
const (
	transferGrace    = 30 * time.Second
	transferPatience = 4
)

// session is a plan, ready to run.
type session struct {
	plan     Plan
	topology *Topology // with the plan's changes of links
	kills    []killing
	bound    time.Duration
	limits   map[string]time.Duration // how long a transfer of a scheme may take
	hung     map[string]int           // transfers of a scheme that took longer
	schemes  map[string]Scheme        // by their names in the plan
}

// prepare checks a plan, and that this machine can run it.
func (p Plan) prepare() (*session, error) {
	s, err := p.understand()
	if err != nil {
		return nil, fault.New(fault.Usage, err, "")
	}
	return s, requirements(p.Schemes)
}

// understand is prepare without a look at this machine.
func (p Plan) understand() (*session, error) {
	if err := p.checkItems(); err != nil {
		return nil, err
	}
	if len(p.Items) == 0 && slices.ContainsFunc(p.Schemes, onloads) {
		if p.Streams > 1 || p.Length != 0 || p.Video != nil || p.Unchecked {
			return nil, fmt.Errorf("what is onloaded is whole files, which are checked")
		}
		p.Items, p.Size = []unit.Bytes{p.Size}, 0
	}
	s := &session{plan: p, schemes: map[string]Scheme{}, limits: map[string]time.Duration{}, hung: map[string]int{}}
	var err error
	if s.topology, s.kills, err = p.split(); err != nil {
		return nil, err
	}
	if s.bound, err = p.bound(s.topology, s.kills); err != nil {
		return nil, err
	}
	if p.Video != nil {
		if err := p.Video.check(); err != nil {
			return nil, err
		}
		if p.Upload || p.Streams > 1 || p.Size != 0 || p.Length <= 0 {
			return nil, fmt.Errorf("a video is one download, of which some time is played")
		}
	}
	if p.Streams > 1 && p.Upload {
		return nil, fmt.Errorf("several streams at once are downloads only")
	}
	for _, name := range p.Schemes {
		if s.schemes[name], err = newScheme(name); err != nil {
			return nil, err
		}
		if p.Video != nil && !s.schemes[name].Can().video {
			return nil, fmt.Errorf("%s plays no video", name)
		}
		if len(p.Items) > 0 && !s.schemes[name].Can().items {
			return nil, fmt.Errorf("%s has no way for several items", name)
		}
		expected, err := p.expected(name)
		if err != nil {
			return nil, err
		}
		s.limits[name] = transferGrace + transferPatience*expected
	}
	return s, nil
}

// Check says why the plan cannot be run, on this machine or at all.
func (p Plan) Check() error {
	_, err := p.prepare()
	return err
}

// Breaks tells whether something fails in the course of the plan, rather than
// changing.
func (p Plan) Breaks() bool {
	return slices.ContainsFunc(p.At, func(at string) bool {
		return strings.Contains(at, ":kill=") || strings.Contains(at, ":off=") || strings.HasSuffix(at, "outage=on")
	})
}

// Bound is the fluid bound of one transfer of the plan.
func (p Plan) Bound() (time.Duration, error) {
	t, kills, err := p.split()
	if err != nil {
		return 0, err
	}
	return p.bound(t, kills)
}

// killing ends the programs in a node, at a time after the start of a transfer.
type killing struct {
	at   time.Duration
	node string
}

// split puts the plan's At texts into a copy of its topology (changes of
// links, kept exactly by the emulator) and returns the rest.
func (p Plan) split() (*Topology, []killing, error) {
	t, err := p.Topology.clone()
	if err != nil {
		return nil, nil, err
	}
	var kills []killing
	for _, s := range p.At {
		when, what, ok := strings.Cut(s, ":")
		at, err := time.ParseDuration(when)
		if !ok || err != nil || at < 0 {
			return nil, nil, fmt.Errorf("--at %q: write TIME:LINK.PROPERTY=VALUE, TIME:kill=NODE or TIME:off=NODE, like 2s:hs1.rate=1Mbit/s", s)
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
			kills = append(kills, killing{at, node})
		case "off":
			if err := t.silence(at, node); err != nil {
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

// bound is that of the plan over t. A helper whose programs are killed carries
// nothing from then on.
func (p Plan) bound(t *Topology, kills []killing) (time.Duration, error) {
	t, err := t.clone()
	if err != nil {
		return 0, err
	}
	for _, k := range kills {
		if slices.Contains(t.Helpers(), k.node) {
			if err := t.silence(k.at, k.node); err != nil {
				return 0, err
			}
		}
	}
	return Bound(t, p.bytes(), p.Upload)
}

// clone copies a topology, so that it can be changed.
func (t *Topology) clone() (*Topology, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	c := &Topology{}
	return c, json.Unmarshal(b, c)
}

// silence black-holes all emulated links of a node from a time on.
func (t *Topology) silence(at time.Duration, node string) error {
	found := false
	for _, link := range t.Links() {
		if _, err := t.end(node, link); err != nil || !t.Link[link].Shaped() {
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
