// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"maps"
	"net"
	"net/netip"

	"mpbond/control/device"
)

// addressTracker holds the addresses that this device has and those that it had before.
type addressTracker struct {
	listAddresses func() (map[netip.Addr]bool, error) // device.LocalAddresses; a fake in tests
	known         map[netip.Addr]bool
	present       map[netip.Addr]bool // at the last call of detectLost
	hasChanged    bool                // the addresses changed after the last call of takeChanged
}

// takeChanged reports whether the addresses changed since the last call.
func (a *addressTracker) takeChanged() bool {
	wasChanged := a.hasChanged
	a.hasChanged = false
	return wasChanged
}

// detectLost reads the addresses. It returns a function that reports whether this device had an
// address and lost it. An address that no interface ever had does not count as lost.
func (a *addressTracker) detectLost() func(net.Addr) bool {
	present, err := a.listAddresses()
	if err != nil {
		return func(net.Addr) bool { return false } // without a new list, no address counts as lost
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

// newAddressTracker returns a tracker that holds the current addresses.
func newAddressTracker() *addressTracker {
	a := &addressTracker{listAddresses: device.LocalAddresses, known: map[netip.Addr]bool{}}
	a.detectLost()
	return a
}
