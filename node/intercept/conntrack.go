// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// conntrack asks the kernel's connection tracking for the original destination of a redirected UDP
// datagram. TCP has a socket option for this, UDP has none. Safe for concurrent use.
type conntrack struct{ conn *netlink.Conn }

// conntrackTimeout bounds a query. The kernel answers at once, but this process may not run for
// some time.
const conntrackTimeout = 10 * time.Second

// From linux/netfilter/nfnetlink.h and nfnetlink_conntrack.h.
const (
	ctnlSubsystem = 1 // NFNL_SUBSYS_CTNETLINK
	ctnlGet       = 1 // IPCTNL_MSG_CT_GET

	ctaTupleOrig  = 1
	ctaTupleReply = 2

	ctaTupleIP    = 1
	ctaTupleProto = 2

	ctaIPv4Src = 1
	ctaIPv4Dst = 2
	ctaIPv6Src = 3
	ctaIPv6Dst = 4

	ctaProtoNum     = 1
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3
)

// newConntrack opens a socket to the kernel's connection tracking and checks that queries work.
func newConntrack() (*conntrack, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("asking connection tracking: %w", err)
	}
	t := &conntrack{c}
	// No such flow can exist: ENOENT proves that queries work.
	nowhere := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if _, err := t.originalUDPDest(nowhere, nowhere); !isNotFound(err) {
		c.Close()
		return nil, fmt.Errorf("asking connection tracking (needs CAP_NET_ADMIN and the kernel module "+
			"nf_conntrack_netlink): %w", err)
	}
	return t, nil
}

// Close closes the netlink socket.
func (t *conntrack) Close() error { return t.conn.Close() }

// originalUDPDest returns the original destination of the flow that came from app and was
// redirected to local.
func (t *conntrack) originalUDPDest(app, local netip.AddrPort) (netip.AddrPort, error) {
	ae := netlink.NewAttributeEncoder()
	// This is the flow of the answers, before the kernel translates them.
	ae.Nested(ctaTupleReply, func(ae *netlink.AttributeEncoder) error {
		src, dst := uint16(ctaIPv4Src), uint16(ctaIPv4Dst)
		if local.Addr().Is6() {
			src, dst = ctaIPv6Src, ctaIPv6Dst
		}
		ae.Nested(ctaTupleIP, func(ae *netlink.AttributeEncoder) error {
			ae.Bytes(src, local.Addr().AsSlice())
			ae.Bytes(dst, app.Addr().AsSlice())
			return nil
		})
		ae.Nested(ctaTupleProto, func(ae *netlink.AttributeEncoder) error {
			ae.Uint8(ctaProtoNum, unix.IPPROTO_UDP)
			ae.Bytes(ctaProtoSrcPort, []byte{byte(local.Port() >> 8), byte(local.Port())})
			ae.Bytes(ctaProtoDstPort, []byte{byte(app.Port() >> 8), byte(app.Port())})
			return nil
		})
		return nil
	})
	attrs, err := ae.Encode()
	if err != nil {
		return netip.AddrPort{}, err
	}
	family := byte(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	// The kernel marks its only message as the first of many (NLM_F_MULTI) and sends no last one.
	// The acknowledgement ends it.
	t.conn.SetDeadline(time.Now().Add(conntrackTimeout)) //nolint:errcheck // Execute reports it
	// nfgenmsg: family, version 0, resource 0.
	msgs, err := t.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: ctnlSubsystem<<8 | ctnlGet, Flags: netlink.Request | netlink.Acknowledge},
		Data:   append([]byte{family, 0, 0, 0}, attrs...),
	})
	if err != nil {
		return netip.AddrPort{}, err
	}
	for _, m := range msgs {
		if len(m.Data) < 4 {
			continue
		}
		if d, ok := parseOriginalDest(m.Data[4:]); ok {
			return d, nil
		}
	}
	return netip.AddrPort{}, errors.New("the kernel's answer holds no destination")
}

// parseOriginalDest returns the original destination in the attributes of a flow.
func parseOriginalDest(attrs []byte) (netip.AddrPort, bool) {
	var addr netip.Addr
	var port uint16
	ad, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for ad.Next() {
		if ad.Type() != ctaTupleOrig {
			continue
		}
		ad.Nested(func(ad *netlink.AttributeDecoder) error {
			for ad.Next() {
				switch ad.Type() {
				case ctaTupleIP:
					ad.Nested(func(ad *netlink.AttributeDecoder) error {
						for ad.Next() {
							if t := ad.Type(); t == ctaIPv4Dst || t == ctaIPv6Dst {
								addr, _ = netip.AddrFromSlice(ad.Bytes())
							}
						}
						return nil
					})
				case ctaTupleProto:
					ad.Nested(func(ad *netlink.AttributeDecoder) error {
						for ad.Next() {
							if b := ad.Bytes(); ad.Type() == ctaProtoDstPort && len(b) == 2 {
								port = uint16(b[0])<<8 | uint16(b[1])
							}
						}
						return nil
					})
				}
			}
			return nil
		})
	}
	return netip.AddrPortFrom(addr, port), ad.Err() == nil && addr.IsValid()
}

func isNotFound(err error) bool { return errors.Is(err, unix.ENOENT) }
