// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package udpsock

import (
	"net"
	"syscall"
)

// EnableFailures does nothing outside Linux, where ICMP errors are not available.
func EnableFailures(*net.UDPConn) error { return nil }

// waitReadable returns at once: the read that follows waits.
func waitReadable(syscall.RawConn, func(Failure)) error { return nil }
