//go:build !linux || router

package tun

import (
	"context"
	"errors"
	"log/slog"

	"mpbond/base/fault"
	"mpbond/node/intercept"
)

// Config is what Open needs where it works.
type Config struct {
	Edge *intercept.Edge
	Mark uint32
	Log  *slog.Logger
}

// TUN cannot be had here.
type TUN struct{}

var errUnsupported = fault.New(fault.Unsupported, errors.New("mpbond cannot carry a whole machine "+unsupportedWhere),
	"leave tun out, and tell apps or the system's settings of the proxy")

// Open fails.
func Open(Config) (*TUN, error) { return nil, errUnsupported }

// Run fails.
func (*TUN) Run(context.Context) error { return errUnsupported }

// Close does nothing.
func (*TUN) Close() error { return nil }

// Present is false.
func Present() bool { return false }

// RemoveLeftovers finds none.
func RemoveLeftovers() ([]string, error) { return nil, nil }
