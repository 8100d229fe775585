package primary

import (
	"maps"
	"net"
	"net/netip"

	"mpbond/control/device"
)

// addresses are this device's own, and those that it had before.
type addresses struct {
	list  func() (map[netip.Addr]bool, error) // device.Addresses; a fake in tests
	known map[netip.Addr]bool
	now   map[netip.Addr]bool // as listed last
	other bool                // they have changed since changed was called
}

// changed reports whether the addresses have changed since it was called last.
func (a *addresses) changed() bool {
	other := a.other
	a.other = false
	return other
}

// lost returns a function that reports whether an address is no longer this device's;
// one that no interface ever had is of another kind.
func (a *addresses) lost() func(net.Addr) bool {
	present, err := a.list()
	if err != nil {
		return func(net.Addr) bool { return false } // what is there stays while one cannot look
	}
	for ip := range present {
		a.known[ip] = true
	}
	a.other = a.other || a.now != nil && !maps.Equal(a.now, present)
	a.now = present
	return func(local net.Addr) bool {
		at, err := netip.ParseAddrPort(local.String())
		ip := at.Addr().Unmap().WithZone("")
		return err == nil && a.known[ip] && !present[ip]
	}
}

// newAddresses begins with those that there are now.
func newAddresses() *addresses {
	a := &addresses{list: device.Addresses, known: map[netip.Addr]bool{}}
	a.lost()
	return a
}
