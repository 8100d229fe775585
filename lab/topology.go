// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"mpbond/base/unit"
	"mpbond/lab/radio"
	"mpbond/lab/shaper"
)

// Topology is a network to emulate, as a TOML file describes it. Maps are keyed by name. Whatever
// depends on order uses the order of names.
type Topology struct {
	Node map[string]*Node      `toml:"node" json:"node"`
	Link map[string]*Link      `toml:"link" json:"link"`
	Cell map[string]*RadioCell `toml:"cell" json:"cell,omitempty"`
	LTE  map[string]*LTE       `toml:"lte" json:"lte,omitempty"`
	// Sysctl applies to every node, after the lab's own defaultSysctls.
	Sysctl map[string]string `toml:"sysctl" json:"sysctl,omitempty"`
	// Seed seeds random losses and jitter.
	Seed uint64 `toml:"seed" json:"seed,omitempty"`
}

// Node is one machine: a network namespace.
type Node struct {
	Forward bool              `toml:"forward" json:"forward,omitempty"` // forwards packets of others
	NAT     []string          `toml:"nat" json:"nat,omitempty"`         // masquerades out of these links
	Routes  []string          `toml:"routes" json:"routes,omitempty"`   // "default via LINK", "PREFIX via LINK"
	Sysctl  map[string]string `toml:"sysctl" json:"sysctl,omitempty"`
}

// Link joins two nodes. "up" is from its first end to its second, "down" the other way; the first
// end is nearer to the user. Up and Down override the settings of the whole link.
type Link struct {
	Ends      [2]string   `toml:"ends" json:"ends"`
	Addresses [2][]string `toml:"addresses" json:"addresses"` // with prefix length; automatic if absent
	// Cell names the capacity that the link shares with others, besides its own limits.
	Cell string `toml:"cell" json:"cell,omitempty"`
	// LTE makes the link a device of a mobile network.
	LTE *LTELink `toml:"lte" json:"lte,omitempty"`
	// Promotion is how long the radio of the link takes to wake. Both directions share the radio.
	// It sleeps after Tail without a packet in either direction.
	Promotion string `toml:"promotion" json:"promotion,omitempty"`
	Tail      string `toml:"tail" json:"tail,omitempty"`
	LinkSettings
	Up   *LinkSettings `toml:"up" json:"up,omitempty"`
	Down *LinkSettings `toml:"down" json:"down,omitempty"`
}

// LinkSettings are the settings of one direction of a link, or of both. A link without settings is
// an unshaped veth pair of the kernel.
type LinkSettings struct {
	Rate     string   `toml:"rate" json:"rate,omitempty"` // "8Mbit/s"; absent: unlimited
	Delay    string   `toml:"delay" json:"delay,omitempty"`
	Jitter   string   `toml:"jitter" json:"jitter,omitempty"`
	Loss     string   `toml:"loss" json:"loss,omitempty"`         // "0.01" or "1%"
	Reorder  string   `toml:"reorder" json:"reorder,omitempty"`   // share of packets that overtake three others
	Queue    string   `toml:"queue" json:"queue,omitempty"`       // "100KB"; absent: DefaultQueue
	Schedule []string `toml:"schedule" json:"schedule,omitempty"` // "at 2s: rate 1Mbit/s"
	Loop     string   `toml:"loop" json:"loop,omitempty"`         // the schedule repeats at this interval
	Outages  []string `toml:"outages" json:"outages,omitempty"`   // "3s+500ms": start + length
	Trace    string   `toml:"trace" json:"trace,omitempty"`       // file, relative to the topology's
}

// Direction is a direction of a link.
type Direction int

// Directions, see Link.
const (
	Uplink Direction = iota
	Downlink
)

func (d Direction) String() string { return [...]string{"up", "down"}[d] }

// ParseDirection parses "up", "down" or "" (both).
func ParseDirection(s string) ([]Direction, error) {
	switch s {
	case "":
		return []Direction{Uplink, Downlink}, nil
	case "up":
		return []Direction{Uplink}, nil
	case "down":
		return []Direction{Downlink}, nil
	}
	return nil, fmt.Errorf("direction %q: write up or down", s)
}

// DefaultQueue returns the drop-tail limit of a line without a queue setting: what it sends in 100
// ms, at least 48 KB. That is one to two bandwidth-delay products of the paths studied here (RTT 50
// to 70 ms). It is 122 KB at 10 Mbit/s, where a kernel sender with CUBIC kept about 110 KB in the
// network. The minimum lets an initial window of ten segments and its successor pass on slow lines.
func DefaultQueue(r unit.Rate) unit.Bytes {
	if r == shaper.Unlimited {
		return 16 * unit.MB
	}
	return max(48*unit.KB, r.Bytes(100*time.Millisecond))
}

// LoadTopology reads and checks a topology file.
func LoadTopology(file string) (*Topology, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	t, err := ParseTopology(b, filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("topology %s: %w", file, err)
	}
	return t, nil
}

