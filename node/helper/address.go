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

// addressEvery is how often this device's own addresses are read. TCP does not notice that
// it has lost its address: it retransmits for as long as it would to a peer that is away,
// and a pipe that waits notices nothing for 50 s.
const addressEvery = time.Second

// routesFollow is for how many looks after a change of addresses the link in use may change:
// routes may follow later.
const routesFollow = 5

// leastSleep is how much later than it should be the next look at addresses shows
// that this device has slept.
const leastSleep = 4 * time.Second

var (
	errAddress = errors.New("this device has lost the address that it was called from")
	errSlept   = errors.New("this device has slept")
)

// addressWatch compares this device's addresses and clock from one look to the next. It
// decides nothing: it returns what has changed. It belongs to one goroutine.
type addressWatch struct {
	addresses func() (map[netip.Addr]bool, error) // device.Addresses; fakes in tests
	wall      func() time.Time                    // wallClock; fakes in tests

	last   time.Time           // the last look, by wall
	known  map[netip.Addr]bool // addresses that this device ever had
	before map[netip.Addr]bool // at the last look; nil before the first
	follow int                 // looks for which the link in use may change yet
}

// addressChange is what one look shows.
type addressChange struct {
	slept       time.Duration       // 0: the device was awake
	addresses   bool                // there are others than at the last look
	linkMayDiff bool                // another link may be in use
	lost        func(net.Addr) bool // whether an end's address is lost; nil where addresses cannot be read
}

func newAddressWatch() *addressWatch {
	return &addressWatch{addresses: device.Addresses, wall: wallClock, known: map[netip.Addr]bool{}}
}

// start begins to watch: the first look is due addressEvery later.
func (w *addressWatch) start() { w.last = w.wall() }

// look returns what has changed since the last look.
func (w *addressWatch) look() (c addressChange) {
	wall := w.wall() // read once: a sleep between two readings would be in neither difference
	if slept := wall.Sub(w.last) - addressEvery; slept > leastSleep {
		c.slept = slept
	}
	w.last = wall
	present, err := w.addresses()
	if err != nil {
		return c // connections stay while one cannot look
	}
	maps.Copy(w.known, present)
	if !maps.Equal(present, w.before) {
		c.addresses = w.before != nil
		w.before, w.follow = present, routesFollow
	}
	if w.follow > 0 {
		w.follow--
		c.linkMayDiff = true
	}
	c.lost = func(local net.Addr) bool {
		a, err := netip.ParseAddrPort(local.String())
		ip := a.Addr().Unmap().WithZone("")
		// An address that no interface ever had is of another kind: of a
		// route of type local, or of no IP at all.
		return err == nil && w.known[ip] && !present[ip]
	}
	return c
}

// wallClock returns the time without the monotonic clock, which stands still while the
// device sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// watchAddresses looks at this device's addresses each addressEvery until ctx ends, at what
// follows from the time that has passed, and at the HS-paths.
func (h *Helper) watchAddresses(ctx context.Context) {
	tick := time.NewTicker(addressEvery)
	defer tick.Stop()
	for h.watch.start(); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			h.announceFacts(h.facts.review(now))
			for _, s := range h.relays.list() {
				s.sample(now)
			}
			h.applyChange(h.watch.look())
		}
	}
}

// applyChange ends what goes from an address that this device has no more: a pipe that
// waits is made anew, a subflow whose pipe it was looks for another, and one whose HS-path
// it was goes on from another address, over UDP, or is given back to the primary.
func (h *Helper) applyChange(c addressChange) {
	if c.slept > 0 {
		h.log.Info("primaries are called anew", "err", errSlept, "for", c.slept.Round(time.Second))
		h.calls.wake()
	}
	if c.addresses {
		h.calls.early.now()
	}
	if c.linkMayDiff {
		h.announceFacts(h.facts.setLink(h.linkInUse(), time.Now()))
	}
	if c.lost != nil {
		h.calls.waiting.drop(errAddress, c.lost)
		for _, s := range h.relays.list() {
			s.dropLost(c.lost, h.log)
		}
	}
}
