//go:build !linux

package tun

import (
	"context"
	"errors"
	"log/slog"
	"runtime"

	"mpbond/base/fault"
	"mpbond/node/intercept"
)

// Config is what Open needs on Linux.
type Config struct {
	Edge *intercept.Edge
	Mark uint32
	Log  *slog.Logger
}

// TUN cannot be had outside Linux.
type TUN struct{}

var errNone = fault.New(fault.Unsupported, errors.New("mpbond cannot carry a whole machine on "+runtime.GOOS),
	"leave tun out, and tell apps or the system's settings of the proxy")

// Open fails outside Linux.
func Open(Config) (*TUN, error) { return nil, errNone }

// Run fails outside Linux.
func (*TUN) Run(context.Context) error { return errNone }

// Close does nothing outside Linux.
func (*TUN) Close() error { return nil }

// Present is false outside Linux.
func Present() bool { return false }

// RemoveLeftovers finds none outside Linux.
func RemoveLeftovers() ([]string, error) { return nil, nil }
