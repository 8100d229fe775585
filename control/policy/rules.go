package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Process is what is known of the program that asks for a connection.
type Process struct {
	Exe    string // path of the executable, "" where it is not known
	Cgroup string // path of its control group, from the hierarchy's root, "" where it is not known
	Label  string // of `mpbond run --label`
	UID    uint32 // NoUID where it is not known
}

// NoUID is no user (POSIX chown: (uid_t)-1).
const NoUID = ^uint32(0)

// Rules is a policy file, ready to be asked. The zero Rules allows everything.
// It does not change, and may be asked by many at once.
type Rules struct {
	rules          []RuleSpec
	filters        []matchFilter // of each
	devices        map[string]DeviceSpec
	defaultVerdict Verdict
	needsProcess   bool
	needsNames     bool
}

// Verdict is what happens to a connection, and why.
type Verdict struct {
	Mode   Mode
	Class  *TrafficClass // nil: nothing special
	Rule   string        // the rule that matched, "" for none
	Index  int           // its place in the file, from 0; -1 for none
	Reason string
}

// Len is how many rules there are.
func (r *Rules) Len() int { return len(r.rules) }

// List is the rules in their order, each with a name.
func (r *Rules) List() []RuleSpec { return slices.Clone(r.rules) }

// Default is what happens to what no rule matches.
func (r *Rules) Default() DefaultAction {
	if r.defaultVerdict.Mode == ModeBlock {
		return Deny
	}
	return Allow
}

// Devices are the tables of devices, by name.
func (r *Rules) Devices() map[string]DeviceSpec { return maps.Clone(r.devices) }

// Device is what the file says of a device, the zero DeviceSpec for nothing.
func (r *Rules) Device(name string) DeviceSpec { return r.devices[name] }

// Caps are those of devices that have any, by name.
func (r *Rules) Caps() map[string]Caps {
	list := map[string]Caps{}
	for name, d := range r.devices {
		if d.Caps.HasCap() {
			list[name] = d.Caps
		}
	}
	return list
}

// NeedsProcess reports whether a rule asks for the program: to find it costs more
// than the rules do.
func (r *Rules) NeedsProcess() bool { return r.needsProcess }

// NeedsNames reports whether a rule asks for the names of destinations.
func (r *Rules) NeedsNames() bool { return r.needsNames }

// Decide is what happens to a flow: what the first rule that matches says. What is
// not known of a flow matches no rule that asks for it.
func (r *Rules) Decide(f Flow) Verdict {
	q := f.toQuery()
	for i := range r.rules {
		if s := &r.rules[i]; r.filters[i].mayMatch(&q) && s.matchesQuery(&q) {
			return Verdict{Mode: s.Mode, Class: s.class, Rule: s.Name, Index: i, Reason: fmt.Sprintf("%s says %v", s.Name, s.Mode)}
		}
	}
	if len(r.rules) == 0 && r.defaultVerdict.Mode == ModeUnset {
		return Verdict{Index: -1, Reason: "there are no rules"}
	}
	return r.defaultVerdict
}

// query is a flow, prepared to be compared with many rules.
type query struct {
	process *Process
	exe     string // last part of the executable's path
	name    string
	addr    netip.Addr
	v4      uint32 // addr, if is4
	is4     bool
	port    uint16
	host    string // as the app named it
	dscp    uint8
}

func (f Flow) toQuery() (q query) {
	host, port := f.Dest, ""
	if i := strings.LastIndexByte(f.Dest, ':'); i >= 0 {
		host, port = strings.Trim(f.Dest[:i], "[]"), f.Dest[i+1:]
	}
	n, _ := strconv.ParseUint(port, 10, 16)
	q.port, q.name, q.host, q.dscp = uint16(n), normalizeName(f.Name), host, f.DSCP
	if a, err := netip.ParseAddr(host); err == nil {
		q.addr = a.Unmap().WithZone("")
		if q.is4 = q.addr.Is4(); q.is4 {
			q.v4 = ipv4Number(q.addr)
		}
	} else {
		q.name = normalizeName(host)
	}
	if q.process = f.Process; q.process != nil {
		q.exe = q.process.Exe[strings.LastIndexByte(q.process.Exe, '/')+1:]
	}
	return q
}

func (s *RuleSpec) matchesQuery(q *query) bool {
	return (len(s.Port) == 0 || s.matchesPort(q.port)) && (len(s.Domain) == 0 || s.matchesDomain(q.name)) &&
		(len(s.Address) == 0 || s.matchesAddress(q.addr)) && s.matchesSetting(q) && s.matchesProcess(q)
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
		if d.matchesName(name) {
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
	return (len(s.App) == 0 || p.Exe != "" && anyOf(s.App, func(a *Pattern) bool { return a.matchesPath(p.Exe, q.exe) })) &&
		(len(s.Cgroup) == 0 || p.Cgroup != "" && anyOf(s.Cgroup, func(c *Pattern) bool { return c.matchesAncestor(p.Cgroup) })) &&
		(len(s.Label) == 0 || p.Label != "" && anyOf(s.Label, func(l *string) bool { return *l == p.Label })) &&
		(len(s.UID) == 0 || p.UID != NoUID && anyOf(s.UID, func(u *uint32) bool { return *u == p.UID }))
}

func anyOf[T any](list []T, f func(*T) bool) bool {
	for i := range list {
		if f(&list[i]) {
			return true
		}
	}
	return false
}
