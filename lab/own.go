package lab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// The primary's links to the server besides its first one (in order of names) are
// own links too. Routes lead by the first one; what is sent from the address of
// another one goes by that, as on a phone that has WiFi and LTE.

// extraLinkTable is the first routing table of other own links, and the priority of its
// rule.
const extraLinkTable = 200

// eachExtraLink calls f for each other own link.
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

// addExtraEndpoints makes MPTCP endpoints of all other own links.
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

// removeExtraRoutes takes back the routes of addExtraEndpoints.
func (b *Bench) removeExtraRoutes(ctx context.Context) error {
	return b.eachExtraLink(func(_, table string) error {
		return b.runCommands(ctx, [][]string{
			{"primary", "ip", "rule", "del", "priority", table},
			{"primary", "ip", "route", "flush", "table", table},
		})
	})
}
