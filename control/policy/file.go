// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"mpbond/link/wire"
)

// File is a policy file as written. Package config fills it; Compile turns it into Rules.
type File struct {
	// Default applies to connections that no rule matches, "allow" or "deny"; empty is "allow".
	Default DefaultAction `toml:"default"`
	// Rules are evaluated in order; the first that matches decides.
	Rules []RuleSpec `toml:"rule"`
	// Devices are the [device.NAME] tables. A name is that of another device, of an interface of
	// this device, or of this device itself.
	Devices map[string]DeviceSpec `toml:"device"`
}

// DeviceSpec holds the settings of one device, which apply to all traffic.
type DeviceSpec struct {
	// Caps apply to an interface of this device. In the table of this device they apply to all its
	// interfaces together. In the table of a helper or primary they apply to what one device
	// carries for the other.
	Caps
	// Limits apply to a helper or an interface of this device. In the table of this device they
	// apply to all its interfaces without their own table.
	Limits
}

// RuleSpec is one rule: its conditions and their effect. Each list that is given must match, by at
// least one entry. A rule without conditions matches everything.
type RuleSpec struct {
	// Name appears in log and status; empty means "rule" and its number.
	Name string `toml:"name"`

	App     []Pattern `toml:"app"`     // executables: paths, or last elements of paths
	Cgroup  []Pattern `toml:"cgroup"`  // control groups (version 2), including groups below them
	Label   []string  `toml:"label"`   // labels of `mpbond run --label`
	UID     []uint32  `toml:"uid"`     // users
	Domain  []Domain  `toml:"domain"`  // names, including names below them
	Address []Network `toml:"address"` // addresses and prefixes
	Port    []Ports   `toml:"port"`    // ports of the destination

	// Mode is "bond", "single", "latency", "redundant", "direct" or "block"; empty means as set in
	// primary.toml, else "bond".
	Mode Mode `toml:"mode"`
	// Device and Pipe limit the devices (local interfaces and helpers) and the pipes of helpers
	// that carry it; see docs/reference/policy.md.
	Device []string `toml:"device"`
	Pipe   []string `toml:"pipe"`
	// Priority is "high", "normal" or "low"; empty is "normal".
	Priority Priority `toml:"priority"`
	// Weight is the share of a stream relative to others of its priority, 1 to 100; 0 is 1.
	Weight int `toml:"weight"`

	// Conditions that only a primary's settings have: DSCP marks (RFC 2474), and the host as the
	// app named it, as a shell pattern in lower case.
	dscp []uint8
	host string

	class *TrafficClass // nil: default
}

// Priority is the priority of a stream, as a rule writes it.
type Priority wire.Priority

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Priority) UnmarshalText(t []byte) error {
	for _, c := range []wire.Priority{wire.High, wire.Normal, wire.Low} {
		if c.String() == string(t) {
			*p = Priority(c)
			return nil
		}
	}
	return fmt.Errorf("%q is not a priority: use high, normal or low", t)
}

// DefaultAction applies to connections that no rule matches.
type DefaultAction uint8

// Default actions.
const (
	Allow DefaultAction = iota
	Deny
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *DefaultAction) UnmarshalText(t []byte) error {
	switch string(t) {
	case "allow":
		*a = Allow
	case "deny":
		*a = Deny
	default:
		return fmt.Errorf("%q is neither \"allow\" nor \"deny\"", t)
	}
	return nil
}

// Mode says how a connection is carried.
type Mode uint8

// Modes. ModeUnset means ModeBond unless the primary's settings name the connection.
const (
	ModeUnset     Mode = iota
	ModeBond           // over all permitted subflows
	ModeSingle         // over one permitted subflow, and another when that fails
	ModeLatency        // over the subflow of least delay, before all others
	ModeRedundant      // every byte over all permitted subflows
	ModeDirect         // outside the bond, as without mpbond
	ModeBlock          // refused
	modeCount
)

var modeNames = [modeCount]string{"usual", "bond", "single", "latency", "redundant", "direct", "block"}

