// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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

// WatchNetwork returns a channel that gets a value when interfaces, addresses or routes of this
// device may have changed. Several changes may yield one value. The channel is closed when ctx ends
// or changes are no longer reported.
func WatchNetwork(ctx context.Context) (<-chan struct{}, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watch interfaces and routes: %w", err)
	}
	changed := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, s.Close)
	go func() {
		defer close(changed)
		defer stop()
		for {
			// Messages are lost when too many come at once: that is a change, too.
			if _, _, err := s.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
				s.Close()
				return
			}
			select {
			case changed <- struct{}{}:
			default: // a value is already waiting
			}
		}
	}()
	return changed, nil
}