// ParseTopology parses and checks a topology. Trace files are relative to dir.
func ParseTopology(b []byte, dir string) (*Topology, error) {
	t := &Topology{}
	err := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields().Decode(t)
	var strict *toml.StrictMissingError
	var syntax *toml.DecodeError
	switch {
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		line, _ := strict.Errors[0].Position()
		return nil, fmt.Errorf("line %d: unknown key %q", line, strings.Join(strict.Errors[0].Key(), "."))
	case errors.As(err, &syntax):
		line, _ := syntax.Position()
		return nil, fmt.Errorf("line %d: %s: %s", line, strings.Join(syntax.Key(), "."),
			strings.TrimPrefix(syntax.Error(), "toml: "))
	case err != nil:
		return nil, err
	}
	for _, l := range t.Link {
		for _, d := range []*LinkSettings{&l.LinkSettings, l.Up, l.Down} {
			if d != nil {
				if err := makeAbsolute(&d.Trace, dir); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, d := range t.allDevices() {
		for _, file := range []*string{&d.Trace, &d.Recording} {
			if err := makeAbsolute(file, dir); err != nil {
				return nil, err
			}
		}
	}
	return t, t.Check()
}

// A name becomes an interface name, for which the kernel allows 15 letters.
var namePattern = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,14}$`)

// Check returns what is wrong with the topology, if anything.
func (t *Topology) Check() error {
	if len(t.Node) == 0 {
		return fmt.Errorf("no nodes: write [node.NAME] tables")
	}
	for _, name := range t.Nodes() {
		n := t.Node[name]
		if !namePattern.MatchString(name) {
			return fmt.Errorf("node %q: a name is a letter, then up to 14 letters, digits, - or _", name)
		}
		for _, l := range n.NAT {
			if _, err := t.linkPeerNode(name, l); err != nil {
				return fmt.Errorf("node %s: nat: %w", name, err)
			}
		}
		for _, r := range n.Routes {
			if _, err := t.parseRoute(name, r); err != nil {
				return fmt.Errorf("node %s: %w", name, err)
			}
		}
	}
	if err := t.checkCells(); err != nil {
		return err
	}
	for i, name := range t.Links() {
		l := t.Link[name]
		if !namePattern.MatchString(name) || name == "lo" {
			return fmt.Errorf("link %q: a name is a letter, then up to 14 letters, digits, - or _, and not lo", name)
		}
		if i >= 250 {
			return fmt.Errorf("more than 250 links")
		}
		if l.Ends[0] == l.Ends[1] {
			return fmt.Errorf("link %s: its ends must be two different nodes: ends = [\"A\", \"B\"]", name)
		}
		for _, e := range l.Ends {
			if t.Node[e] == nil {
				return fmt.Errorf("link %s: no node %q (write [node.%s])", name, e, e)
			}
		}
		for _, d := range []Direction{Uplink, Downlink} {
			p, err := l.Program(d)
			if err == nil && l.Cell != "" {
				err = t.checkCellMember(l, p)
			}
			if err != nil {
				return fmt.Errorf("link %s: %w", name, err)
			}
		}
		if _, err := l.attachRadio(); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
		if _, err := t.linkAddresses(name); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return t.checkLTENetworks()
}

// Nodes returns the names of all nodes in order.
func (t *Topology) Nodes() []string { return slices.Sorted(maps.Keys(t.Node)) }

// Links returns the names of all links in order.
func (t *Topology) Links() []string { return slices.Sorted(maps.Keys(t.Link)) }

// Shaped reports whether the link is emulated. Otherwise it is a veth pair.
func (l *Link) Shaped() bool {
	for _, d := range []*LinkSettings{&l.LinkSettings, l.Up, l.Down} {
		if d != nil && !d.hasNoSettings() {
			return true
		}
	}
	return l.Cell != "" || l.LTE != nil || l.Promotion+l.Tail != ""
}

// SetRadio gives the link the radio of a model, which sleeps after the model's tail.
func (l *Link) SetRadio(m radio.Model) {
	tail := time.Duration(0)
	for _, p := range m.Tail {
		tail += p.Time
	}
	l.Promotion, l.Tail = m.Promotion.Time.String(), tail.String()
}

// attachRadio attaches lines of the link to its radio, if it has one. It returns nil without a
// radio.
func (l *Link) attachRadio(lines ...*shaper.Line) (*shaper.Radio, error) {
	if l.Promotion+l.Tail == "" {
		return nil, nil
	}
	var times [2]time.Duration
	for i, p := range [2][2]string{{"promotion", l.Promotion}, {"tail", l.Tail}} {
		var err error
		if times[i], err = time.ParseDuration(p[1]); err != nil || times[i] <= 0 {
			return nil, fmt.Errorf("%s %q: promotion and tail belong together, write them like 582ms", p[0], p[1])
		}
	}
	if l.Cell != "" || l.LTE != nil {
		return nil, fmt.Errorf("promotion: a link in a cell or mobile network cannot have one")
	}
	return shaper.NewRadio(times[0], times[1], lines...)
}

// hasNoSettings reports whether nothing is set.
func (d LinkSettings) hasNoSettings() bool {
	return d.Rate+d.Delay+d.Jitter+d.Loss+d.Reorder+d.Queue+d.Trace+d.Loop == "" && len(d.Schedule)+len(d.Outages) == 0
}

// Program returns the program of one direction of the link. It reads trace files.
func (l *Link) Program(dir Direction) (shaper.Program, error) {
	d := l.LinkSettings
	if over := [...]*LinkSettings{l.Up, l.Down}[dir]; over != nil {
		d = d.overriddenBy(*over)
	}
	p := shaper.Program{Base: shaper.Setting{Rate: shaper.Unlimited}}
	var base shaper.Change
	for _, kv := range [][2]string{{"rate", d.Rate}, {"delay", d.Delay}, {"jitter", d.Jitter}, {"loss", d.Loss},
		{"reorder", d.Reorder}, {"queue", d.Queue}} {
		if kv[1] != "" {
			if err := base.Set(kv[0], kv[1]); err != nil {
				return p, err
			}
		}
	}
	p.Base = base.Apply(p.Base)
	if err := d.addProgramTracks(&p); err != nil {
		return p, err
	}
	if base.Queue == nil {
		p.Base.Queue = DefaultQueue(p.Base.Rate)
	}
	return p, p.Check()
}

// addProgramTracks adds trace, schedule and outages to p.
func (d LinkSettings) addProgramTracks(p *shaper.Program) error {
	if d.Trace != "" {
		f, err := os.Open(d.Trace)
		if err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		defer f.Close()
		if err := p.AddTrace(f); err != nil {
			return fmt.Errorf("%s: %w", d.Trace, err)
		}
	}
	var track shaper.Track
	for _, s := range d.Schedule {
		c, err := shaper.ParseChange(s)
		if err != nil {
			return err
		}
		track.Changes = append(track.Changes, c)
	}
	if d.Loop != "" {
		var err error
		if track.Loop, err = time.ParseDuration(d.Loop); err != nil || track.Loop <= 0 {
			return fmt.Errorf("loop %q: write it like 10s", d.Loop)
		}
	}
	if len(track.Changes) > 0 {
		p.Tracks = append(p.Tracks, track)
	}
	for _, s := range d.Outages {
		a, b, ok := strings.Cut(s, "+")
		from, err1 := time.ParseDuration(a)
		length, err2 := time.ParseDuration(b)
		if !ok || err1 != nil || err2 != nil || from < 0 || length <= 0 {
			return fmt.Errorf("outage %q: write start+length, like 3s+500ms", s)
		}
		p.Tracks = append(p.Tracks, shaper.Outage(from, length))
	}
	return nil
}

// overriddenBy returns d with the values that o sets.
func (d LinkSettings) overriddenBy(o LinkSettings) LinkSettings {
	for _, f := range []struct {
		dst *string
		v   string
	}{{&d.Rate, o.Rate}, {&d.Delay, o.Delay}, {&d.Jitter, o.Jitter}, {&d.Loss, o.Loss}, {&d.Reorder, o.Reorder},
		{&d.Queue, o.Queue}, {&d.Loop, o.Loop}, {&d.Trace, o.Trace}} {
		if f.v != "" {
			*f.dst = f.v
		}
	}
	if o.Schedule != nil {
		d.Schedule = o.Schedule
	}
	if o.Outages != nil {
		d.Outages = o.Outages
	}
	return d
}

// AddChange appends a change of one link to its schedule, at a time after the start:
// "hs1.rate=1Mbit/s", or "hs1.down.rate=…" for one direction.
func (t *Topology) AddChange(at time.Duration, what string) error {
	path, value, ok := strings.Cut(what, "=")
	parts := strings.Split(path, ".")
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return fmt.Errorf("%q: write LINK.PROPERTY=VALUE or LINK.up.PROPERTY=VALUE", what)
	}
	l := t.Link[parts[0]]
	if l == nil {
		return fmt.Errorf("%q: no link %q", what, parts[0])
	}
	if !l.Shaped() {
		return fmt.Errorf("%q: link %s is unshaped and cannot change", what, parts[0])
	}
	if len(parts) == 2 {
		parts = []string{parts[0], "", parts[1]}
	}
	dirs, err := ParseDirection(parts[1])
	if err != nil {
		return err
	}
	for _, d := range dirs {
		over := []**LinkSettings{&l.Up, &l.Down}[d]
		if *over == nil {
			*over = &LinkSettings{}
		}
		if (*over).Schedule == nil {
			(*over).Schedule = slices.Clone(l.Schedule)
		}
		(*over).Schedule = append((*over).Schedule, fmt.Sprintf("at %v: %s %s", at, parts[2], value))
		slices.SortStableFunc((*over).Schedule, func(a, b string) int {
			ca, _ := shaper.ParseChange(a)
			cb, _ := shaper.ParseChange(b)
			return int(ca.At - cb.At)
		})
	}
	return t.Check()
}
