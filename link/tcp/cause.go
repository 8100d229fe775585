package tcp

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"mpbond/base/fault"
)

// CauseOf returns the cause of err, fault.CauseUnknown for one that is about something
// else than reaching an address.
func CauseOf(err error) fault.Cause {
	var name *net.DNSError
	var late net.Error
	switch {
	case err == nil:
		return fault.CauseUnknown
	case errors.As(err, &name):
		return fault.CauseNoName
	case errors.Is(err, syscall.ECONNREFUSED):
		return fault.CauseRefused
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETDOWN):
		return fault.CauseNoRoute
	case fault.Is(err, fault.Timeout), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &late) && late.Timeout():
		return fault.CauseNoAnswer
	}
	return fault.CauseUnknown
}
