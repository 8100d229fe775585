// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mpbond/base/waittest"
)

// inNamespaces creates two network namespaces with two links between them. The returned functions
// run a function in one of them.
//
//	client  lte0 10.1.0.1 ─── 10.1.0.2  server
//	        lan0 10.2.0.1 ─── 10.2.0.2          packets of 1300 bytes at most
func inNamespaces(t *testing.T) (client, server func(f func())) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	run := func() func(func()) { // runs functions on a thread in a namespace of its own
		calls, over, made := make(chan func()), make(chan struct{}), make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends, and the namespace with its last socket
			err := unix.Unshare(unix.CLONE_NEWNET)
			made <- err
			for f := range calls {
				f()
				over <- struct{}{}
			}
		}()
		t.Cleanup(func() { close(calls) })
		if err := <-made; err != nil {
			t.Skip("no network namespaces: ", err)
		}
		return func(f func()) { calls <- f; <-over }
	}
	client, server = run(), run()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	up := func(name, addr string) {
		l, err := netlink.LinkByName(name)
		must(err)
		if err == nil {
			a, _ := netlink.ParseAddr(addr)
			must(netlink.AddrAdd(l, a))
			must(netlink.LinkSetUp(l))
		}
	}
	var there int
	server(func() { there = unix.Gettid() })
	client(func() {
		for name, mtu := range map[string]int{"lte0": 1500, "lan0": 1300} {
			must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}, PeerName: name,
				PeerMTU: uint32(mtu), PeerNamespace: netlink.NsPid(there)}))
		}
		up("lte0", "10.1.0.1/24")
		up("lan0", "10.2.0.1/24")
	})
	server(func() {
		up("lte0", "10.1.0.2/24")
		up("lan0", "10.2.0.2/24")
		lo, err := netlink.LinkByName("lo") // the server is one address, whichever way leads there
		must(err)
		must(netlink.LinkSetUp(lo))
		a, _ := netlink.ParseAddr("10.9.0.1/32")
		must(netlink.AddrAdd(lo, a))
	})
	if t.Failed() {
		t.FailNow()
	}
	return client, server
}

// TestNamespaces: over real links, the MTU search finds the length of packets on each. When one
// link fails, the connection migrates to the other.
func TestNamespaces(t *testing.T) {
	client, server := inNamespaces(t)
	to := netip.MustParseAddrPort("10.9.0.1:7443")
	route := func(via string) {
		client(func() {
			gw := net.ParseIP(via)
			if err := netlink.RouteReplace(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 9, 0, 1),
				Mask: net.CIDRMask(32, 32)}, Gw: gw}); err != nil {
				t.Error(err)
			}
		})
	}
	open := func(in func(func()), addr string) (ep *Endpoint) {
		in(func() {
			var err error
			if ep, err = Listen(addr, Options{}); err != nil {
				t.Error(err)
			}
		})
		if ep == nil {
			t.FailNow()
		}
		t.Cleanup(func() { ep.Close() })
		return ep
	}
	route("10.1.0.2")
	at, lte, lan := open(server, to.String()), open(client, "10.1.0.1:0"), open(client, "10.2.0.1:0")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c, err := lte.Dial(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	s, err := at.Accept()
	if err != nil {
		t.Fatal(err)
	}
	mtu := func() int { c.mu.Lock(); defer c.mu.Unlock(); return c.engine.mtu.size }
	waittest.Until(t, "packets are as long as the link's", func() bool {
		exchangeStreams(t, c, s,
			100_000)
		return mtu() == 1472 || t.Failed()
	})

	client(func() {
		l, err := netlink.LinkByName("lte0")
		if err == nil {
			err = netlink.LinkSetDown(l)
		}
		if err != nil {
			t.Error(err)
		}
	})
	written := make(chan error, 1)
	go func() { // into the broken link at first
		_, err := c.Write(make([]byte, 1000))
		written <- err
	}()
	route("10.2.0.2")
	if err := c.Migrate(lan); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1000)
	s.SetReadDeadline(time.Now().Add(testTimeout))
	for n := 0; n < len(buf); {
		k, err := s.Read(buf[n:])
		if err != nil {
			t.Fatal(n, err)
		}
		n += k
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	exchangeStreams(t, c, s, 1<<20)
	if got := addrOf(s.RemoteAddr()); got != addrOf(lan.Addr()) {
		t.Errorf("the server sends to %v, not %v", got, lan.Addr())
	}
	if got := mtu(); got != minPayload {
		t.Errorf("packets of %d bytes, where 1300 with headers go through", got)
	}
	lte.Close() // nothing needs the old socket any more
	exchangeStreams(t, c, s, 100_000)
	c.Abort()
	<-c.finished
}
