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

// File is a policy file as it is written. Package config fills it; Compile
// makes rules of it.
type File struct {
	// Default is for connections that no rule matches, "allow" or "deny"; left out it
	// is "allow".
	Default DefaultAction `toml:"default"`
	// Rules are asked in their order; the first that matches decides.
	Rules []RuleSpec `toml:"rule"`
	// Devices are [device.NAME] tables, by the name of another device, of an interface
	// of this device, or of this device itself.
	Devices map[string]DeviceSpec `toml:"device"`
}

// DeviceSpec is what the file says of one device, whatever is carried.
type DeviceSpec struct {
	// Caps are of an interface of this device, of all of them together if the table has
	// the name of this device, or of what one carries for the other if it has that of a
	// helper or primary.
	Caps
	// Limits are of a helper, an interface of this device, or, by its own name, all
	// of them that have no table of their own.
	Limits
}

// RuleSpec is one rule: what it matches, and what follows. Of each list one
// entry must match, and of all lists that are given. A rule without any matches
// everything.
type RuleSpec struct {
	// Name is for log and status; empty is "rule" with its number.
	Name string `toml:"name"`

	App     []Pattern `toml:"app"`     // executables: paths, or their last parts
	Cgroup  []Pattern `toml:"cgroup"`  // control groups (version 2), with what is below them
	Label   []string  `toml:"label"`   // of `mpbond run --label`
	UID     []uint32  `toml:"uid"`     // users
	Domain  []Domain  `toml:"domain"`  // names, with all below them
	Address []Network `toml:"address"` // addresses and prefixes
	Port    []Ports   `toml:"port"`    // of the destination

	// Mode is "bond", "single", "latency", "redundant", "direct" or "block"; empty
	// is as primary.toml says, else "bond".
	Mode Mode `toml:"mode"`
	// Device and Pipe limit what carries it: own interfaces and helpers, and local
	// links of helpers; see docs/reference/policy.md.
	Device []string `toml:"device"`
	Pipe   []string `toml:"pipe"`
	// Priority is "high", "normal" or "low", Weight 1 to 100, against other
	// streams; left out they are "normal" and 1.
	Priority Priority `toml:"priority"`
	Weight   int      `toml:"weight"`

	// Settings of the primary alone ask for these: marks of packets (RFC 2474), and the
	// host as the app named it, by a shell pattern in lower case.
	dscp []uint8
	host string

	class *TrafficClass // nil: nothing special
}

// Priority is the class of a stream.
type Priority wire.Priority

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Priority) UnmarshalText(t []byte) error {
	for _, c := range []wire.Priority{wire.High, wire.Normal, wire.Low} {
		if c.String() == string(t) {
			*p = Priority(c)
			return nil
		}
	}
	return fmt.Errorf("%q is no priority; there are: high, normal, low", t)
}

// DefaultAction is what happens to what no rule matches.
type DefaultAction uint8

// Answers.
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

// Mode is how a connection is carried.
type Mode uint8

// Modes. Usual is as the primary's own settings say, ModeBond unless they name
// the connection.
const (
	ModeUnset     Mode = iota
	ModeBond           // over all subflows that it may use
	ModeSingle         // over one subflow that it may use, and another when that fails
	ModeLatency        // over the one of least delay, before all others
	ModeRedundant      // every byte over all subflows that it may use
	ModeDirect         // around the bond, as if mpbond were not there
	ModeBlock          // not at all
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
	return fmt.Errorf("%q is no mode; there are: %s", t, strings.Join(modeNames[1:], ", "))
}

// Pattern matches a path, or its last part if it has no slash: one that is
// equal, or as a shell does with *, ? and [ ], none of which stands for a slash.
type Pattern struct {
	text       string
	meta, base bool
	// head and tail are what is in front of the first and behind the last special
	// character: most paths differ there, which is seen at once.
	head, tail string
}

