// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package device

import (
	"context"
	"errors"
)

var errNoUplinks = errors.New("interfaces can be found on Linux only: name them")

// Uplinks always fails.
func Uplinks() ([]string, error) { return nil, errNoUplinks }

// Location always fails.
func Location() (string, error) { return "", errNoUplinks }

// WatchNetwork always fails.
func WatchNetwork(context.Context) (<-chan struct{}, error) { return nil, errNoUplinks }
