package policy

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"mpbond/link/wire"
)

// Flow is what is known of a connection when an app asks for it.
type Flow struct {
	Dest string // "host:port", the host as the app named it
	DSCP uint8  // of the app's packets (RFC 2474), 0 where it is not known
	Name string // that the address in Dest was looked up for, "" where it is not known
	// Process is the program that asks, nil where it is not known.
	Process *Process
}

// CompileSettings compiles the rules of a primary's own settings, which decide what a
// policy file leaves open (Usual): those of redundant first, then those of latency. Each
// is "port:22", "port:5000-5100", "dscp:46", "host:example.org" or "host:*.example.org",
// and is its own name. What none of them matches stays Usual.
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
		return s, fmt.Errorf("rule %q begins with none of port:, dscp: and host: as rules do", text)
	}
	return s, nil
}

// matchesSetting reports whether what settings alone ask for matches.
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

// StreamMode returns the mode of a bond's stream that is carried so.
func (m Mode) StreamMode() wire.Mode {
	switch m {
	case ModeLatency:
		return wire.Latency
	case ModeRedundant:
		return wire.Redundant
	}
	return wire.Bond
}
