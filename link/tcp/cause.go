// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"mpbond/base/fault"
)

// CauseOf returns why an address could not be reached, or fault.CauseUnknown for any other error.
func CauseOf(err error) fault.Cause {
	var name *net.DNSError
	var timeout net.Error
	switch {
	case err == nil:
		return fault.CauseUnknown
	case errors.As(err, &name):
		return fault.CauseNoName
	case errors.Is(err, syscall.ECONNREFUSED):
		return fault.CauseRefused
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETDOWN):
		return fault.CauseNoRoute
	case fault.Is(err, fault.Timeout), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fault.CauseNoAnswer
	}
	return fault.CauseUnknown
}
