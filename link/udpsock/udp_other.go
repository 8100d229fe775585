//go:build !linux

package udpsock

import (
	"net"
	"syscall"
)

// EnableFailures does nothing outside Linux: what the network answers is not known.
func EnableFailures(*net.UDPConn) error { return nil }

// waitReadable does not wait: the read that follows does.
func waitReadable(syscall.RawConn, func(Failure)) error { return nil }
