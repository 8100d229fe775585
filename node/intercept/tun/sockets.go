// SPDX-License-Identifier: Apache-2.0

//go:build linux && !router

package tun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// abortConnections aborts the apps' TCP connections over the device of a killed process, and
// returns their number. The state of these connections is lost. An app that only waits for data
// would wait for ever, and sends nothing that the next process could answer with a reset.
func abortConnections() (n int, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		list, err := netlink.SocketDiagTCP(family)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
			return n, nil // the kernel lacks CONFIG_INET_DIAG
		}
		if err != nil {
			return n, fmt.Errorf("listing TCP connections: %w", err)
		}
		for _, s := range list {
			local, _ := netip.AddrFromSlice(s.ID.Source)
			if local = local.Unmap(); local != address4.Addr() && local != address6.Addr() {
				continue
			}
			switch err := destroySocket(s); {
			case err == nil:
				n++
			case errors.Is(err, unix.ENOENT): // ended meanwhile
			case errors.Is(err, unix.EOPNOTSUPP):
				return n, nil // the kernel lacks CONFIG_INET_DIAG_DESTROY
			default:
				return n, fmt.Errorf("aborting a connection of %v: %w", local, err)
			}
		}
	}
	return n, nil
}

// destroySocket aborts one connection with struct inet_diag_req_v2 (linux/inet_diag.h), which
// package netlink supports for IPv4 only:
//
//	family (1) | protocol (1) | ext (1) | pad (1) | states (4) |
//	source port (2) | destination port (2) | source (16) | destination (16) | interface (4) | cookie (8)
func destroySocket(s *netlink.Socket) error {
	b := []byte{s.Family, unix.IPPROTO_TCP, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, 1<<s.State)
	b = binary.BigEndian.AppendUint16(b, s.ID.SourcePort)
	b = binary.BigEndian.AppendUint16(b, s.ID.DestinationPort)
	for _, ip := range [][]byte{s.ID.Source, s.ID.Destination} {
		if v4 := s.ID.Source.To4(); s.Family == unix.AF_INET && v4 != nil {
			ip = append(ip[len(ip)-4:len(ip):len(ip)], make([]byte, 12)...)
		}
		b = append(b, ip...)
	}
	b = binary.NativeEndian.AppendUint32(b, s.ID.Interface)
	b = binary.NativeEndian.AppendUint32(b, s.ID.Cookie[0])
	b = binary.NativeEndian.AppendUint32(b, s.ID.Cookie[1])
	req := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
	req.AddRawData(b)
	_, err := req.Execute(unix.NETLINK_INET_DIAG, 0)
	return err
}
