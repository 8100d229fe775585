// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	// maxPacket is the longest mDNS packet (RFC 6762 section 17).
	maxPacket = 9000
	// topBit in a query's class asks for a unicast answer (RFC 6762 section 5.4). In an answer it
	// marks other records as outdated.
	topBit = 1 << 15
)

// multicastGroups are the multicast DNS groups.
var multicastGroups = map[string]*net.UDPAddr{"udp4": {IP: net.IPv4(224, 0, 0, 251), Port: 5353},
	"udp6": {IP: net.ParseIP("ff02::fb"), Port: 5353}}

// queryInterface sends one query on an interface, over IPv4 and IPv6 if it has them, and collects
// answers for d. It needs only the interface's own route, so networks without Internet work too. It
// returns an error only if no address family could be queried.
func queryInterface(ctx context.Context, iface net.Interface, s Service, d time.Duration) (list []Found, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var asking sync.WaitGroup
	var found [2][]Found
	var errs [2]error
	networks := addressFamilies(iface)
	for i, network := range networks {
		asking.Go(func() { found[i], errs[i] = queryOverFamily(ctx, network, iface, s) })
	}
	asking.Wait()
	if !slices.Contains(errs[:len(networks)], nil) {
		err = errors.Join(errs[:]...)
	}
	return slices.Concat(found[:]...), err
}

// addressFamilies returns which of "udp4" and "udp6" an interface has an address for, link-local
// ones included.
func addressFamilies(iface net.Interface) (list []string) {
	addrs, err := iface.Addrs()
	for _, network := range []string{"udp4", "udp6"} {
		if err != nil || slices.ContainsFunc(addrs, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && (n.IP.To4() != nil) == (network == "udp4")
		}) {
			list = append(list, network)
		}
	}
	return list
}

// queryOverFamily sends a query over one address family and collects answers until ctx ends.
func queryOverFamily(ctx context.Context, network string, iface net.Interface, s Service) (list []Found, err error) {
	conn, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	to := *multicastGroups[network]
	if network == "udp4" {
		err = ipv4.NewPacketConn(conn).SetMulticastInterface(&iface)
	} else {
		to.Zone, err = iface.Name, ipv6.NewPacketConn(conn).SetMulticastInterface(&iface)
	}
	if err != nil {
		return nil, err
	}
	id := uint16(rand.Uint32())
	if _, err := conn.WriteToUDP(buildQuery(s, id), &to); err != nil {
		return nil, err
	}
	buf := make([]byte, maxPacket)
	for len(list) < maxFound {
		n, _, err := conn.ReadFromUDPAddrPort(buf)
		if ctx.Err() != nil {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, parseMDNSAnswer(buf[:n], s, id)...)
	}
	return list, nil
}

// buildQuery returns a query for the instances of a service.
func buildQuery(s Service, id uint16) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id})
	_ = b.StartQuestions()
	_ = b.Question(dnsmessage.Question{Name: dnsmessage.MustNewName(serviceName(s)), Type: dnsmessage.TypePTR,
		Class: dnsmessage.ClassINET | topBit})
	packet, err := b.Finish()
	if err != nil {
		panic(err) // the query is constant
	}
	return packet
}

// serviceName returns the service's DNS name.
func serviceName(s Service) string { return string(s) + ".local." }

// parseMDNSAnswer returns the devices in an answer to the query id. A complete answer has the port,
// address and text of each instance; anything else yields no device.
func parseMDNSAnswer(packet []byte, s Service, id uint16) (list []Found) {
	var p dnsmessage.Parser
	h, err := p.Start(packet)
	if err != nil || h.ID != id || !h.Response || p.SkipAllQuestions() != nil {
		return nil
	}
	var instances []string
	hosts, texts, addrs := map[string]dnsmessage.SRVResource{}, map[string][]string{}, map[string][]netip.Addr{}
	records, _ := p.AllAnswers() // without the records after an error; such a packet is invalid anyway
	for _, r := range records {
		if r.Header.Class&^topBit != dnsmessage.ClassINET {
			continue
		}
		name := lowerDNSName(r.Header.Name)
		switch body := r.Body.(type) {
		case *dnsmessage.PTRResource:
			if name == serviceName(s) {
				instances = append(instances, lowerDNSName(body.PTR))
			}
		case *dnsmessage.SRVResource:
			hosts[name] = *body
		case *dnsmessage.TXTResource:
			texts[name] = body.TXT
		case *dnsmessage.AResource:
			addrs[name] = append(addrs[name], netip.AddrFrom4(body.A))
		case *dnsmessage.AAAAResource:
			addrs[name] = append(addrs[name], netip.AddrFrom16(body.AAAA).Unmap())
		}
	}
	for _, i := range instances {
		host := hosts[i]
		hostAddrs := addrs[lowerDNSName(host.Target)]
		slices.SortStableFunc(hostAddrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
		for _, a := range hostAddrs { // one address of each interface and family is enough
			if at := netip.AddrPortFrom(a, host.Port); isCallable(at) {
				list = append(list, Found{findDeviceID(texts[i]), at})
				break
			}
		}
	}
	return list
}

func lowerDNSName(n dnsmessage.Name) string { return strings.ToLower(n.String()) }

// isCallable reports whether an address can be called.
func isCallable(a netip.AddrPort) bool { return a.Addr().IsGlobalUnicast() && a.Port() != 0 }
