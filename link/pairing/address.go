// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"mpbond/base/fault"
)

// maxShownAddrs bounds the addresses in a shown code.
const maxShownAddrs = 4

// Addresses returns the addresses at which others may reach a listener of this device at port:
// public ones first, IPv4 before IPv6.
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
	for _, a := range bestAddresses(list) {
		out = append(out, net.JoinHostPort(a.String(), strconv.Itoa(port)))
	}
	return out
}

// bestAddresses returns the addresses to show in a code. It sorts list.
func bestAddresses(list []netip.Addr) []netip.Addr {
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
	return list[:min(len(list), maxShownAddrs)]
}

// CallAny calls the device of a code at all its addresses at once. The first connection that proves
// that the device knows the code is used.
func CallAny(ctx context.Context, code Code, self Self) (*PendingPairing, error) {
	type result struct {
		m        *PendingPairing
		answered bool
		err      error
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	caller := newCaller(self, code)
	var failed []error // errors of addresses that did not answer
	refused := 0       // how many of them refused the connection
	results := make(chan result, len(code.Addrs))
	for _, addr := range code.Addrs {
		go func() {
			d := net.Dialer{Timeout: stepTimeout / 2}
			conn, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				results <- result{err: fmt.Errorf("%s: %w", addr, plainDialError(err))}
				return
			}
			m, err := caller.callAcceptorAt(ctx, conn, addr)
			results <- result{m, true, err}
		}()
	}
	var found *PendingPairing
	worst := result{err: errors.New("the code has no address")}
	for i := range code.Addrs {
		r := <-results
		switch {
		case r.err != nil:
			if !r.answered {
				failed = append(failed, r.err)
				if errors.Is(r.err, errConnRefused) {
					refused++
				}
			}
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
	if refused > 0 && refused == len(code.Addrs) { // a helper's port is open while a code is valid, and a little longer
		return nil, fault.New(fault.Unreachable,
			fmt.Errorf("%s refused the call: the code has expired or was used long ago, or mpbond does not run there",
				strings.Join(code.Addrs, " and ")),
			"run `mpbond accept` there for a new code, while `mpbond helper` or `mpbond server` runs; if "+
				"its address has changed, use CODE@ADDRESS")
	}
	if len(failed) == 0 {
		failed = append(failed, worst.err)
	}
	slices.SortFunc(failed, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	list := make([]string, len(failed))
	for i, err := range failed {
		list[i] = err.Error()
	}
	return nil, fault.New(fault.Unreachable, fmt.Errorf("the device that shows the code cannot be reached: %s",
		strings.Join(list, "; ")),
		fmt.Sprintf("check the address after @, and that a server's port %d or a helper's port %d is open; "+
			"if the device's address has changed, use CODE@ADDRESS", ServerPort, HelperPort))
}

var errConnRefused = errors.New("connection refused: nothing listens there")

// plainDialError returns the cause of an error of net.Dial without the address, which the caller
// names.
func plainDialError(err error) error {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return errors.New("no such name")
	case errors.As(err, &op) && op.Timeout():
		return errors.New("no answer: a firewall may block it")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errConnRefused
	case errors.As(err, &op):
		return op.Err
	}
	return err
}
