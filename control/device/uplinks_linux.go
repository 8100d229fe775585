// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Uplinks returns the interfaces that reach the Internet: those that are up and have a default
// route, IPv4 or IPv6, in the main table. They are sorted by the system's preference (route
// metric).
func Uplinks() ([]string, error) {
	routes, err := mainRoutes()
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
	var names []string
	for _, r := range routes {
		if r.Type != unix.RTN_UNICAST || r.Dst != nil && !isDefaultRoute(r.Dst) {
			continue
		}
		hops := []int{r.LinkIndex}
		for _, h := range r.MultiPath {
			hops = append(hops, h.LinkIndex)
		}
		for _, i := range hops {
			l, err := net.InterfaceByIndex(i)
			if err == nil && l.Flags&(net.FlagUp|net.FlagRunning) == net.FlagUp|net.FlagRunning &&
				!slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	return names, nil
}

// mainRoutes returns the IPv4 and IPv6 routes of the main table.
func mainRoutes() (routes []netlink.Route, err error) {
	err = netlink.ErrDumpInterrupted
	for i := 0; i < 5 && errors.Is(err, netlink.ErrDumpInterrupted); i++ { // routes changed while they were read
		routes, err = netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_TABLE)
	}
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return routes, nil
}

// isDefaultRoute reports whether a destination is that of a default route.
func isDefaultRoute(n *net.IPNet) bool {
	ones, _ := n.Mask.Size()
	return ones == 0 && n.IP.IsUnspecified()
}

// WatchUplinks returns a channel that gets a value when the result of Uplinks may have changed,
// until ctx ends. Several changes may yield one value.
func WatchUplinks(ctx context.Context) (<-chan struct{}, error) {
	done := make(chan struct{})
	routes, links := make(chan netlink.RouteUpdate, 64), make(chan netlink.LinkUpdate, 64)
	if err := netlink.RouteSubscribe(routes, done); err != nil {
		return nil, fmt.Errorf("watch routes: %w", err)
	}
	if err := netlink.LinkSubscribe(links, done); err != nil {
		close(done)
		return nil, fmt.Errorf("watch interfaces: %w", err)
	}
	changed := make(chan struct{}, 1)
	go func() {
		<-ctx.Done()
		close(done)
	}()
	go func() { // closed channels end the subscriptions
		for routes != nil || links != nil {
			select {
			case _, ok := <-routes:
				if !ok {
					routes = nil
				}
			case _, ok := <-links:
				if !ok {
					links = nil
				}
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	return changed, nil
}
