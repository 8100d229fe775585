// SPDX-License-Identifier: Apache-2.0

//go:build linux && !router

package tun

import "net"

// Present reports whether a TUN device of mpbond takes this machine's traffic. Sockets that are to
// bypass it need the mark tcp.OwnMark.
func Present() bool {
	_, err := net.InterfaceByName(deviceName)
	return err == nil
}
