// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// linkAddresses returns the addresses of both ends of a link. Automatic addresses are 10.77.N.1 and
// 10.77.N.2, and fd77:N::1 and fd77:N::2. N counts links from 1 in order of name; the first end has
// the 1.
func (t *Topology) linkAddresses(link string) (ends [2][]netip.Prefix, err error) {
	l := t.Link[link]
	n := slices.Index(t.Links(), link) + 1
	for i := range ends {
		texts := l.Addresses[i]
		if len(texts) == 0 {
			texts = []string{fmt.Sprintf("10.77.%d.%d/24", n, i+1), fmt.Sprintf("fd77:%x::%d/64", n, i+1)}
		}
		for _, s := range texts {
			p, err := netip.ParsePrefix(s)
			if err != nil {
				return ends, fmt.Errorf("address %q: write it with its prefix length, like 10.1.0.1/24", s)
			}
			ends[i] = append(ends[i], p)
		}
	}
	return ends, nil
}

// linkEndIndex returns which end of the link the node is: 0 or 1.
func (t *Topology) linkEndIndex(node, link string) (int, error) {
	l := t.Link[link]
	if l == nil {
		return 0, fmt.Errorf("no link %q", link)
	}
	if i := slices.Index(l.Ends[:], node); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("link %s does not end at %s", link, node)
}

// linkPeerNode returns the node at the other end of a link.
func (t *Topology) linkPeerNode(node, link string) (string, error) {
	i, err := t.linkEndIndex(node, link)
	if err != nil {
		return "", err
	}
	return t.Link[link].Ends[1-i], nil
}

// Addr returns the node's IPv4 address on a link. An empty link name stands for the node's first
// link.
func (t *Topology) Addr(node, link string) (netip.Addr, error) {
	for _, name := range t.Links() {
		if i, err := t.linkEndIndex(node, name); err == nil && (link == "" || link == name) {
			ends, err := t.linkAddresses(name)
			if err != nil {
				return netip.Addr{}, err
			}
			for _, p := range ends[i] {
				if p.Addr().Is4() {
					return p.Addr(), nil
				}
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("node %q has no IPv4 address on link %q", node, link)
}

// route sends packets for dst to the node at the other end of link.
type route struct {
	dst  netip.Prefix
	link string
	via  netip.Addr
}

// parseRoute parses "default via LINK" or "PREFIX via LINK" of a node.
func (t *Topology) parseRoute(node, s string) ([]route, error) {
	f := strings.Fields(s)
	if len(f) != 3 || f[1] != "via" {
		return nil, fmt.Errorf("route %q: write \"default via LINK\" or \"10.0.0.0/8 via LINK\"", s)
	}
	i, err := t.linkEndIndex(node, f[2])
	if err != nil {
		return nil, fmt.Errorf("route %q: %w", s, err)
	}
	ends, err := t.linkAddresses(f[2])
	if err != nil {
		return nil, err
	}
	dsts := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	if f[0] != "default" {
		p, err := netip.ParsePrefix(f[0])
		if err != nil {
			return nil, fmt.Errorf("route %q: %q is not a prefix", s, f[0])
		}
		dsts = []netip.Prefix{p.Masked()}
	}
	var out []route
	for _, dst := range dsts {
		for _, via := range ends[1-i] {
			if via.Addr().Is4() == dst.Addr().Is4() {
				out = append(out, route{dst, f[2], via.Addr()})
				break
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("route %q: the other end of %s has no address of that family", s, f[2])
	}
	return out, nil
}

// nodeRoutes returns all routes of a node: first a host route for every address it can reach, by
// the shortest way through nodes that forward, then the node's own Routes.
func (t *Topology) nodeRoutes(node string) (out []route, err error) {
	firstLink := map[string]string{node: ""} // first link on the way from the node, by destination
	for queue := []string{node}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != node && !t.Node[at].Forward {
			continue
		}
		for _, link := range t.Links() {
			next, err := t.linkPeerNode(at, link)
			if _, known := firstLink[next]; err != nil || known {
				continue
			}
			if firstLink[next] = firstLink[at]; at == node {
				firstLink[next] = link
			}
			queue = append(queue, next)
		}
	}
	for _, link := range t.Links() {
		ends, err := t.linkAddresses(link)
		if err != nil {
			return nil, err
		}
		if _, err := t.linkEndIndex(node, link); err == nil {
			continue // on-link
		}
		for i, endNode := range t.Link[link].Ends {
			by := firstLink[endNode]
			if by == "" {
				continue
			}
			for _, a := range ends[i] {
				r, err := t.parseRoute(node, fmt.Sprintf("%s/%d via %s", a.Addr(), a.Addr().BitLen(), by))
				if err == nil {
					out = append(out, r...)
				}
			}
		}
	}
	for _, s := range t.Node[node].Routes {
		r, err := t.parseRoute(node, s)
		if err != nil {
			return nil, err
		}
		out = append(out, r...)
	}
	return out, nil
}

// hostsFileText returns the text of the lab's /etc/hosts. NODE is the node's address on its first
// link in order of name; NODE.LINK is its address on that link.
func (t *Topology) hostsFileText() string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	named := map[string]bool{}
	for _, link := range t.Links() {
		ends, err := t.linkAddresses(link)
		if err != nil {
			continue
		}
		for i, node := range t.Link[link].Ends {
			for _, p := range ends[i] {
				fmt.Fprintf(&b, "%s %s.%s", p.Addr(), node, link)
				if !named[node] {
					fmt.Fprintf(&b, " %s", node)
				}
				b.WriteByte('\n')
			}
			named[node] = true
		}
	}
	return b.String()
}
