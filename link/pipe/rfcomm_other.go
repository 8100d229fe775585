// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package pipe

import (
	"context"
	"errors"
	"runtime"

	"mpbond/base/fault"
)

var errNoRFCOMM = fault.New(fault.Unreachable, errors.New("Bluetooth is not supported on "+runtime.GOOS), "use tcp://")

// Dial implements Carrier.
func (RFCOMM) Dial(context.Context, string) (Conn, error) { return nil, errNoRFCOMM }

// Listen implements Carrier.
func (RFCOMM) Listen(context.Context, string) (Listener, error) { return nil, errNoRFCOMM }
