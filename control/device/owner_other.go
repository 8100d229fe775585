//go:build !linux

package device

import "net/netip"

// Owner is the program that has a socket.
type Owner struct {
	UID    uint32
	Exe    string
	PID    int
	Cgroup string
}

// Owners finds nobody outside Linux.
type Owners struct{}

// Child finds nobody outside Linux.
func (*Owners) Child(Owner) (Owner, error) { return Owner{}, errNoUplinks }

// Find finds nobody outside Linux.
func (*Owners) Find(string, netip.AddrPort, netip.AddrPort) (Owner, error) {
	return Owner{}, errNoUplinks
}
