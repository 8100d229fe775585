//go:build !linux

package tun

import "runtime"

const where = "on " + runtime.GOOS