func (m Mode) String() string { return modeNames[min(m, modeCount-1)] }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Mode) UnmarshalText(t []byte) error {
	for i, n := range modeNames {
		if i > 0 && n == string(t) {
			*m = Mode(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not a mode: use one of %s", t, strings.Join(modeNames[1:], ", "))
}

// Pattern matches a path, or its last element if the pattern has no slash. It is the exact text or
// a shell pattern with *, ? and [ ], none of which matches a slash.
type Pattern struct {
	text       string
	meta, base bool
	// head and tail are the texts before the first and behind the last special character. Most
	// paths differ there, which is quick to check.
	head, tail string
}

const patternMeta = `*?[]\`

// UnmarshalText implements encoding.TextUnmarshaler. It rejects empty and malformed patterns.
func (p *Pattern) UnmarshalText(t []byte) error {
	*p = Pattern{text: string(t), base: !strings.Contains(string(t), "/")}
	if i := strings.IndexAny(p.text, patternMeta); i >= 0 {
		p.meta, p.head = true, p.text[:i]
		p.tail = p.text[strings.LastIndexAny(p.text, patternMeta)+1:]
		if strings.ContainsRune(p.text, '\\') { // a backslash escapes the next character, also in the tail
			p.tail = ""
		}
	}
	if _, err := path.Match(p.text, ""); err != nil || p.text == "" {
		return fmt.Errorf("%q is not a path or pattern like \"/usr/bin/curl\", \"curl\" or \"/opt/*/bin/app\"", t)
	}
	return nil
}

// matchesPath reports whether a path, with that last element, matches.
func (p *Pattern) matchesPath(full, last string) bool {
	if p.base {
		full = last
	}
	if !p.meta {
		return p.text == full
	}
	if !strings.HasPrefix(full, p.head) || !strings.HasSuffix(full, p.tail) {
		return false
	}
	ok, _ := path.Match(p.text, full)
	return ok
}

// matchesAncestor reports whether a control group or one of its ancestors matches.
func (p *Pattern) matchesAncestor(group string) bool {
	for {
		if p.matchesPath(group, group[strings.LastIndexByte(group, '/')+1:]) {
			return true
		}
		i := strings.LastIndexByte(group, '/')
		if i <= 0 {
			return false
		}
		group = group[:i]
	}
}

// Domain matches a name and all names below it.
type Domain struct{ name string }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Domain) UnmarshalText(t []byte) error {
	name := normalizeName(strings.TrimPrefix(string(t), "*."))
	if name == "" || len(name) > maxDomain || strings.ContainsAny(name, "*/:@ \t") ||
		strings.Contains("."+name+".", "..") || !isASCII(name) {
		return fmt.Errorf("%q is not a domain like \"example.org\", which includes all names below it", t)
	}
	d.name = name
	return nil
}

// maxDomain is the longest domain name (RFC 1035 section 2.3.4).
const maxDomain = 255

// normalizeName returns a name in the form in which names are compared: that of DNS (RFC 5891), if
// possible.
func normalizeName(s string) string {
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	if !isASCII(s) {
		if a, err := idna.Lookup.ToASCII(s); err == nil {
			return a
		}
	}
	return s
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// matchesName reports whether a normalized name matches.
func (d Domain) matchesName(name string) bool {
	rest, ok := strings.CutSuffix(name, d.name)
	return ok && (rest == "" || rest[len(rest)-1] == '.')
}

// Network is an address or a prefix.
type Network struct{ netip.Prefix }

var _ encoding.TextUnmarshaler = (*Network)(nil)

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Network) UnmarshalText(t []byte) error {
	p, err := netip.ParsePrefix(string(t))
	if err != nil {
		a, aerr := netip.ParseAddr(string(t))
		if aerr != nil || a.Zone() != "" {
			return fmt.Errorf("%q is not an address or prefix like \"192.0.2.7\" or \"2001:db8::/32\"", t)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 { // RFC 4291 section 2.5.5.2; destinations are unmapped too
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	n.Prefix = p.Masked()
	return nil
}

// Ports is a range of ports.
type Ports struct{ from, to uint16 }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Ports) UnmarshalText(t []byte) error {
	low, high, isRange := strings.Cut(string(t), "-")
	if !isRange {
		high = low
	}
	from, err1 := strconv.ParseUint(low, 10, 16)
	to, err2 := strconv.ParseUint(high, 10, 16)
	if err1 != nil || err2 != nil || from == 0 || from > to {
		return fmt.Errorf("%q is not a port from 1 to 65535 or a range like \"5000-5100\"", t)
	}
	*p = Ports{uint16(from), uint16(to)}
	return nil
}

// compileClass checks the effect of a rule and sets its traffic class.
func (s *RuleSpec) compileClass() *FileError {
	t := TrafficClass{Devices: s.Device, Pipes: s.Pipe, Single: s.Mode == ModeSingle,
		Priority: wire.Priority(s.Priority), Weight: uint8(max(s.Weight, 1))}
	switch special := t.IsSpecial(); {
	case s.Weight < 0 || s.Weight > maxWeight:
		return &FileError{Key: "weight", Err: fmt.Errorf("%s: weight is %d: use 1 to %d", s.Name, s.Weight,
			maxWeight)}
	case slices.Contains(s.Device, ""):
		return &FileError{Key: "device", Err: fmt.Errorf("%s: empty device name", s.Name)}
	case slices.Contains(s.Pipe, ""):
		return &FileError{Key: "pipe", Err: fmt.Errorf("%s: empty pipe name", s.Name)}
	case special && (s.Mode == ModeDirect || s.Mode == ModeBlock):
		return &FileError{Key: "mode", Err: fmt.Errorf(
			"%s: mode %v does not use the bond: remove device, pipe, priority and weight", s.Name, s.Mode)}
	case special:
		s.class = &t
	}
	return nil
}

// maxWeight bounds the inequality of streams of one priority.
const maxWeight = 100

// TableRule is the name of the tables of rules.
const TableRule = "rule"

// TableDevice is the prefix of the names of device tables.
const TableDevice = "device."

// maxRules bounds the cost per connection.
const maxRules = 10000

// FileError is an error in a file, although each value is well-formed.
type FileError struct {
	Table string // name of the table, "" for none
	Index int    // index among the tables of that name, from 0
	Key   string // key in the table, or ""
	Err   error
}

// Error implements error.
func (e *FileError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *FileError) Unwrap() error { return e.Err }

// Compile returns the rules of a file. An error is a *FileError.
func (f File) Compile() (*Rules, error) {
	if len(f.Rules) > maxRules {
		return nil, &FileError{Table: TableRule, Index: maxRules,
			Err: fmt.Errorf("%d rules exceed the limit of %d", len(f.Rules), maxRules)}
	}
	r := &Rules{rules: make([]RuleSpec, len(f.Rules)), devices: f.Devices,
		defaultVerdict: Verdict{Index: -1, Reason: "no rule matches, and the default is to allow"}}
	if f.Default == Deny {
		r.defaultVerdict = Verdict{Index: -1, Mode: ModeBlock, Reason: "no rule matches, and the default is to deny"}
	}
	for name, d := range f.Devices {
		key, err := d.Caps.checkValues()
		if err == nil {
			key, err = d.Limits.Check()
		}
		if err != nil {
			return nil, &FileError{Table: TableDevice + name, Key: key, Err: fmt.Errorf("device %q: %w", name, err)}
		}
	}
	names, kinds := map[string]int{}, map[string]bool{}
	for i, s := range f.Rules {
		if s.Name == "" {
			s.Name = "rule " + strconv.Itoa(i+1)
		}
		if at, twice := names[s.Name]; twice {
			return nil, &FileError{TableRule, i, "name", fmt.Errorf("rules %d and %d have the same name %q", at, i+1, s.Name)}
		}
		names[s.Name] = i + 1
		if m := s.compileClass(); m != nil {
			m.Table, m.Index = TableRule, i
			return nil, m
		}
		if s.class != nil {
			kinds[s.class.Key()] = true
		}
		if len(kinds) > wire.MaxGroups {
			return nil, &FileError{TableRule, i, "",
				fmt.Errorf(
					"%s: more than %d combinations of device, pipe, priority, weight and single mode: make some rules equal",
					s.Name, wire.MaxGroups)}
		}
		r.rules[i] = s
		r.filters = append(r.filters, newMatchFilter(&s))
		r.needsNames = r.needsNames || len(s.Domain) > 0
		r.needsProcess = r.needsProcess || len(s.App) > 0 || len(s.Cgroup) > 0 || len(s.Label) > 0 || len(s.UID) > 0
	}
	return r, nil
}
