//go:build !linux

package device

import "net/netip"

// Process is the program that has a socket.
type Process struct {
	UID    uint32
	Exe    string
	PID    int
	Cgroup string
}

// ProcessFinder finds nobody outside Linux.
type ProcessFinder struct{}

// FindChild finds nobody outside Linux.
func (*ProcessFinder) FindChild(Process) (Process, error) { return Process{}, errNoUplinks }

// FindBySocket finds nobody outside Linux.
func (*ProcessFinder) FindBySocket(string, netip.AddrPort, netip.AddrPort) (Process, error) {
	return Process{}, errNoUplinks
}