const patternMeta = `*?[]\`

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Pattern) UnmarshalText(t []byte) error {
	*p = Pattern{text: string(t), base: !strings.Contains(string(t), "/")}
	if i := strings.IndexAny(p.text, patternMeta); i >= 0 {
		p.meta, p.head = true, p.text[:i]
		p.tail = p.text[strings.LastIndexAny(p.text, patternMeta)+1:]
		if strings.ContainsRune(p.text, '\\') { // it takes the next character's meaning, also of what follows
			p.tail = ""
		}
	}
	if _, err := path.Match(p.text, ""); err != nil || p.text == "" {
		return fmt.Errorf("%q is no path or pattern such as \"/usr/bin/curl\", \"curl\" or \"/opt/*/bin/app\"", t)
	}
	return nil
}

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

// matchesAncestor reports whether a group, or one that it is in, matches.
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

// Domain is a name that matches itself and all names below it.
type Domain struct{ name string }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Domain) UnmarshalText(t []byte) error {
	name := normalizeName(strings.TrimPrefix(string(t), "*."))
	if name == "" || len(name) > maxDomain || strings.ContainsAny(name, "*/:@ \t") || strings.Contains("."+name+".", "..") || !isASCII(name) {
		return fmt.Errorf("%q is no domain such as \"example.org\", which stands for all names below it too", t)
	}
	d.name = name
	return nil
}

// maxDomain is the longest domain name (RFC 1035 section 2.3.4).
const maxDomain = 255

// normalizeName is a name as names are compared: as DNS has it (RFC 5891), if it can be
// written so.
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
			return fmt.Errorf("%q is no address or prefix such as \"192.0.2.7\" or \"2001:db8::/32\"", t)
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
func (r *Ports) UnmarshalText(t []byte) error {
	low, high, isRange := strings.Cut(string(t), "-")
	if !isRange {
		high = low
	}
	from, err1 := strconv.ParseUint(low, 10, 16)
	to, err2 := strconv.ParseUint(high, 10, 16)
	if err1 != nil || err2 != nil || from == 0 || from > to {
		return fmt.Errorf("%q is no port from 1 to 65535 or range such as \"5000-5100\"", t)
	}
	*r = Ports{uint16(from), uint16(to)}
	return nil
}

// compileClass reports what is wrong with what follows from a rule, and completes it.
func (s *RuleSpec) compileClass() *FileError {
	t := TrafficClass{Devices: s.Device, Pipes: s.Pipe, Single: s.Mode == ModeSingle, Priority: wire.Priority(s.Priority), Weight: uint8(max(s.Weight, 1))}
	switch special := t.IsSpecial(); {
	case s.Weight < 0 || s.Weight > maxWeight:
		return &FileError{Key: "weight", Err: fmt.Errorf("%s: its weight is %d; weights are 1 to %d", s.Name, s.Weight, maxWeight)}
	case slices.Contains(s.Device, ""):
		return &FileError{Key: "device", Err: fmt.Errorf("%s: a device has no name", s.Name)}
	case slices.Contains(s.Pipe, ""):
		return &FileError{Key: "pipe", Err: fmt.Errorf("%s: a pipe has no name", s.Name)}
	case special && (s.Mode == ModeDirect || s.Mode == ModeBlock):
		return &FileError{Key: "mode", Err: fmt.Errorf("%s: device, pipe, priority and weight are of the bond, which mode %v does without", s.Name, s.Mode)}
	case special:
		s.class = &t
	}
	return nil
}

// maxWeight bounds how unequal streams of a class are.
const maxWeight = 100

// TableRule is the name of the rules' tables.
const TableRule = "rule"

// TableDevice begins the names of devices' tables.
const TableDevice = "device."

// maxRules bounds what a connection may cost.
const maxRules = 10000

// FileError is what is wrong with a file whose values are right each for itself.
type FileError struct {
	Table string // that it is about, "" for none
	Index int    // which of these tables, from 0
	Key   string // of the table, or ""
	Err   error
}

// Error implements error.
func (m *FileError) Error() string { return m.Err.Error() }

// Unwrap is what is wrong.
func (m *FileError) Unwrap() error { return m.Err }

// Compile makes rules of a file. An error is a *Misfit.
func (f File) Compile() (*Rules, error) {
	if len(f.Rules) > maxRules {
		return nil, &FileError{Table: TableRule, Index: maxRules, Err: fmt.Errorf("there are %d rules; %d are the most", len(f.Rules), maxRules)}
	}
	r := &Rules{rules: make([]RuleSpec, len(f.Rules)), devices: f.Devices, defaultVerdict: Verdict{Index: -1, Reason: "no rule matches, and the default is to allow"}}
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
			return nil, &FileError{TableRule, i, "name", fmt.Errorf("rules %d and %d are both called %q", at, i+1, s.Name)}
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
			return nil, &FileError{TableRule, i, "", fmt.Errorf("%s: rules may treat connections in %d different ways; this is one more: give some the same device, pipe, priority and weight, and single or not", s.Name, wire.MaxGroups)}
		}
		r.rules[i] = s
		r.filters = append(r.filters, newMatchFilter(&s))
		r.needsNames = r.needsNames || len(s.Domain) > 0
		r.needsProcess = r.needsProcess || len(s.App) > 0 || len(s.Cgroup) > 0 || len(s.Label) > 0 || len(s.UID) > 0
	}
	return r, nil
}
