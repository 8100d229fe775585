// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"net"

	"golang.org/x/sys/unix"
)

// enableSYNSaving makes the kernel keep the first packet of each connection that ln accepts.
func enableSYNSaving(ln net.Listener) {
	t, ok := ln.(*net.TCPListener)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // if it fails every DSCP is 0
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_SAVE_SYN, 1)
	})
}

// dscpOfSavedSYN returns the DSCP of the SYN that opened a connection.
func dscpOfSavedSYN(c *net.TCPConn) (dscp uint8) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		syn, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_SAVED_SYN)
		if err == nil {
			dscp = HeaderDSCP([]byte(syn))
		}
	})
	return dscp
}
