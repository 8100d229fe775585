package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"mpbond/wire"
)

// notPublic are the destinations that a server does not connect to for its
// devices unless its owner allows it: they would reach the server's own
// network (RFC 6890 and its registries).
var notPublic = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
	"::/96", "64:ff9b:1::/48", "100::/64", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8")

// nat64 and sixToFour embed an IPv4 address, which is then what counts
// (RFC 6052, RFC 3056).
var nat64, sixToFour = netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2002::/16")

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// allowed reports whether devices may be connected to an address.
func allowed(a netip.Addr, allow []netip.Prefix) bool {
	a = a.Unmap().WithZone("")
	if listed(a, allow) {
		return true
	}
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return allowed(netip.AddrFrom4([4]byte(b[12:16])), allow)
	case sixToFour.Contains(a):
		return allowed(netip.AddrFrom4([4]byte(b[2:6])), allow)
	}
	return !listed(a, notPublic)
}

func listed(a netip.Addr, list []netip.Prefix) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// permitted reports whether devices may be connected to an address of now: an
// allowed one that is not this host's, or one that is listed.
func permitted(a netip.Addr, allow []netip.Prefix) bool {
	return allowed(a, allow) && (listed(a, allow) || !own(a))
}

// own reports whether an address is one of this host. A public one is no
// public destination: a connection to it comes by the loopback device, which
// firewalls let pass.
func own(a netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(list, func(i net.Addr) bool {
		n, ok := i.(*net.IPNet)
		if !ok {
			return false
		}
		ip, _ := netip.AddrFromSlice(n.IP)
		return ip.Unmap() == a
	})
}

const dialTimeout = 30 * time.Second

var errForbidden = errors.New("this server does not connect to private addresses (its owner may allow some)")

// dial connects to a destination for a device. The check is made on the
// address that is really connected to, so that no name can lead around it. An
// error is a wire.Reset.
func dial(ctx context.Context, dest string, allow []netip.Prefix) (net.Conn, error) {
	_, port, err := net.SplitHostPort(dest)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return nil, wire.Reset{Code: wire.CodeUnreachable, Text: fmt.Sprintf("%s: no host:port with a number for the port", dest)}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := net.Dialer{ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil || !permitted(ap.Addr(), allow) {
			return errForbidden
		}
		return nil
	}}
	c, err := d.DialContext(ctx, "tcp", dest)
	if err == nil {
		return c, nil
	}
	r := wire.Reset{Code: wire.CodeUnreachable, Text: fmt.Sprintf("%s: %v", dest, err)}
	var dns *net.DNSError
	switch {
	case errors.Is(err, errForbidden):
		r.Code = wire.CodeForbidden
		r.Text = fmt.Sprintf("%s: %v", dest, errForbidden)
	case errors.As(err, &dns) && dns.IsNotFound:
		r.Code = wire.CodeNameNotFound
		r.Text = fmt.Sprintf("%s: the server finds no such name", dest)
	case errors.Is(err, syscall.ECONNREFUSED):
		r.Code = wire.CodeConnRefused
		r.Text = fmt.Sprintf("%s: connection refused", dest)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		r.Code = wire.CodeTimeout
		r.Text = fmt.Sprintf("%s: no answer", dest)
	}
	return nil, r
}
