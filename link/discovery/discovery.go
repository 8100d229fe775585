// Package discovery finds devices of the local network and makes this one be
// found, by DNS-SD over multicast DNS (RFC 6763, 6762). It stands on the
// control path, before packages pairing and helper, to which it gives addresses
// to try: what the network says is nobody's word, and who is there is proved
// later, by a pinned key or by a code.
//
// Each interface is asked and answered by itself, with its own addresses, so
// that a device with several is found at each of them.
//
//	discovery.go  what is told: services and instances
//	announce.go   being found
//	find.go       finding, on all interfaces
//	ask.go        one question on one interface, and its answers
package discovery

import (
	"io"
	"log"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Service is what a device offers.
type Service string

// Services.
const (
	// Pipes: a primary takes the calls of helpers there.
	Pipes Service = "_mpbond._tcp"
	// Onload: a helper takes connections of primaries that onload there.
	Onload Service = "_mpbond-onload._tcp"
	// Codes: a device that shows a code is called there while it holds.
	Codes Service = "_mpbond-pair._tcp"
)

// idKey is the key of the TXT record that has a device's ID.
const idKey = "id="

// discardLog takes the library's log: on a network of others garbage is usual.
var discardLog = log.New(io.Discard, "", 0)

// link is an interface with the addresses that others reach this device by.
type link struct {
	iface net.Interface
	addrs []netip.Addr
}

// isLocalNetwork tells of an interface whether it may be of a local network.
func isLocalNetwork(f net.Flags) bool {
	const needed, excluded = net.FlagUp | net.FlagMulticast, net.FlagLoopback | net.FlagPointToPoint
	return f&needed == needed && f&excluded == 0
}

// localLinks lists the interfaces that can be asked on: those of local networks. One
// with a public IPv4 address is left out: a responder there would answer the
// Internet (RFC 6762 section 11).
func localLinks() (list []link) {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range all {
		if !isLocalNetwork(i.Flags) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		l := link{iface: i}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			// Link-local addresses need a zone, which trust files cannot keep.
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap().IsGlobalUnicast() {
				l.addrs = append(l.addrs, ip.Unmap())
			}
		}
		if len(l.addrs) > 0 && !slices.ContainsFunc(l.addrs, isPublicIPv4) {
			slices.SortFunc(l.addrs, netip.Addr.Compare)
			list = append(list, l)
		}
	}
	return list
}

func isPublicIPv4(a netip.Addr) bool { return a.Is4() && !a.IsPrivate() }

// findDeviceID finds the ID in TXT records, "" if there is none that can be one.
func findDeviceID(txt []string) string {
	for _, t := range txt {
		if id, ok := strings.CutPrefix(t, idKey); ok && len(id) <= 32 {
			return id
		}
	}
	return ""
}
