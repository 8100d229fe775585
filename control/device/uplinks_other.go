//go:build !linux

package device

import (
	"context"
	"errors"
)

var errNoUplinks = errors.New("interfaces are found on Linux only: name them")

// Uplinks finds none outside Linux.
func Uplinks() ([]string, error) { return nil, errNoUplinks }

// Location knows none outside Linux.
func Location() (string, error) { return "", errNoUplinks }

// WatchUplinks does not watch outside Linux.
func WatchUplinks(context.Context) (<-chan struct{}, error) { return nil, errNoUplinks }
