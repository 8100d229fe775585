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

// addressInterval is how often this device's own addresses are read. TCP does not notice that
// it has lost its address: it retransmits for as long as it would to a peer that is away,
// and a pipe that waits notices nothing for 50 s.
const addressInterval = time.Second

// linkRecheckCount is for how many looks after a change of addresses the link in use may change:
// routes may follow later.
const linkRecheckCount = 5

// minSleep is how much later than it should be the next look at addresses shows
// that this device has slept.
const minSleep = 4 * time.Second

var (
	errAddress = errors.New("this device has lost the address that it was called from")
	errSlept   = errors.New("this device has slept")
)

// addressWatch compares this device's addresses and clock from one look to the next. It
// decides nothing: it returns what has changed. It belongs to one goroutine.
type addressWatch struct {
	listAddresses func() (map[netip.Addr]bool, error) // device.LocalAddresses; fakes in tests
	wall          func() time.Time                    // wallClock; fakes in tests

	last         time.Time           // the last look, by wall
	known        map[netip.Addr]bool // addresses that this device ever had
	before       map[netip.Addr]bool // at the last look; nil before the first
	linkRechecks int                 // looks for which the link in use may change yet
}

// addressChange is what one look shows.
type addressChange struct {
	slept         time.Duration       // 0: the device was awake
	addresses     bool                // there are others than at the last look
	linkMayDiffer bool                // another link may be in use
	isLost        func(net.Addr) bool // whether an end's address is lost; nil where addresses cannot be read
}

func newAddressWatch() *addressWatch {
	return &addressWatch{listAddresses: device.LocalAddresses, wall: wallClock, known: map[netip.Addr]bool{}}
}

// startWatch begins to watch: the first look is due addressInterval later.
func (w *addressWatch) startWatch() { w.last = w.wall() }

// detectChanges returns what has changed since the last look.
func (w *addressWatch) detectChanges() (c addressChange) {
	wall := w.wall() // read once: a sleep between two readings would be in neither difference
	if slept := wall.Sub(w.last) - addressInterval; slept > minSleep {
		c.slept = slept
	}
	w.last = wall
	present, err := w.listAddresses()
	if err != nil {
		return c // connections stay while one cannot look
	}
	maps.Copy(w.known, present)
	if !maps.Equal(present, w.before) {
		c.addresses = w.before != nil
		w.before, w.linkRechecks = present, linkRecheckCount
	}
	if w.linkRechecks > 0 {
		w.linkRechecks--
		c.linkMayDiffer = true
	}
	c.isLost = func(local net.Addr) bool {
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

// runWatchLoop looks at this device's addresses each addressInterval until ctx ends, at what
// follows from the time that has passed, and at the HS-paths.
func (h *Helper) runWatchLoop(ctx context.Context) {
	tick := time.NewTicker(addressInterval)
	defer tick.Stop()
	for h.addressWatch.startWatch(); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			h.applySuspension(h.facts.reevaluate(now))
			for _, s := range h.relays.listSubflows() {
				s.sampleRates(now)
			}
			h.applyChange(h.addressWatch.detectChanges())
		}
	}
}

// applyChange ends what goes from an address that this device has no more: a pipe that
// waits is made anew, a subflow whose pipe it was looks for another, and one whose HS-path
// it was goes on from another address, over UDP, or is given back to the primary.
func (h *Helper) applyChange(c addressChange) {
	if c.slept > 0 {
		h.log.Info("primaries are called anew", "err", errSlept, "for", c.slept.Round(time.Second))
		h.calls.callAfterSleep()
	}
	if c.addresses {
		h.calls.callNow.fireSignal()
	}
	if c.linkMayDiffer {
		h.applySuspension(h.facts.setLink(h.linkInUse(), time.Now()))
	}
	if c.isLost != nil {
		h.calls.waiting.dropWhere(errAddress, c.isLost)
		for _, s := range h.relays.listSubflows() {
			s.handleLostAddress(c.isLost, h.log)
		}
	}
}
