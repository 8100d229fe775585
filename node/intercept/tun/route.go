// SPDX-License-Identifier: Apache-2.0

//go:build linux && !router

package tun

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mpbond/base/fault"
)

// These values distinguish our settings from those of others: a device by its name, routes by their
// table, rules by their table or priority and by the protocol number, which names their creator
// (rtnetlink(7)).
const (
	deviceName = "mpbond0"
	deviceMTU  = 1500
	routeTable = 7600
	// routeProtocol is unused by others (iproute2's rt_protos).
	routeProtocol = 76
	// Before the rules of the main table (32766), and of other tunnels, which usually come right
	// before it.
	priorityLocal, priorityAll = 7600, 7601
)

// Addresses of the device, from which apps' packets come. No other host sees them. The IPv4 address
// is from the block for benchmarks (RFC 2544), because a private one may be in use nearby. The IPv6
// address is a unique local one (RFC 4193). With these, by RFC 6724, apps prefer IPv4 for names
// that have both.
var (
	address4 = netip.MustParsePrefix("198.18.76.1/32")
	address6 = netip.MustParsePrefix("fd6d:7062:6f6e:64::1/128")
)

// bypassPrefixes are destinations that keep their routes: no other machine would receive multicast
// and broadcast through the bond.
var bypassPrefixes = []netip.Prefix{
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("169.254.0.0/16"),
}

