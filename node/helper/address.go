package helper

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"time"

	"mpbond/base/identity"
	"mpbond/link/pipe"
)

// addressEvery is how often this device's own addresses are looked at. TCP does
// not notice that it has lost its address: it retransmits for as long as it
// would to a peer that is away, and a pipe that waits notices nothing for 50 s.
const addressEvery = time.Second

// lookLonger is for how many looks after a change of addresses the link is asked for
// that is lent: routes may follow later.
const lookLonger = 5

// leastSleep is how much later than it should be the next look at addresses tells
// that this device has slept.
const leastSleep = 4 * time.Second

var (
	errAddress = errors.New("this device has lost the address that it was called from")
	errSlept   = errors.New("this device has slept")
)

// offered is a pipe that waits.
type offered struct {
	local net.Addr
	drop  context.CancelCauseFunc
}

// wait is o.Wait, which ends too when conn, its connection, loses its address.
func (h *Helper) wait(ctx context.Context, o *pipe.Offer, conn net.Conn, primary identity.PublicKey) (pipe.Request, error) {
	ctx, drop := context.WithCancelCause(ctx)
	defer drop(nil)
	h.mu.Lock()
	h.offers[o] = &offered{conn.LocalAddr(), drop}
	h.mu.Unlock()
	h.announcer.add(o, primary)
	q, err := o.Wait(ctx)
	h.mu.Lock()
	delete(h.offers, o)
	h.mu.Unlock()
	h.announcer.remove(o)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return q, err
}

// watchAddresses ends, until ctx ends, what goes from an address that this
// device has no more: a pipe that waits is made anew, a subflow whose pipe it was
// looks for another, and one whose HS-path it was goes on from another address, over
// UDP, or is given back to the primary.
func (h *Helper) watchAddresses(ctx context.Context) {
	tick := time.NewTicker(addressEvery)
	defer tick.Stop()
	known := map[netip.Addr]bool{}
	before, news := map[netip.Addr]bool(nil), 0
	for last := h.wall(); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			h.announceFacts(h.facts.review(now))
			for _, s := range h.relays.list() {
				s.sample(now)
			}
		}
		wall := h.wall() // read once: a sleep between two readings would be in neither difference
		slept := wall.Sub(last) - addressEvery
		if last = wall; slept > leastSleep {
			h.log.Info("primaries are called anew", "err", errSlept, "for", slept.Round(time.Second))
			h.wake()
		}
		present, err := h.addresses()
		if err != nil {
			continue // what is there stays while one cannot look
		}
		for a := range present {
			known[a] = true
		}
		if !maps.Equal(present, before) {
			if before != nil {
				h.mu.Lock()
				h.endWaits()
				h.mu.Unlock()
			}
			before, news = present, lookLonger
		}
		if news > 0 {
			news--
			h.announceFacts(h.facts.setLink(h.linkInUse(), time.Now()))
		}
		h.dropLost(func(local net.Addr) bool {
			a, err := netip.ParseAddrPort(local.String())
			ip := a.Addr().Unmap().WithZone("")
			// An address that no interface ever had is of another kind: of a
			// route of type local, or of no IP at all.
			return err == nil && known[ip] && !present[ip]
		})
	}
}

// wallClock is the time without the monotonic clock, which stands still while the
// device sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// wake is for after a sleep, of which timers tell nothing: CLOCK_MONOTONIC and the
// kernel's own, which keep-alives go by, stand still meanwhile (clock_gettime(2)).
// What has waited for a primary may be dead at its end, and who is being called
// again is called at once. Subflows are left to the primary: it has given them up,
// or will go on with them.
func (h *Helper) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.offers {
		o.drop(errSlept)
	}
	h.endWaits()
}

func (h *Helper) dropLost(lost func(net.Addr) bool) {
	h.mu.Lock()
	for _, o := range h.offers {
		if lost(o.local) {
			o.drop(errAddress)
		}
	}
	h.mu.Unlock()
	for _, s := range h.relays.list() {
		s.dropLost(lost, h.log)
	}
}
