// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"mpbond/base/fault"
)

func TestCauseOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want fault.Cause
	}{
		{nil, fault.CauseUnknown},
		{errors.New("x"), fault.CauseUnknown},
		{fault.New(fault.Unreachable, fmt.Errorf("connect: %w",
			os.NewSyscallError("connect", syscall.ECONNREFUSED)), ""), fault.CauseRefused},
		{fmt.Errorf("connect: %w", syscall.ENETUNREACH), fault.CauseNoRoute},
		{syscall.EHOSTUNREACH, fault.CauseNoRoute},
		{fault.New(fault.Timeout, errors.New("late"), ""), fault.CauseNoAnswer},
		{&net.OpError{Err: os.ErrDeadlineExceeded}, fault.CauseNoAnswer},
		{syscall.ETIMEDOUT, fault.CauseNoAnswer},
		{context.DeadlineExceeded, fault.CauseNoAnswer},
		{&net.DNSError{IsTimeout: true}, fault.CauseNoName},
		{fault.New(fault.UnknownDevice, errors.New("refused"), ""), fault.CauseUnknown},
	} {
		if got := CauseOf(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
