// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package device

import "net/netip"

// Process is the program that owns a socket.
type Process struct {
	UID    uint32
	Exe    string
	PID    int
	Cgroup string
}

// ProcessFinder finds processes on Linux only.
type ProcessFinder struct{}

// FindChild always fails.
func (*ProcessFinder) FindChild(Process) (Process, error) { return Process{}, errNoUplinks }

// FindBySocket always fails.
func (*ProcessFinder) FindBySocket(string, netip.AddrPort, netip.AddrPort) (Process, error) {
	return Process{}, errNoUplinks
}
