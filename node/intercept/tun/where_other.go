//go:build !linux

package tun

import "runtime"

const unsupportedWhere = "on " + runtime.GOOS
