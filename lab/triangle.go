// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"

	"mpbond/base/unit"
)

// One-way delays, half the round-trip times. The published set-up gives rates only; the delays are
// our assumption for LTE, a helper's LTE and a local WiFi link.
const (
	trianglePSDelay   = "25ms"
	triangleHSDelay   = "35ms"
	trianglePipeDelay = "2.5ms"
)

// Triangle returns the topology "triangle": a primary, helpers and a server. spec has rates in
// Mbit/s: "PS/HS/pipe" for one helper, ",HS/pipe" for each further one, "PS" without helpers. A
// pipe of "5+3" stands for two pipes with these rates.
//
//	primary ─────────── ps ────────── server ─ core ─ web
//	   └─ pipe1 ─ helper1 ─ hs1 ─────────┘
//
// A rate is a number of Mbit/s or has a unit; "-" leaves the link unshaped.
func Triangle(spec string) (*Topology, error) {
	bad := func(err error) error {
		return fmt.Errorf("links %q: %w (write PS/HS/pipe[+pipe…][,HS/pipe…] in Mbit/s, like 8/10/5,10/5)", spec, err)
	}
	t := &Topology{
		Node: map[string]*Node{
			"primary": {Routes: []string{"default via ps"}},
			"server":  {Forward: true},
			"web":     {Routes: []string{"default via core"}},
		},
		Link: map[string]*Link{"core": {Ends: [2]string{"server", "web"}}},
	}
	for i, part := range strings.Split(spec, ",") {
		rates := strings.Split(part, "/")
		if i == 0 {
			if err := t.addTriangleLink("ps", [2]string{"primary", "server"}, rates[0], trianglePSDelay); err != nil {
				return nil, bad(err)
			}
			if rates = rates[1:]; len(rates) == 0 {
				continue
			}
		}
		if len(rates) != 2 {
			return nil, bad(fmt.Errorf("helper %d needs two rates", max(i, 1)))
		}
		n := len(t.Node) - 2
		helper, hs, pipe := fmt.Sprintf("helper%d", n), fmt.Sprintf("hs%d", n), fmt.Sprintf("pipe%d", n)
		t.Node[helper] = &Node{Routes: []string{"default via " + hs}}
		if err := t.addTriangleLink(hs, [2]string{helper, "server"}, rates[0], triangleHSDelay); err != nil {
			return nil, bad(err)
		}
		for j, rate := range strings.Split(rates[1], "+") {
			name := pipe
			if j > 0 {
				name += string(rune('a' + j)) // pipe1b
			}
			if err := t.addTriangleLink(name, [2]string{"primary", helper}, rate, trianglePipeDelay); err != nil {
				return nil, bad(err)
			}
		}
	}
	return t, t.Check()
}

// addTriangleLink adds a link with a rate and a delay.
func (t *Topology) addTriangleLink(name string, ends [2]string, rate, delay string) error {
	l := &Link{Ends: ends}
	t.Link[name] = l
	if rate = strings.TrimSpace(rate); rate == "-" {
		return nil
	}
	if strings.Trim(rate, "0123456789.") == "" {
		rate += "Mbit/s"
	}
	if r, err := unit.ParseRate(rate); err != nil || r == 0 {
		return fmt.Errorf("rate %q of %s is not valid", rate, name)
	}
	l.Rate, l.Delay = rate, delay
	return nil
}

// Helpers returns the names of all helpers: nodes with links to both primary and server.
func (t *Topology) Helpers() (names []string) {
	for _, n := range t.Nodes() {
		if t.linkBetween("primary", n) != "" && t.linkBetween(n, "server") != "" {
			names = append(names, n)
		}
	}
	return names
}

// linkBetween returns the first link between two nodes, or "".
func (t *Topology) linkBetween(a, b string) string {
	if all := t.linksBetween(a, b); len(all) > 0 {
		return all[0]
	}
	return ""
}

// linksBetween returns all links between two nodes.
func (t *Topology) linksBetween(a, b string) (names []string) {
	for _, name := range t.Links() {
		if p, err := t.linkPeerNode(a, name); err == nil && p == b {
			names = append(names, name)
		}
	}
	return names
}
