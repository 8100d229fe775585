package device

import (
	"crypto/sha256"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Place names where this device is, as far as its networks tell: by its default
// routes, with the hardware address of each gateway, or, where there is no
// gateway to ask, by the interface's subnets. It is a hash, which names nobody's
// network, and "" without a default route.
func Place() (string, error) {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return "", fmt.Errorf("routes: %w", err)
	}
	var marks []string
	for _, r := range routes {
		if r.Type != unix.RTN_UNICAST || r.Dst != nil && !isDefault(r.Dst) {
			continue
		}
		mark := ""
		if r.Gw != nil {
			list, err := netlink.NeighList(r.LinkIndex, netlink.FAMILY_V4)
			if err != nil {
				return "", fmt.Errorf("neighbours: %w", err)
			}
			for _, n := range list {
				if n.IP.Equal(r.Gw) && len(n.HardwareAddr) > 0 {
					mark = "gateway " + n.HardwareAddr.String()
				}
			}
		}
		if mark == "" {
			i, err := net.InterfaceByIndex(r.LinkIndex)
			if err != nil {
				continue // gone meanwhile
			}
			addrs, _ := i.Addrs()
			for _, a := range addrs {
				if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
					mark += " " + i.Name + " " + n.IP.Mask(n.Mask).String()
				}
			}
		}
		marks = append(marks, mark)
	}
	if len(marks) == 0 {
		return "", nil
	}
	slices.Sort(marks)
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Append([]byte("mpbond place"), slices.Compact(marks))))[:32], nil
}
