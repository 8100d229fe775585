package pairing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"mpbond/fault"
	"mpbond/identity"
)

// maxShown bounds the addresses that a code shows.
const maxShown = 4

// Addresses are those at which others may reach a listener of this device at
// port: public ones first, IPv4 before IPv6.
func Addresses(port int) []string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var list []netip.Addr
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		if ip = ip.Unmap(); ok && ip.IsGlobalUnicast() {
			list = append(list, ip)
		}
	}
	rank := func(a netip.Addr) (r int) {
		if a.IsPrivate() {
			r += 2
		}
		if a.Is6() {
			r++
		}
		return r
	}
	slices.SortStableFunc(list, func(a, b netip.Addr) int { return rank(a) - rank(b) })
	var out []string
	for _, a := range list[:min(len(list), maxShown)] {
		out = append(out, net.JoinHostPort(a.String(), strconv.Itoa(port)))
	}
	return out
}

// Reach calls the device of a code at whichever of its addresses it is. Of
// several that answer the first that proves to know the code counts.
func Reach(ctx context.Context, code Code, self Self) (*Meeting, error) {
	type result struct {
		addr string
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithTimeout(ctx, 2*stepTimeout)
	defer cancel()
	dialing, stop := context.WithCancel(ctx)
	results := make(chan result, len(code.Addrs))
	for _, addr := range code.Addrs {
		go func() {
			d := net.Dialer{Timeout: stepTimeout / 2}
			conn, err := d.DialContext(dialing, "tcp", addr)
			results <- result{addr, conn, err}
		}()
	}
	caller := caller{self, code.Secret, map[identity.PublicKey]bool{}}
	var found *Meeting
	var worst error // of those that answered, else of any
	answered := false
	for range code.Addrs {
		r := <-results
		switch {
		case r.err != nil:
			if worst == nil {
				worst = r.err
			}
			continue
		case found != nil:
			r.conn.Close()
			continue
		}
		m, err := caller.call(ctx, r.conn, r.addr)
		if err == nil {
			found = m
			stop()
		} else if !answered {
			worst, answered = err, true
		}
	}
	stop()
	switch {
	case found != nil:
		return found, nil
	case answered:
		return nil, worst
	case worst == nil:
		worst = errors.New("the code has no address")
	}
	return nil, fault.New(fault.Unreachable, fmt.Errorf("the device that shows the code cannot be reached: %w", worst),
		"check the address behind @, and that its port is open; if the device has another address, write that: CODE@ADDRESS")
}
