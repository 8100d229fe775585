// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// A primary may have several links to the server. Routes use the first one (in order of name).
// Packets from the address of another link go by that link, as on a phone with WiFi and LTE.

// extraLinkTable is the first routing table of further direct links, and the priority of its rule.
const extraLinkTable = 200

// eachExtraLink calls f for each direct link but the first.
func (b *Bench) eachExtraLink(f func(link, table string) error) error {
	for i, link := range b.Lab.Topology.linksBetween("primary", "server") {
		if i == 0 {
			continue
		}
		if err := f(link, strconv.Itoa(extraLinkTable+i)); err != nil {
			return err
		}
	}
	return nil
}

// addExtraEndpoints makes MPTCP endpoints of all further direct links.
func (b *Bench) addExtraEndpoints(ctx context.Context) error {
	t := b.Lab.Topology
	if len(t.linksBetween("primary", "server")) < 2 {
		return fmt.Errorf("mptcp:own: the primary needs two links to the server")
	}
	return b.eachExtraLink(func(link, table string) error {
		mine, err1 := t.Addr("primary", link)
		via, err2 := t.Addr("server", link)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		return b.runCommands(ctx, [][]string{
			{"primary", "ip", "route", "replace", "default", "via", via.String(), "dev", link, "table", table},
			{"primary", "ip", "rule", "add", "from", mine.String(), "lookup", table, "priority", table},
			{"primary", "ip", "mptcp", "endpoint", "add", mine.String(), "dev", link, "subflow"},
		})
	})
}

// removeExtraRoutes removes the routes of addExtraEndpoints.
func (b *Bench) removeExtraRoutes(ctx context.Context) error {
	return b.eachExtraLink(func(_, table string) error {
		return b.runCommands(ctx, [][]string{
			{"primary", "ip", "rule", "del", "priority", table},
			{"primary", "ip", "route", "flush", "table", table},
		})
	})
}
