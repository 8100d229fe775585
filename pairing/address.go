package pairing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"mpbond/fault"
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
		if ok {
			list = append(list, ip.Unmap())
		}
	}
	var out []string
	for _, a := range best(list) {
		out = append(out, net.JoinHostPort(a.String(), strconv.Itoa(port)))
	}
	return out
}

// best are the addresses of a device that a code shows. It sorts list.
func best(list []netip.Addr) []netip.Addr {
	list = slices.DeleteFunc(list, func(a netip.Addr) bool { return !a.IsGlobalUnicast() })
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
	return list[:min(len(list), maxShown)]
}

// Reach calls the device of a code at all of its addresses at once. Of several
// that answer the first that proves to know the code counts.
func Reach(ctx context.Context, code Code, self Self) (*Meeting, error) {
	type result struct {
		m        *Meeting
		answered bool
		err      error
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	caller := newCaller(self, code.Secret)
	results := make(chan result, len(code.Addrs))
	for _, addr := range code.Addrs {
		go func() {
			d := net.Dialer{Timeout: stepTimeout / 2}
			conn, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				results <- result{err: err}
				return
			}
			m, err := caller.call(ctx, conn, addr)
			results <- result{m, true, err}
		}()
	}
	var found *Meeting
	worst := result{err: errors.New("the code has no address")}
	for i := range code.Addrs {
		r := <-results
		switch {
		case r.err != nil:
			if i == 0 || r.answered && !worst.answered || r.err == errWrongCode {
				worst = r
			}
		case found != nil:
			r.m.Close()
		default:
			found = r.m
			stop()
		}
	}
	switch {
	case found != nil:
		return found, nil
	case worst.answered:
		return nil, worst.err
	}
	if errors.Is(worst.err, syscall.ECONNREFUSED) { // a helper's port is open while there is a code, and a while longer
		return nil, fault.New(fault.Unreachable, fmt.Errorf("%s refused the call: the code has expired or was used long ago, or mpbond does not run there", code.Addrs[0]),
			"have that device show a new code: `mpbond accept` there, while `mpbond helper` or `mpbond server` runs; if it has another address, write that: CODE@ADDRESS")
	}
	return nil, fault.New(fault.Unreachable, fmt.Errorf("the device that shows the code cannot be reached: %w", worst.err),
		"check the address behind @, and that its port is open; if the device has another address, write that: CODE@ADDRESS")
}
