// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/porttest"
	"mpbond/link/wire"
)

// TestCallAnyNamesPorts checks that the error for an unreachable device names each address with its
// failure, and the hint the ports of servers and helpers.
func TestCallAnyNamesPorts(t *testing.T) {
	laptop := newTestDevice(t, "laptop", wire.PairPrimary)
	code := Code{Secret: NewSecret(), Addrs: []string{porttest.FreeAddress(t), porttest.FreeAddress(t)}}
	_, err := CallAny(t.Context(), code, laptop.Self)
	want := code.Addrs[0] + " and " + code.Addrs[1] + " refused the call"
	if !fault.Is(err, fault.Unreachable) || !strings.Contains(err.Error(), want) ||
		!strings.Contains(fault.HintOf(err), "mpbond accept") {
		t.Errorf("%v (%s), want %q", err, fault.HintOf(err), want)
	}
	code.Addrs[1] = "no-such-host.invalid:7603"
	_, err = CallAny(t.Context(), code, laptop.Self)
	if !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), "7600") ||
		!strings.Contains(fault.HintOf(err), "7603") {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
	for _, want := range []string{code.Addrs[0] + ": connection refused: nothing listens there", code.Addrs[1] + ": "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}

func TestWhy(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, c := range []struct {
		err  error
		says string
	}{
		{dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), "nothing listens"},
		{dial(os.ErrDeadlineExceeded), "no answer: a firewall"},
		{dial(&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}), "no such name"},
		{dial(os.NewSyscallError("connect", syscall.ENETUNREACH)), "network is unreachable"},
		{errors.New("else"), "else"},
	} {
		if got := plainDialError(c.err).Error(); !strings.Contains(got, c.says) || strings.Contains(got, "dial tcp") {
			t.Errorf("%v: %s", c.err, got)
		}
	}
}
