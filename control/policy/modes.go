// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"mpbond/link/wire"
)

// Connection describes a connection that an app opens.
type Connection struct {
	Dest string // "host:port", the host as the app named it
	DSCP uint8  // of the app's packets (RFC 2474), 0 if unknown
	Name string // name that the app resolved to the address in Dest, "" if unknown
	// Process is the program that opens it, nil if unknown.
	Process *Process
}

// CompileSettings compiles the mode settings of a primary. They decide for connections that the
// policy file leaves at ModeUnset: first the settings of redundant, then those of latency. Each is
// "port:22", "port:5000-5100", "dscp:46", "host:example.org" or "host:*.example.org", which is also
// its name. A connection that none of them matches stays at ModeUnset.
func CompileSettings(latency, redundant []string) (*Rules, error) {
	r := &Rules{defaultVerdict: Verdict{Index: -1, Reason: "no setting matches"}}
	for _, l := range []struct {
		texts []string
		mode  Mode
	}{{redundant, ModeRedundant}, {latency, ModeLatency}} {
		for _, t := range l.texts {
			s, err := parseSetting(t)
			if err != nil {
				return nil, err
			}
			s.Mode = l.mode
			r.rules, r.filters = append(r.rules, s), append(r.filters, newMatchFilter(&s))
		}
	}
	return r, nil
}

// parseSetting parses one mode setting as a rule without a mode.
func parseSetting(text string) (RuleSpec, error) {
	s := RuleSpec{Name: text}
	kind, value, _ := strings.Cut(text, ":")
	switch kind {
	case "port":
		s.Port = make([]Ports, 1)
		if s.Port[0].UnmarshalText([]byte(value)) != nil {
			return s, fmt.Errorf("rule %q: ports are numbers from 1 to 65535, like port:22 or port:5000-5100", text)
		}
	case "dscp":
		n, err := strconv.ParseUint(value, 10, 8)
		if err != nil || n > 63 {
			return s, fmt.Errorf("rule %q: a DSCP is a number from 0 to 63, like dscp:46", text)
		}
		s.dscp = []uint8{uint8(n)}
	case "host":
		s.host = strings.ToLower(value)
		if _, err := path.Match(s.host, ""); err != nil || value == "" {
			return s, fmt.Errorf("rule %q: a host is a name or a pattern such as host:*.example.org", text)
		}
	default:
		return s, fmt.Errorf("rule %q must begin with port:, dscp: or host: and a value", text)
	}
	return s, nil
}

// matchesSetting reports whether the conditions that only settings have match.
func (s *RuleSpec) matchesSetting(q *query) bool {
	if len(s.dscp) > 0 && !slices.Contains(s.dscp, q.dscp) {
		return false
	}
	if s.host == "" {
		return true
	}
	ok, _ := path.Match(s.host, strings.ToLower(strings.TrimSuffix(q.host, ".")))
	return ok
}

// StreamMode returns the mode of the bond's stream.
func (m Mode) StreamMode() wire.Mode {
	switch m {
	case ModeLatency:
		return wire.ModeLatency
	case ModeRedundant:
		return wire.ModeRedundant
	}
	return wire.ModeBond
}
