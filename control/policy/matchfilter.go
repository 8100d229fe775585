// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"net/netip"
	"strings"
)

// matchFilter is a necessary condition of a rule. It rejects most rules for most connections, and
// takes about 50 contiguous bytes.
type matchFilter struct {
	app, domain          string    // suffixes that the executable's path and the name must have
	address              [2]uint32 // least and greatest IPv4 address
	port                 [2]uint16
	needsName, needsAddr bool
	needsProcess         bool
	v6                   bool // the rule has IPv6 addresses
}

// newMatchFilter returns the filter of a rule.
func newMatchFilter(s *RuleSpec) matchFilter {
	g := matchFilter{needsName: len(s.Domain) > 0, needsAddr: len(s.Address) > 0, port: [2]uint16{0, ^uint16(0)},
		needsProcess: len(s.App)+len(s.Cgroup)+len(s.Label)+len(s.UID) > 0}
	for i, r := range s.Port {
		if i == 0 {
			g.port = [2]uint16{r.from, r.to}
		}
		g.port = [2]uint16{min(g.port[0], r.from), max(g.port[1], r.to)}
	}
	for i := range s.App {
		end := s.App[i].text
		if s.App[i].meta {
			end = s.App[i].tail
		}
		g.app = commonSuffix(i == 0, g.app, end)
	}
	for i, d := range s.Domain {
		g.domain = commonSuffix(i == 0, g.domain, d.name)
	}
	g.address = [2]uint32{^uint32(0), 0}
	for _, n := range s.Address {
		if !n.Addr().Is4() {
			g.v6 = true
			continue
		}
		first := ipv4Number(n.Addr())
		g.address = [2]uint32{min(g.address[0], first), max(g.address[1], first|^uint32(0)>>n.Bits())}
	}
	return g
}

// commonSuffix returns the common suffix of a and b, or b if first is set.
func commonSuffix(first bool, a, b string) string {
	if first {
		return b
	}
	for !strings.HasSuffix(b, a) {
		a = a[1:]
	}
	return a
}

// ipv4Number returns an IPv4 address as a number.
func ipv4Number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// mayMatchQuery reports whether the rule may match. If not, it certainly does not.
func (f *matchFilter) mayMatchQuery(q *query) bool {
	if q.port < f.port[0] || q.port > f.port[1] || f.needsProcess && q.process == nil {
		return false
	}
	if f.needsAddr && (q.is4 && (q.v4 < f.address[0] || q.v4 > f.address[1]) || !q.is4 && !f.v6) {
		return false
	}
	return (!f.needsName || strings.HasSuffix(q.name, f.domain)) &&
		(f.app == "" || strings.HasSuffix(q.process.Exe, f.app))
}
