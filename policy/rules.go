package policy

import (
	"encoding"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"mpbond/wire"
)

// File is a policy file as it is written. Package config fills it; Compile
// makes rules of it.
type File struct {
	// Default is for connections that no rule matches.
	Default Answer `toml:"default"`
	// Rules are asked in their order; the first that matches decides.
	Rules []RuleSpec `toml:"rule"`
	// Devices are [device.NAME] tables, by the name of a helper or of an interface
	// of this device.
	Devices map[string]DeviceSpec `toml:"device"`
}

// DeviceSpec is what the file says of one device, whatever is carried.
type DeviceSpec struct{}

// RuleSpec is one rule: what it matches, and what follows. Of each list one
// entry must match, and of all lists that are given. A rule without any matches
// everything.
type RuleSpec struct {
	Name string `toml:"name"`

	App     []Pattern `toml:"app"`     // executables: paths, or their last parts
	Cgroup  []Pattern `toml:"cgroup"`  // control groups (version 2), with what is below them
	Label   []string  `toml:"label"`   // of `mpbond run --label`
	UID     []uint32  `toml:"uid"`     // users
	Domain  []Domain  `toml:"domain"`  // names, with all below them
	Address []Network `toml:"address"` // addresses and prefixes
	Port    []Ports   `toml:"port"`    // of the destination

	Mode Mode `toml:"mode"`
	// Device and Pipe limit what carries it: own interfaces and helpers, and local
	// links of helpers; see Treatment.
	Device []string `toml:"device"`
	Pipe   []string `toml:"pipe"`
	// Priority and Weight are against other streams; 0 is a weight of 1.
	Priority Priority `toml:"priority"`
	Weight   int      `toml:"weight"`

	treat *Treatment // nil: nothing special
}

// Priority is the class of a stream.
type Priority wire.Class

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Priority) UnmarshalText(t []byte) error {
	for _, c := range []wire.Class{wire.High, wire.Normal, wire.Low} {
		if c.String() == string(t) {
			*p = Priority(c)
			return nil
		}
	}
	return fmt.Errorf("%q is no priority; there are: high, normal, low", t)
}

// Answer is what happens to what no rule matches.
type Answer uint8

