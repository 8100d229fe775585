// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Process describes the program that opens a connection.
type Process struct {
	Exe    string // path of the executable, "" if unknown
	Cgroup string // path of its control group from the hierarchy's root, "" if unknown
	Label  string // from `mpbond run --label`
	UID    uint32 // NoUID if unknown
}

// NoUID stands for an unknown user (POSIX chown: (uid_t)-1).
const NoUID = ^uint32(0)

// Rules is a compiled policy file. The zero Rules allows everything. It is immutable and safe for
// concurrent use.
type Rules struct {
	rules          []RuleSpec
	filters        []matchFilter // one for each rule
	devices        map[string]DeviceSpec
	defaultVerdict Verdict
	needsProcess   bool
	needsNames     bool
}

// Verdict says how a connection is carried, and why.
type Verdict struct {
	Mode   Mode
	Class  *TrafficClass // nil: default
	Rule   string        // name of the rule that matched, "" for none
	Index  int           // index of the rule in the file, from 0; -1 for none
	Reason string
}

// Len returns the number of rules.
func (r *Rules) Len() int { return len(r.rules) }

// List returns the rules in their order. Each has a name.
func (r *Rules) List() []RuleSpec { return slices.Clone(r.rules) }

// Default returns the action for connections that no rule matches.
func (r *Rules) Default() DefaultAction {
	if r.defaultVerdict.Mode == ModeBlock {
		return Deny
	}
	return Allow
}

// Devices returns the device tables, by name.
func (r *Rules) Devices() map[string]DeviceSpec { return maps.Clone(r.devices) }

// Device returns the table of a device, or the zero DeviceSpec.
func (r *Rules) Device(name string) DeviceSpec { return r.devices[name] }

// Caps returns the caps of devices that have any, by name.
func (r *Rules) Caps() map[string]Caps {
	list := map[string]Caps{}
	for name, d := range r.devices {
		if d.Caps.HasCap() {
			list[name] = d.Caps
		}
	}
	return list
}

// NeedsProcess reports whether a rule has a condition on the program. To find the program costs
// more than to evaluate the rules.
func (r *Rules) NeedsProcess() bool { return r.needsProcess }

// NeedsNames reports whether a rule has a condition on destination names.
func (r *Rules) NeedsNames() bool { return r.needsNames }

// Decide returns the verdict of the first rule that matches a connection. An unknown property of a
// connection matches no condition on it.
func (r *Rules) Decide(c Connection) Verdict {
	q := c.prepareQuery()
	for i := range r.rules {
		if s := &r.rules[i]; r.filters[i].mayMatchQuery(&q) && s.matchesQuery(&q) {
			return Verdict{Mode: s.Mode, Class: s.class, Rule: s.Name, Index: i,
				Reason: fmt.Sprintf("%s says %v", s.Name, s.Mode)}
		}
	}
	if len(r.rules) == 0 && r.defaultVerdict.Mode == ModeUnset {
		return Verdict{Index: -1, Reason: "there are no rules"}
	}
	return r.defaultVerdict
}

// query is a connection prepared for comparison with many rules.
type query struct {
	process *Process
	exe     string // last element of the executable's path
	name    string
	addr    netip.Addr
	v4      uint32 // addr as a number, if is4
	is4     bool
	port    uint16
	host    string // host as the app named it
	dscp    uint8
}

// prepareQuery prepares a connection for comparison with rules.
func (c Connection) prepareQuery() (q query) {
	host, port := c.Dest, ""
	if i := strings.LastIndexByte(c.Dest, ':'); i >= 0 {
		host, port = strings.Trim(c.Dest[:i], "[]"), c.Dest[i+1:]
	}
	n, _ := strconv.ParseUint(port, 10, 16)
	q.port, q.name, q.host, q.dscp = uint16(n), normalizeName(c.Name), host, c.DSCP
	if a, err := netip.ParseAddr(host); err == nil {
		q.addr = a.Unmap().WithZone("")
		if q.is4 = q.addr.Is4(); q.is4 {
			q.v4 = ipv4Number(q.addr)
		}
	} else {
		q.name = normalizeName(host)
	}
	if q.process = c.Process; q.process != nil {
		q.exe = q.process.Exe[strings.LastIndexByte(q.process.Exe, '/')+1:]
	}
	return q
}

// matchesQuery reports whether all conditions of the rule match.
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

// matchesProcess reports whether the process matches each list of conditions on it that is given.
func (s *RuleSpec) matchesProcess(q *query) bool {
	if len(s.App)+len(s.Cgroup)+len(s.Label)+len(s.UID) == 0 {
		return true
	}
	p := q.process
	if p == nil {
		return false
	}
	return (len(s.App) == 0 || p.Exe != "" && anyElementMatches(s.App,
		func(a *Pattern) bool { return a.matchesPath(p.Exe, q.exe) })) &&
		(len(s.Cgroup) == 0 || p.Cgroup != "" && anyElementMatches(s.Cgroup,
			func(c *Pattern) bool { return c.matchesAncestor(p.Cgroup) })) &&
		(len(s.Label) == 0 || p.Label != "" && anyElementMatches(s.Label, func(l *string) bool { return *l == p.Label })) &&
		(len(s.UID) == 0 || p.UID != NoUID && anyElementMatches(s.UID, func(u *uint32) bool { return *u == p.UID }))
}

// anyElementMatches reports whether f returns true for an element.
func anyElementMatches[T any](list []T, f func(*T) bool) bool {
	for i := range list {
		if f(&list[i]) {
			return true
		}
	}
	return false
}
