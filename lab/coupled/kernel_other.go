// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package coupled

import "errors"

// Kernel holds the algorithms in the kernel.
type Kernel struct{}

// Register fails outside Linux.
func Register() (*Kernel, error) { return nil, errors.ErrUnsupported }

// CongestionName returns the name of an algorithm in the kernel.
func CongestionName(a Algorithm) string { return a.String() }

// Close does nothing.
func (*Kernel) Close() error { return nil }