// Answers.
const (
	Allow Answer = iota
	Deny
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Answer) UnmarshalText(t []byte) error {
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
	Usual         Mode = iota
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

const special = `*?[]\`

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Pattern) UnmarshalText(t []byte) error {
	*p = Pattern{text: string(t), base: !strings.Contains(string(t), "/")}
	if i := strings.IndexAny(p.text, special); i >= 0 {
		p.meta, p.head = true, p.text[:i]
		p.tail = p.text[strings.LastIndexAny(p.text, special)+1:]
		if strings.ContainsRune(p.text, '\\') { // it takes the next character's meaning, also of what follows
			p.tail = ""
		}
	}
	if _, err := path.Match(p.text, ""); err != nil || p.text == "" {
		return fmt.Errorf("%q is no path or pattern such as \"/usr/bin/curl\", \"curl\" or \"/opt/*/bin/app\"", t)
	}
	return nil
}

func (p *Pattern) matches(full, last string) bool {
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

// above reports whether a group, or one that it is in, matches.
func (p *Pattern) above(group string) bool {
	for {
		if p.matches(group, group[strings.LastIndexByte(group, '/')+1:]) {
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
	name := plainName(strings.TrimPrefix(string(t), "*."))
	if name == "" || len(name) > maxDomain || strings.ContainsAny(name, "*/:@ \t") || strings.Contains("."+name+".", "..") {
		return fmt.Errorf("%q is no domain such as \"example.org\", which stands for all names below it too", t)
	}
	d.name = name
	return nil
}

// maxDomain is the longest domain name (RFC 1035 section 2.3.4).
const maxDomain = 255

// plainName is a name as names are compared.
func plainName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

func (d Domain) matches(name string) bool {
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
		a = a.Unmap()
		p = netip.PrefixFrom(a, a.BitLen())
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

// Process is what is known of the program that asks for a connection.
type Process struct {
	Exe    string // path of the executable, "" where it is not known
	Cgroup string // path of its control group, from the hierarchy's root, "" where it is not known
	Label  string // of `mpbond run --label`
	UID    uint32
}

// Rules is a policy file, ready to be asked. The zero Rules allows everything.
// It does not change, and may be asked by many at once.
type Rules struct {
	rules     []RuleSpec
	devices   map[string]DeviceSpec
	otherwise Verdict
	process   bool
	names     bool
}

// Verdict is what happens to a connection, and why.
type Verdict struct {
	Mode   Mode
	Treat  *Treatment // nil: nothing special
	Rule   string     // the rule that matched, "" for none
	Reason string
}

// check reports what is wrong with what follows from a rule, and completes it.
func (s *RuleSpec) check() error {
	t := Treatment{Devices: s.Device, Pipes: s.Pipe, Single: s.Mode == ModeSingle, Class: wire.Class(s.Priority), Weight: uint8(max(s.Weight, 1))}
	switch special := t.limits() || t.Class != wire.Normal || t.Weight != 1; {
	case s.Weight < 0 || s.Weight > maxWeight:
		return fmt.Errorf("%s: its weight is %d; weights are 1 to %d", s.Name, s.Weight, maxWeight)
	case slices.Contains(s.Device, "") || slices.Contains(s.Pipe, ""):
		return fmt.Errorf("%s: a device or pipe has no name", s.Name)
	case special && (s.Mode == ModeDirect || s.Mode == ModeBlock):
		return fmt.Errorf("%s: device, pipe, priority and weight are of the bond, which mode %v does without", s.Name, s.Mode)
	case special:
		s.treat = &t
	}
	return nil
}

// maxWeight bounds the turns in a row of a stream.
const maxWeight = 100

// maxRules bounds what a connection may cost.
const maxRules = 10000

// Compile makes rules of a file. An error names the rule.
func (f File) Compile() (*Rules, error) {
	if len(f.Rules) > maxRules {
		return nil, fmt.Errorf("there are %d rules; %d are the most", len(f.Rules), maxRules)
	}
	r := &Rules{rules: make([]RuleSpec, len(f.Rules)), devices: f.Devices, otherwise: Verdict{Reason: "no rule matches, and the default is to allow"}}
	if f.Default == Deny {
		r.otherwise = Verdict{Mode: ModeBlock, Reason: "no rule matches, and the default is to deny"}
	}
	names := map[string]int{}
	for i, s := range f.Rules {
		if s.Name == "" {
			s.Name = "rule " + strconv.Itoa(i+1)
		}
		if at, twice := names[s.Name]; twice {
			return nil, fmt.Errorf("rules %d and %d are both called %q", at, i+1, s.Name)
		}
		names[s.Name] = i + 1
		if err := s.check(); err != nil {
			return nil, err
		}
		r.rules[i] = s
		r.names = r.names || len(s.Domain) > 0
		r.process = r.process || len(s.App) > 0 || len(s.Cgroup) > 0 || len(s.Label) > 0 || len(s.UID) > 0
	}
	return r, nil
}

// Len is how many rules there are.
func (r *Rules) Len() int { return len(r.rules) }

// Device is what the file says of a device, the zero DeviceSpec for nothing.
func (r *Rules) Device(name string) DeviceSpec { return r.devices[name] }

// AskProcess reports whether a rule asks for the program: to find it costs more
// than the rules do.
func (r *Rules) AskProcess() bool { return r.process }

// AskNames reports whether a rule asks for the names of destinations.
func (r *Rules) AskNames() bool { return r.names }

// Of is what happens to a flow: what the first rule that matches says. What is
// not known of a flow matches no rule that asks for it.
func (r *Rules) Of(f Flow) Verdict {
	q := f.query()
	for i := range r.rules {
		if s := &r.rules[i]; s.matches(&q) {
			return Verdict{Mode: s.Mode, Treat: s.treat, Rule: s.Name, Reason: fmt.Sprintf("%s says %v", s.Name, s.Mode)}
		}
	}
	return r.otherwise
}

// query is a flow, prepared to be compared with many rules.
type query struct {
	process *Process
	exe     string // last part of the executable's path
	name    string
	addr    netip.Addr
	port    uint16
}

func (f Flow) query() (q query) {
	host, port := f.Dest, ""
	if i := strings.LastIndexByte(f.Dest, ':'); i >= 0 {
		host, port = strings.Trim(f.Dest[:i], "[]"), f.Dest[i+1:]
	}
	n, _ := strconv.ParseUint(port, 10, 16)
	q.port, q.name = uint16(n), plainName(f.Name)
	if a, err := netip.ParseAddr(host); err == nil {
		q.addr = a.Unmap().WithZone("")
	} else {
		q.name = plainName(host)
	}
	if q.process = f.Process; q.process != nil {
		q.exe = q.process.Exe[strings.LastIndexByte(q.process.Exe, '/')+1:]
	}
	return q
}

func (s *RuleSpec) matches(q *query) bool {
	return (len(s.Port) == 0 || s.matchesPort(q.port)) && (len(s.Domain) == 0 || s.matchesDomain(q.name)) &&
		(len(s.Address) == 0 || s.matchesAddress(q.addr)) && s.matchesProcess(q)
}

func (s *RuleSpec) matchesPort(port uint16) bool {
	for _, r := range s.Port {
		if port >= r.from && port <= r.to {
			return true
		}
	}
	return false
}

func (s *RuleSpec) matchesDomain(name string) bool {
	for _, d := range s.Domain {
		if d.matches(name) {
			return true
		}
	}
	return false
}

func (s *RuleSpec) matchesAddress(a netip.Addr) bool {
	for _, n := range s.Address {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

func (s *RuleSpec) matchesProcess(q *query) bool {
	if len(s.App)+len(s.Cgroup)+len(s.Label)+len(s.UID) == 0 {
		return true
	}
	p := q.process
	if p == nil {
		return false
	}
	return (len(s.App) == 0 || p.Exe != "" && anyOf(s.App, func(a *Pattern) bool { return a.matches(p.Exe, q.exe) })) &&
		(len(s.Cgroup) == 0 || p.Cgroup != "" && anyOf(s.Cgroup, func(c *Pattern) bool { return c.above(p.Cgroup) })) &&
		(len(s.Label) == 0 || p.Label != "" && anyOf(s.Label, func(l *string) bool { return *l == p.Label })) &&
		(len(s.UID) == 0 || anyOf(s.UID, func(u *uint32) bool { return *u == p.UID }))
}

func anyOf[T any](list []T, f func(*T) bool) bool {
	for i := range list {
		if f(&list[i]) {
			return true
		}
	}
	return false
}
