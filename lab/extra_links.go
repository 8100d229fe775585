// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// A primary may have several links to the server. Routes use the first one (in order of name).
// Packets from the address of another link go by that link, as on a phone with WiFi and LTE.

// extraLinkTable is the first routing table of further direct links, and the priority of its rule.
const extraLinkTable = 200

// addExtraEndpoints makes MPTCP endpoints of all direct links but first, by which connections
// begin. An empty name is the link that routes choose.
func (b *Bench) addExtraEndpoints(ctx context.Context, first string) error {
	t := b.Lab.Topology
	links := t.linksBetween("primary", "server")
	if len(links) < 2 {
		return fmt.Errorf("mptcp:own: the primary needs two links to the server")
	}
	if first != "" && first != links[0] {
		if err := b.routeWebByLink(ctx, first); err != nil {
			return fmt.Errorf("mptcp:own:first=%s: %w", first, err)
		}
	}
	for i, link := range links {
		if err := b.addLinkRoute(ctx, link, linkTable(i)); err != nil {
			return err
		}
		if link == first || first == "" && i == 0 {
			continue
		}
		mine, err := t.Addr("primary", link)
		if err != nil {
			return err
		}
		if _, err := b.Run(ctx, "primary", "ip", "mptcp", "endpoint", "add", mine.String(), "dev", link,
			"subflow"); err != nil {
			return err
		}
	}
	return nil
}

// linkTable returns the routing table of the i-th direct link, which is also the priority of its
// rule.
func linkTable(i int) string { return strconv.Itoa(extraLinkTable + i) }

// addLinkRoute sends packets from the primary's address on a link by that link.
func (b *Bench) addLinkRoute(ctx context.Context, link, table string) error {
	mine, err1 := b.Lab.Topology.Addr("primary", link)
	via, err2 := b.Lab.Topology.Addr("server", link)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return b.runCommands(ctx, [][]string{
		{"primary", "ip", "route", "replace", "default", "via", via.String(), "dev", link, "table", table},
		{"primary", "ip", "rule", "add", "from", mine.String(), "lookup", table, "priority", table},
	})
}

// webRouteTable is the routing table of routeWebByLink. Its rule has the same priority, after those
// of links: sockets that are bound to an address keep its link.
const webRouteTable = "299"

// routeWebByLink sends packets to the web node by a direct link.
func (b *Bench) routeWebByLink(ctx context.Context, link string) error {
	t := b.Lab.Topology
	links := t.linksBetween("primary", "server")
	if !slices.Contains(links, link) {
		return fmt.Errorf("no such link of the primary to the server (there are %v)", links)
	}
	web, err1 := t.Addr("web", "")
	via, err2 := t.Addr("server", link)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return b.runCommands(ctx, [][]string{
		{"primary", "ip", "route", "replace", "default", "via", via.String(), "dev", link, "table", webRouteTable},
		{"primary", "ip", "rule", "add", "to", web.String(), "lookup", webRouteTable, "priority", webRouteTable},
	})
}

// removeWebRoute undoes routeWebByLink.
func (b *Bench) removeWebRoute(ctx context.Context) error {
	return b.removeRouteTable(ctx, webRouteTable)
}

// removeExtraRoutes removes the routes of addExtraEndpoints.
func (b *Bench) removeExtraRoutes(ctx context.Context, first string) error {
	links := b.Lab.Topology.linksBetween("primary", "server")
	var all []error
	for i := range links {
		all = append(all, b.removeRouteTable(ctx, linkTable(i)))
	}
	if first != "" && first != links[0] {
		all = append(all, b.removeWebRoute(ctx))
	}
	return errors.Join(all...)
}

// removeRouteTable removes a routing table, and the rule for it, which has the same priority.
func (b *Bench) removeRouteTable(ctx context.Context, table string) error {
	return b.runCommands(ctx, [][]string{
		{"primary", "ip", "rule", "del", "priority", table},
		{"primary", "ip", "route", "flush", "table", table},
	})
}
