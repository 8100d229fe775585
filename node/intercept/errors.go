package intercept

import (
	"context"
	"errors"
	"syscall"

	"mpbond/link/wire"
)

type openWaiter interface {
	WaitOpen(context.Context) error
}

// refusalCode is why a stream failed, in the words of the wire. Errors which do
// not come from the far end count as CodeInternal.
func refusalCode(err error) wire.Code {
	var r wire.Reset
	switch {
	case errors.As(err, &r):
		return r.Code
	case errors.Is(err, syscall.ECONNREFUSED):
		return wire.CodeConnRefused
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return wire.CodeUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return wire.CodeTimeout
	}
	return wire.CodeInternal
}