// openDevice makes a TUN device, which exists as long as the file is open.
func openDevice(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return nil, fault.New(fault.Unsupported, fmt.Errorf("opening /dev/net/tun: %w", err),
			"load the kernel module with `modprobe tun`; in a container, pass the device to it")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return nil, fault.New(fault.Permission, fmt.Errorf("opening /dev/net/tun: %w", err), permissionHint)
	case err != nil:
		return nil, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	fail := func(err error) (*os.File, error) {
		unix.Close(fd)
		err = fmt.Errorf("making TUN device %s: %w", name, err)
		switch {
		case errors.Is(err, unix.EPERM):
			return nil, fault.New(fault.Permission, err, permissionHint)
		case errors.Is(err, unix.EBUSY):
			return nil, fault.New(fault.AlreadyRunning, err,
				"another mpbond takes this machine's traffic: stop it first")
		}
		return nil, fault.New(fault.Unsupported, err, "")
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return fail(err)
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return fail(err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6); err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

const permissionHint = "run it as root; without root use `mpbond primary` without --tun, and the proxy"

// routes sends traffic to the device:
//
//	table 7600                    default dev mpbond0
//	                              throw 224.0.0.0/4 and others: next rule
//	rule 7600                     from all lookup main suppress_prefixlength 0
//	rule 7601                     not from all fwmark MARK lookup 7600
//
// for IPv4 and IPv6. So destinations with their own route, above all those on local networks, keep
// it. mpbond's own packets use the default route. All other traffic goes to the device, whatever
// happens to default routes. If the device disappears, its route does too, and remaining rules have
// no effect.
type routes struct {
	rules  []*netlink.Rule
	throws []*netlink.Route
}

// installTUNRoutes installs the rules and routes of a TUN device. It removes those of killed
// processes first. Packets with mark bypass the device.
func installTUNRoutes(device string, mark uint32, log *slog.Logger) (_ *routes, err error) {
	defer func() {
		if errors.Is(err, unix.EPERM) {
			err = fault.New(fault.Permission, err, permissionHint)
		}
	}()
	removed, err := removeStale(func() bool { return false }) // this process has the device
	if err != nil {
		return nil, err
	}
	if len(removed) > 0 {
		log.Info("removed what a killed mpbond has left", "what", strings.Join(removed, "; "))
	}
	l, err := netlink.LinkByName(device)
	if err != nil {
		return nil, err
	}
	families := []int{unix.AF_INET}
	on, err := enableIPv6(device)
	switch {
	case err != nil:
		return nil, err
	case on:
		families = append(families, unix.AF_INET6)
	default:
		log.Info("this machine has no IPv6, so only IPv4 is carried")
	}
	if err := netlink.LinkSetMTU(l, deviceMTU); err != nil {
		return nil, fmt.Errorf("setting the MTU of %s: %w", device, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return nil, fmt.Errorf("setting %s up: %w", device, err)
	}
	r := &routes{}
	defer func() {
		if err != nil {
			r.removeAllRoutes()
		}
	}()
	for _, f := range families {
		if err := r.addFamilyRoutes(l, f, mark); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// addFamilyRoutes adds the rules and routes of one address family.
func (r *routes) addFamilyRoutes(l netlink.Link, family int, mark uint32) error {
	address, all := address4, netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if family == unix.AF_INET6 {
		address, all = address6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	a := &netlink.Addr{IPNet: prefixToIPNet(address)}
	if family == unix.AF_INET6 {
		a.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrReplace(l, a); err != nil {
		return fmt.Errorf("giving %s the address %v: %w", l.Attrs().Name, address, err)
	}
	if family == unix.AF_INET {
		for _, w := range bypassPrefixes {
			throw := &netlink.Route{Dst: prefixToIPNet(w), Table: routeTable, Type: unix.RTN_THROW,
				Protocol: routeProtocol, Family: family}
			if err := netlink.RouteReplace(throw); err != nil {
				return fmt.Errorf("route to %v: %w", w, err)
			}
			r.throws = append(r.throws, throw)
		}
	}
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: prefixToIPNet(all),
		Table: routeTable, Protocol: routeProtocol, Family: family}); err != nil {
		return fmt.Errorf("default route by %s: %w", l.Attrs().Name, err)
	}
	local := netlink.NewRule()
	local.Family, local.Priority, local.Table, local.SuppressPrefixlen, local.Protocol = family, priorityLocal,
		unix.RT_TABLE_MAIN, 0, routeProtocol
	others := netlink.NewRule()
	others.Family, others.Priority, others.Table, others.Mark, others.Invert, others.Protocol = family, priorityAll,
		routeTable, mark, true, routeProtocol
	for _, rule := range []*netlink.Rule{local, others} {
		if err := netlink.RuleAdd(rule); err != nil {
			return fault.New(fault.Unsupported, fmt.Errorf("rule %d: %w", rule.Priority, err),
				"this takes Linux 4.17 with policy routing")
		}
		r.rules = append(r.rules, rule)
	}
	return nil
}

// removeAllRoutes removes rules and routes, except those that disappear with the device.
func (r *routes) removeAllRoutes() error {
	var errs []error
	for _, rule := range r.rules {
		if err := netlink.RuleDel(rule); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("removing rule %d: %w", rule.Priority, err))
		}
	}
	for _, t := range r.throws {
		if err := netlink.RouteDel(t); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("removing the route to %v: %w", t.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// RemoveLeftovers removes what a killed process has left, unless another process has the device. It
// returns descriptions of what it removed.
func RemoveLeftovers() ([]string, error) {
	return removeStale(Present)
}

// removeStale removes rules and routes that a killed process has left, and aborts the apps'
// connections that it carried. It does nothing if another process has the device after the rules
// were listed: they may belong to that process.
func removeStale(inUse func() bool) (removed []string, err error) {
	left := &routes{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := netlink.RuleList(family)
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing rules: %w", err)
		}
		for _, rule := range rules {
			if rule.Protocol == routeProtocol && (rule.Priority == priorityLocal || rule.Priority == priorityAll) {
				rule.Family = family
				left.rules = append(left.rules, &rule)
			}
		}
		list, err := netlink.RouteListFiltered(family, &netlink.Route{Table: routeTable,
			Protocol: routeProtocol}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			return nil, fmt.Errorf("listing routes: %w", err)
		}
		for _, route := range list {
			route.Family = family
			left.throws = append(left.throws, &route)
		}
	}
	if inUse() {
		return nil, nil
	}
	if n := len(left.rules); n > 0 {
		removed = append(removed, fmt.Sprintf("%d ip rules of a TUN device, and its routes", n))
	}
	if err := left.removeAllRoutes(); err != nil {
		return removed, err
	}
	n, err := abortConnections()
	if n > 0 {
		removed = append(removed, fmt.Sprintf("%d connections of apps over a TUN device", n))
	}
	if err != nil { // they end later by themselves
		slog.Debug("connections of apps over a TUN device were not aborted", "err", err)
	}
	return removed, nil
}

// enableIPv6 reports whether this machine uses IPv6. If so, it enables IPv6 on the device, which
// IPv6 would otherwise bypass.
func enableIPv6(device string) (bool, error) {
	const conf = "/proc/sys/net/ipv6/conf/"
	all, err := os.ReadFile(conf + "all/disable_ipv6")
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if strings.TrimSpace(string(all)) != "0" {
		return false, nil
	}
	own := conf + device + "/disable_ipv6"
	if now, err := os.ReadFile(own); err == nil && strings.TrimSpace(string(now)) == "0" {
		return true, nil
	}
	if err := os.WriteFile(own, []byte("0"), 0); err != nil {
		return false, fault.New(fault.Unsupported, fmt.Errorf("switching IPv6 on for %s: %w", device, err),
			"without it IPv6 would go around the bond: make /proc/sys writable, or switch IPv6 off for all interfaces")
	}
	return true, nil
}

func prefixToIPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
