// SPDX-License-Identifier: Apache-2.0

// Package discovery finds devices on the local network and announces this one, by DNS-SD over
// multicast DNS (RFC 6763, 6762). It belongs to the control path: it gives packages pairing and
// helper addresses to try. The network proves nothing: a pinned key or a code proves later which
// device is there.
//
// Each interface is queried and answered separately, with its own addresses, so that a device with
// several interfaces is found on each of them.
//
//	discovery.go  services and local interfaces
//	announce.go   announcing this device
//	find.go       queries on all interfaces
//	query.go      one query on one interface, and its answers
package discovery

import (
	"io"
	"log"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Service is a service that a device offers.
type Service string

// Services.
const (
	// Pipes: a primary accepts connections of helpers.
	Pipes Service = "_mpbond._tcp"
	// Onload: a helper accepts connections of primaries that onload.
	Onload Service = "_mpbond-onload._tcp"
	// Codes: a device with a valid code accepts pairing calls.
	Codes Service = "_mpbond-pair._tcp"
)

// idKey is the TXT key of a device's ID.
const idKey = "id="

// discardLog drops the library's log: invalid packets are common on foreign networks.
var discardLog = log.New(io.Discard, "", 0)

// link is an interface with the addresses at which others can reach this device.
type link struct {
	iface net.Interface
	addrs []netip.Addr
}

// isLocalNetwork reports whether an interface with flags f can belong to a local network.
func isLocalNetwork(f net.Flags) bool {
	const needed, excluded = net.FlagUp | net.FlagMulticast, net.FlagLoopback | net.FlagPointToPoint
	return f&needed == needed && f&excluded == 0
}

// localLinks returns the interfaces of local networks. It skips interfaces with a public IPv4
// address: a responder there would answer the Internet (RFC 6762 section 11).
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
			// Link-local addresses need a zone, which trust files cannot store.
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

// findDeviceID returns the ID in TXT records, "" if there is no valid one.
func findDeviceID(txt []string) string {
	for _, t := range txt {
		if id, ok := strings.CutPrefix(t, idKey); ok && len(id) <= 32 {
			return id
		}
	}
	return ""
}
