// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// txQueueLen bounds what the kernel holds before the emulator reads it. The emulator's own queue
// decides, so this one must not drop even a burst of a full window.
const txQueueLen = 10000

// defaultSysctls are set in every node, so that nothing depends on the host's settings. Those of
// interfaces must be set before the links are made.
var defaultSysctls = [][2]string{
	{"net.ipv4.tcp_no_metrics_save", "1"},       // otherwise a run inherits ssthresh from the one before
	{"net.ipv4.tcp_slow_start_after_idle", "1"}, // the kernel's default
	{"net.ipv4.tcp_rmem", "4096 131072 16777216"},
	{"net.ipv4.tcp_wmem", "4096 65536 16777216"},
	{"net.mptcp.enabled", "1"},
	{"net.mptcp.blackhole_timeout", "0"}, // otherwise one lost SYN turns MPTCP off for an hour (since Linux 6.12)
	{"net.ipv4.conf.all.rp_filter", "0"}, // several paths to one destination are wanted
	{"net.ipv4.conf.default.rp_filter", "0"},
	{"net.ipv6.conf.all.disable_ipv6", "0"},
	{"net.ipv6.conf.default.disable_ipv6", "0"},
	{"net.ipv6.conf.default.accept_dad", "0"}, // addresses are usable at once
	{"net.ipv6.conf.default.accept_ra", "0"},
	{"net.ipv6.conf.default.router_solicitations", "0"},
}

// defaultCongestion is every node's default congestion control. The topology may override it.
const defaultCongestion = "cubic"

const (
	congestionKey = "net.ipv4.tcp_congestion_control"
	allowedKey    = "net.ipv4.tcp_allowed_congestion_control"
)

// allowCongestion lets namespaces choose a congestion control while f runs. The kernel allows only
// controls on the host's list of allowed ones in other namespaces. It checks the list only when the
// default is set, so the list is restored afterwards. Labs that start at the same time wait for
// each other: otherwise one would restore the list while another one needs it.
func allowCongestion(name string, f func() error) error {
	if lock, err := os.Open(sysctlFile(allowedKey)); err == nil {
		defer lock.Close()
		_ = unix.Flock(int(lock.Fd()), unix.LOCK_EX) // without locks it is as likely to work as before
	}
	b, err := os.ReadFile(sysctlFile(allowedKey))
	list := strings.TrimSpace(string(b))
	if err == nil && !slices.Contains(strings.Fields(list), name) {
		if setNamespaceSysctl(allowedKey, list+" "+name) == nil {
			defer func() { _ = setNamespaceSysctl(allowedKey, list) }()
		}
	}
	return f()
}

// setDefaultCongestion sets the default of the calling thread's namespace. If this user may not, it
// returns a warning that names the control in use.
func setDefaultCongestion() (warning string) {
	err := setNamespaceSysctl(congestionKey, defaultCongestion)
	if err == nil {
		return ""
	}
	have, _ := os.ReadFile(sysctlFile(congestionKey))
	return fmt.Sprintf("congestion control is %s, not %s, because this user may not choose it (as root: sysctl "+
		"%s=\"reno %s\")",
		strings.TrimSpace(string(have)), defaultCongestion, allowedKey, defaultCongestion)
}

// sysctlFile returns the file of a sysctl.
func sysctlFile(key string) string { return "/proc/sys/" + strings.ReplaceAll(key, ".", "/") }

// namespace is one node's network namespace, held by an open file.
type namespace struct {
	name string
	file *os.File
}

// newNamespace makes an empty network namespace. It lives while the file is open or a process is
// inside.
func newNamespace(name string) (*namespace, error) {
	var ns *namespace
	err := runOnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("node %s: new network namespace: %w", name, err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		ns = &namespace{name, f}
		return err
	})
	return ns, err
}

// runInNamespace runs f on a thread inside the namespace.
func (ns *namespace) runInNamespace(f func() error) error {
	return runOnThread(func() error {
		if err := unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("node %s: enter its namespace: %w", ns.name, err)
		}
		if err := f(); err != nil {
			return fmt.Errorf("node %s: %w", ns.name, err)
		}
		return nil
	})
}

// runOnThread runs f on a new thread that ends afterwards, whatever f did to it. That is never the
// main thread, which would not end and which /proc shows for the whole process.
func runOnThread(f func() error) error {
	err := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			err <- runOnThread(f) // on another thread: this one is the main thread
			runtime.UnlockOSThread()
			return
		}
		err <- f() // no unlock: the runtime ends the thread
	}()
	return <-err
}

