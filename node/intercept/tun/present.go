//go:build linux && !router

package tun

import "net"

// Present reports whether a TUN device of ours takes this machine's traffic, so
// that who wants to go around it must mark its sockets with tcp.OwnMark.
func Present() bool {
	_, err := net.InterfaceByName(deviceName)
	return err == nil
}
