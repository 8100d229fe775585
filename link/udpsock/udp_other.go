//go:build !linux

package udpsock

import (
	"net"
	"syscall"
)

// Failing does nothing outside Linux: what the network answers is not known.
func Failing(*net.UDPConn) error { return nil }

// readable does not wait: the read that follows does.
func readable(syscall.RawConn, func(Failure)) error { return nil }