// setNamespaceSysctl sets a sysctl of the calling thread's namespace.
func setNamespaceSysctl(key, value string) error {
	if err := os.WriteFile(sysctlFile(key), []byte(value), 0); err != nil {
		return fmt.Errorf("sysctl %s=%s: %w", key, value, err)
	}
	return nil
}

// applySysctls sets the sysctls of a node and brings its loopback up. It skips defaults that this
// kernel does not have. A missing sysctl of the topology is an error.
func (ns *namespace) applySysctls(t *Topology) (warning string, err error) {
	err = ns.runInNamespace(func() error {
		warning = setDefaultCongestion()
		for _, kv := range defaultSysctls {
			if err := setNamespaceSysctl(kv[0], kv[1]); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		forward := "0"
		if n := t.Node[ns.name]; n.Forward || len(n.NAT) > 0 {
			forward = "1"
		}
		for _, key := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
			if err := setNamespaceSysctl(key, forward); err != nil {
				return err
			}
		}
		for _, m := range []map[string]string{t.Sysctl, t.Node[ns.name].Sysctl} {
			for k, v := range m {
				if err := setNamespaceSysctl(k, v); err != nil {
					return err
				}
			}
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return warning, err
}

// openTUNDevice makes the TUN device of one end of a link. The device lives as long as the
// descriptor.
func (ns *namespace) openTUNDevice(link string) (fd int, err error) {
	err = ns.runInNamespace(func() error {
		fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("open /dev/net/tun: %w (the lab needs it; run as root, or let your user read and "+
				"write it)", err)
		}
		req, err := unix.NewIfreq(link)
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			unix.Close(fd)
			return fmt.Errorf("make TUN device %s: %w", link, err)
		}
		return nil
	})
	return fd, err
}

// createVethPair joins two namespaces by a veth pair, with both ends named link.
func createVethPair(link string, a, b *namespace) error {
	return a.runInNamespace(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: link, MTU: 1500}, PeerName: link,
			PeerNamespace: netlink.NsFd(int(b.file.Fd()))}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("make veth pair %s: %w", link, err)
		}
		return nil
	})
}

// addAddresses brings one end of a link up with its addresses.
func (ns *namespace) addAddresses(link string, addrs []netip.Prefix) error {
	return ns.runInNamespace(func() error {
		dev, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("%s: %w", link, err)
		}
		if dev.Type() == "tuntap" {
			if err := netlink.LinkSetTxQLen(dev, txQueueLen); err != nil {
				return fmt.Errorf("%s: queue length: %w", link, err)
			}
		}
		for _, a := range addrs {
			na := &netlink.Addr{IPNet: ipNetFromPrefix(a)}
			if a.Addr().Is6() {
				na.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(dev, na); err != nil {
				return fmt.Errorf("%s: address %s: %w", link, a, err)
			}
		}
		if err := netlink.LinkSetUp(dev); err != nil {
			return fmt.Errorf("%s: up: %w", link, err)
		}
		return nil
	})
}

// addKernelRoutes adds routes.
func (ns *namespace) addKernelRoutes(routes []route) error {
	return ns.runInNamespace(func() error {
		for _, r := range routes {
			dev, err := netlink.LinkByName(r.link)
			if err != nil {
				return fmt.Errorf("%s: %w", r.link, err)
			}
			nr := &netlink.Route{LinkIndex: dev.Attrs().Index, Dst: ipNetFromPrefix(r.dst), Gw: r.via.AsSlice()}
			if err := netlink.RouteReplace(nr); err != nil {
				return fmt.Errorf("route %s via %s: %w", r.dst, r.link, err)
			}
		}
		return nil
	})
}

// ipNetFromPrefix converts a prefix.
func ipNetFromPrefix(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// killInside kills every process in the given network namespaces except this one. It returns how
// many it found.
func killInside(inodes map[uint64]bool) (n int) {
	procs, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, file := range procs {
		var st unix.Stat_t
		var pid int
		if unix.Stat(file, &st) != nil || !inodes[st.Ino] {
			continue
		}
		if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		if unix.Kill(pid, unix.SIGKILL) == nil {
			n++
		}
	}
	return n
}
