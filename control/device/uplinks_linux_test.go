// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestWatchNetwork checks that changes of interfaces, addresses and routes are reported.
func TestWatchNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network of its own")
	}
	runtime.LockOSThread() // never unlocked: the thread is lost for other tests
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	changed, err := WatchNetwork(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 9, 0, 1), Mask: net.CIDRMask(24, 32)}}
	address6 := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("fd99::1"), Mask: net.CIDRMask(64, 128)}}
	_, dest, _ := net.ParseCIDR("10.8.0.0/16")
	for _, change := range []struct {
		what string
		make func() error
	}{
		{"a link alone", func() error { return netlink.LinkSetMTU(lo, 1400) }}, // first: nothing else has changed
		{"a link up", func() error { return netlink.LinkSetUp(lo) }},
		{"an address", func() error { return netlink.AddrAdd(lo, address) }},
		{"an IPv6 address", func() error { return netlink.AddrAdd(lo, address6) }},
		{"a route", func() error { return netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dest}) }},
		{"an address less", func() error { return netlink.AddrDel(lo, address) }},
	} {
		if err := change.make(); err != nil {
			t.Fatalf("%s: %v", change.what, err)
		}
		if _, ok := <-changed; !ok {
			t.Fatalf("%s: the watch has ended", change.what)
		}
	}
	cancel()
	for range changed { // until it is closed
	}
}
