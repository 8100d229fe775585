package policy

import (
	"fmt"
	"path"
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

// Modes decides how connections are carried: rules for wire.Redundant first,
// then those for wire.Latency; what none matches is wire.Bond.
type Modes struct{ redundant, latency []rule }

// rule matches a flow; one of the fields is set.
type rule struct {
	text     string
	from, to int    // destination ports
	dscp     int    // -1: any
	host     string // a shell pattern, lower case
}

// ParseModes reads rules, each of them "port:22", "port:5000-5100", "dscp:46",
// "host:example.org" or "host:*.example.org".
func ParseModes(latency, redundant []string) (m Modes, err error) {
	for _, l := range []struct {
		texts []string
		to    *[]rule
	}{{latency, &m.latency}, {redundant, &m.redundant}} {
		for _, t := range l.texts {
			r, err := parseRule(t)
			if err != nil {
				return Modes{}, err
			}
			*l.to = append(*l.to, r)
		}
	}
	return m, nil
}

func parseRule(text string) (rule, error) {
	r := rule{text: text, dscp: -1}
	kind, value, _ := strings.Cut(text, ":")
	switch kind {
	case "port":
		low, high, isRange := strings.Cut(value, "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 16)
		to, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || from == 0 || from > to {
			return r, fmt.Errorf("rule %q: ports are numbers from 1 to 65535, like port:22 or port:5000-5100", text)
		}
		r.from, r.to = int(from), int(to)
	case "dscp":
		n, err := strconv.ParseUint(value, 10, 8)
		if err != nil || n > 63 {
			return r, fmt.Errorf("rule %q: a DSCP is a number from 0 to 63, like dscp:46", text)
		}
		r.dscp = int(n)
	case "host":
		r.host = strings.ToLower(value)
		if _, err := path.Match(r.host, ""); err != nil || value == "" {
			return r, fmt.Errorf("rule %q: a host is a name or a pattern such as host:*.example.org", text)
		}
	default:
		return r, fmt.Errorf("rule %q begins with none of port:, dscp: and host: as rules do", text)
	}
	return r, nil
}

func (r rule) matches(f Flow, host string, port int) bool {
	switch {
	case r.from > 0:
		return port >= r.from && port <= r.to
	case r.dscp >= 0:
		return int(f.DSCP) == r.dscp
	}
	ok, _ := path.Match(r.host, strings.ToLower(strings.TrimSuffix(host, ".")))
	return ok
}

// Of is the mode of a flow, and the rule that says so, "" for none.
func (m Modes) Of(f Flow) (wire.Mode, string) {
	host, port := f.Dest, 0
	if i := strings.LastIndexByte(f.Dest, ':'); i >= 0 {
		host = strings.Trim(f.Dest[:i], "[]")
		port, _ = strconv.Atoi(f.Dest[i+1:])
	}
	for _, l := range []struct {
		rules []rule
		mode  wire.Mode
	}{{m.redundant, wire.Redundant}, {m.latency, wire.Latency}} {
		for _, r := range l.rules {
			if r.matches(f, host, port) {
				return l.mode, r.text
			}
		}
	}
	return wire.Bond, ""
}
