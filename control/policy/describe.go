// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strconv"
)

func (a DefaultAction) String() string {
	if a == Deny {
		return "deny"
	}
	return "allow"
}

func (p Pattern) String() string { return p.text }

func (d Domain) String() string { return d.name }

// String returns the prefix, or the address if it holds one address only.
func (n Network) String() string {
	if n.IsSingleIP() {
		return n.Addr().String()
	}
	return n.Prefix.String()
}

func (p Ports) String() string {
	if p.from == p.to {
		return strconv.Itoa(int(p.from))
	}
	return fmt.Sprintf("%d-%d", p.from, p.to)
}

// TrafficClass returns the traffic class of a compiled rule, or nil for the default.
func (s *RuleSpec) TrafficClass() *TrafficClass { return s.class }

// Conditions returns the conditions of the rule, by key.
func (s *RuleSpec) Conditions() map[string][]string {
	m := map[string][]string{}
	addConditionTexts(m, "app", s.App, Pattern.String)
	addConditionTexts(m, "cgroup", s.Cgroup, Pattern.String)
	addConditionTexts(m, "label", s.Label, func(l string) string { return l })
	addConditionTexts(m, "uid", s.UID, func(u uint32) string { return strconv.FormatUint(uint64(u), 10) })
	addConditionTexts(m, "domain", s.Domain, Domain.String)
	addConditionTexts(m, "address", s.Address, Network.String)
	addConditionTexts(m, "port", s.Port, Ports.String)
	return m
}

// addConditionTexts adds the texts of list under key.
func addConditionTexts[T any](m map[string][]string, key string, list []T, text func(T) string) {
	for _, v := range list {
		m[key] = append(m[key], text(v))
	}
}
