// SPDX-License-Identifier: Apache-2.0

//go:build !linux || router

package tun

import (
	"context"
	"errors"
	"log/slog"

	"mpbond/base/fault"
	"mpbond/node/intercept"
)

// Config configures a TUN where it is supported.
type Config struct {
	Edge *intercept.Edge
	Mark uint32
	Log  *slog.Logger
}

// TUN is not supported here.
type TUN struct{}

var errUnsupported = fault.New(fault.Unsupported, errors.New("mpbond cannot carry a whole machine "+unsupportedWhere),
	"leave tun out, and set the proxy in apps or in the system's settings")

// Open fails.
func Open(Config) (*TUN, error) { return nil, errUnsupported }

// Run fails.
func (*TUN) Run(context.Context) error { return errUnsupported }

// Close does nothing.
func (*TUN) Close() error { return nil }

// Present reports false.
func Present() bool { return false }

// RemoveLeftovers does nothing.
func RemoveLeftovers() ([]string, error) { return nil, nil }
