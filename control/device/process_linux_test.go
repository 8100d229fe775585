// SPDX-License-Identifier: Apache-2.0

package device

import (
	"net"
	"net/netip"
	"os"
	"testing"
)

// TestProcessFinder: the ends of connections on loopback belong to this program, TCP and UDP, IPv4
// and IPv6. An unowned one is an error.
func TestProcessFinder(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var o ProcessFinder
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", at)
		if err != nil {
			t.Logf("not tested at %s: %v", at, err)
			continue
		}
		defer ln.Close()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		u, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		v, err := net.Dial("udp", u.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		for _, conn := range []net.Conn{c, v} {
			network := conn.LocalAddr().Network()
			local, remote := netip.MustParseAddrPort(conn.LocalAddr().String()),
				netip.MustParseAddrPort(conn.RemoteAddr().String())
			got, err := o.FindBySocket(network, local, remote)
			if err != nil {
				t.Errorf("%s %v: %v", network, local, err)
				continue
			}
			if got.PID != os.Getpid() || got.Exe != exe || got.UID != uint32(os.Geteuid()) ||
				got.Cgroup != readCgroup("/proc/self/cgroup") {
				t.Errorf("%s %v: %+v, want process %d, %s", network, local, got, os.Getpid(), exe)
			}
			if s, err := querySocket(network, local, remote); err != nil {
				t.Error(err)
			} else if root := cgroupRoot(); root != "" && s.cgroup != 0 && o.cgroupPath(s.cgroup) != got.Cgroup {
				t.Errorf("control group %d is %q, and that of the process is %q", s.cgroup, o.cgroupPath(s.cgroup), got.Cgroup)
			}
		}
		if got, err := o.FindBySocket("tcp", netip.MustParseAddrPort("127.0.0.1:1"),
			netip.MustParseAddrPort("127.0.0.1:2")); err == nil {
			t.Errorf("a connection that does not exist belongs to %+v", got)
		}
	}
}

func BenchmarkOwners(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	local, remote := netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(c.RemoteAddr().String())
	var o ProcessFinder
	for b.Loop() {
		if _, err := o.FindBySocket("tcp", local, remote); err != nil {
			b.Fatal(err)
		}
	}
}
