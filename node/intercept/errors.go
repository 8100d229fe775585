// SPDX-License-Identifier: Apache-2.0

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

// refusalCode returns the reason why a stream failed. Errors that are not the far end's become
// CodeInternal, unless the system names a reason.
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
