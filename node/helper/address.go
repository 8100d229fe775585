// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"time"

	"mpbond/control/device"
)

// addressInterval is how often this device's addresses are read, and relays are checked, unless this
// program is idle. TCP does not notice that it has lost its address: it retransmits as to an absent
// peer, and a waiting pipe notices nothing for 50 s.
const addressInterval = time.Second

// minSleep is how much later than expected a check must run to show that this device slept.
const minSleep = 4 * time.Second

var (
	errAddress = errors.New("this device lost the local address")
	errSlept   = errors.New("this device has slept")
)

// addressWatch compares this device's addresses and clock between checks. It returns changes and
// takes no decisions. Not safe for concurrent use.
type addressWatch struct {
	listAddresses func() (map[netip.Addr]bool, error) // device.LocalAddresses; fakes in tests
	wall          func() time.Time                    // wallClock; fakes in tests

	last    time.Time           // time of the last check, by the wall clock
	lastDue time.Time           // when that check was due, by the monotonic clock
	known   map[netip.Addr]bool // all addresses that this device ever had
	before  map[netip.Addr]bool // at the last check; nil before the first
}

// addressChange is the result of one check.
type addressChange struct {
	slept     time.Duration       // 0: the device was awake
	addresses bool                // the addresses differ from the last check
	isLost    func(net.Addr) bool // whether a local address is lost; nil if addresses could not be read
}

func newAddressWatch() *addressWatch {
	return &addressWatch{listAddresses: device.LocalAddresses, wall: wallClock, known: map[netip.Addr]bool{}}
}

// startAddressWatch starts the watch at a time by the monotonic clock.
func (w *addressWatch) startAddressWatch(now time.Time) { w.last, w.lastDue = w.wall(), now }

// detectChanges returns what changed since the last check. due is when this one was due, by the
// monotonic clock.
func (w *addressWatch) detectChanges(due time.Time) (c addressChange) {
	wall := w.wall() // read once: a sleep between two readings would be lost
	if slept := wall.Sub(w.last) - due.Sub(w.lastDue); slept > minSleep {
		c.slept = slept
	}
	w.last, w.lastDue = wall, due
	present, err := w.listAddresses()
	if err != nil {
		return c // connections stay without a list
	}
	maps.Copy(w.known, present)
	if !maps.Equal(present, w.before) {
		c.addresses = w.before != nil
		w.before = present
	}
	c.isLost = func(local net.Addr) bool {
		a, err := netip.ParseAddrPort(local.String())
		ip := a.Addr().Unmap().WithZone("")
		// An address that no interface ever had does not count: it is of a local route, or no IP
		// address.
		return err == nil && w.known[ip] && !present[ip]
	}
	return c
}

// wallClock returns the time without the monotonic clock, which stands still while the device
// sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// runWatchLoop checks addresses, suspension and HS-paths every addressInterval, at the pace of the
// clock, until ctx ends.
func (h *Helper) runWatchLoop(ctx context.Context) {
	tick := h.cfg.Clock.NewTicker(addressInterval)
	defer tick.Stop()
	for h.addressWatch.startAddressWatch(time.Now()); ; {
		select {
		case <-ctx.Done():
			return
		case due := <-tick.C:
			now := time.Now()
			h.applySuspension(h.facts.reevaluate(now))
			for _, s := range h.relays.relayedSubflows() {
				if s.sampleHSPath(now) {
					h.cfg.Clock.Wake()
				}
			}
			h.applyAddressChange(h.addressWatch.detectChanges(due))
		}
	}
}

// applyAddressChange ends what uses a lost address. A waiting pipe is opened again. A subflow
// without its pipe looks for another pipe. A subflow without its HS-path moves to another address,
// over UDP, or goes back to the primary.
func (h *Helper) applyAddressChange(c addressChange) {
	if c.slept > 0 {
		h.log.Info("calling primaries again", "err", errSlept, "for", c.slept.Round(time.Second))
		h.calls.callAfterSleep()
	}
	if c.addresses {
		h.calls.callNow.fireSignal()
	}
	// Routes change without addresses, and later than these.
	h.applySuspension(h.facts.setSharedLink(h.linkToServers(), time.Now()))
	if c.isLost != nil {
		h.calls.waiting.dropPipesWhere(errAddress, c.isLost)
		for _, s := range h.relays.relayedSubflows() {
			s.handleLostAddress(c.isLost, h.log)
		}
	}
}
