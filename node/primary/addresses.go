package primary

import (
	"maps"
	"net"
	"net/netip"

	"mpbond/control/device"
)

// addressTracker are this device's own, and those that it had before.
type addressTracker struct {
	listAddresses func() (map[netip.Addr]bool, error) // device.LocalAddresses; a fake in tests
	known         map[netip.Addr]bool
	present       map[netip.Addr]bool // as listed last
	hasChanged    bool                // they have changed since changed was called
}

// takeChanged reports whether the addresses have changed since it was called last.
func (a *addressTracker) takeChanged() bool {
	wasChanged := a.hasChanged
	a.hasChanged = false
	return wasChanged
}

// detectLost returns a function that reports whether an address is no longer this device's;
// one that no interface ever had is of another kind.
func (a *addressTracker) detectLost() func(net.Addr) bool {
	present, err := a.listAddresses()
	if err != nil {
		return func(net.Addr) bool { return false } // what is there stays while one cannot look
	}
	for ip := range present {
		a.known[ip] = true
	}
	a.hasChanged = a.hasChanged || a.present != nil && !maps.Equal(a.present, present)
	a.present = present
	return func(local net.Addr) bool {
		at, err := netip.ParseAddrPort(local.String())
		ip := at.Addr().Unmap().WithZone("")
		return err == nil && a.known[ip] && !present[ip]
	}
}

// newAddressTracker begins with those that there are now.
func newAddressTracker() *addressTracker {
	a := &addressTracker{listAddresses: device.LocalAddresses, known: map[netip.Addr]bool{}}
	a.detectLost()
	return a
}
