// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"sync"
	"time"

	"mpbond/control/device"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/link/wire"
)

// deviceFacts holds the facts of this device and of the link that it shares. It decides by the
// owner's limits whether the device is suspended and refuses all traffic. It gets facts, link and
// time from its callers and announces nothing. Each change of suspension is returned once, to one
// caller. Safe for concurrent use; limits is called with mu held and must not call back.
type deviceFacts struct {
	limits func() policy.Limits // the owner's

	mu        sync.Mutex
	measured  *facts.Facts      // of all links; nil before the first
	known     wire.Facts        // of the link in use
	suspended policy.Suspension // by this device's own limits
}

// suspension is a change of the reason why this device carries nothing; "" is none.
type suspension struct {
	before, now string
}

// setDeviceFacts sets the facts of this device, which shares link.
func (d *deviceFacts) setDeviceFacts(f facts.Facts, link string, now time.Time) suspension {
	d.mu.Lock()
	d.measured = &f
	d.mu.Unlock()
	return d.setSharedLink(link, now)
}

// setSharedLink sets the link that this device shares, "" if unknown.
func (d *deviceFacts) setSharedLink(link string, now time.Time) suspension {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.measured == nil {
		return suspension{d.suspended.Reason, d.suspended.Reason}
	}
	d.known = d.measured.ForLink(link)
	if d.known.Radio == wire.RadioNone {
		d.known.Radio = device.RadioOf(d.known.Link)
	}
	return d.updateSuspension(now)
}

// reevaluate decides again: a suspension may end with time, and limits may have changed.
func (d *deviceFacts) reevaluate(now time.Time) suspension {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.updateSuspension(now)
}

// updateSuspension decides whether this device is suspended. mu must be held.
func (d *deviceFacts) updateSuspension(now time.Time) suspension {
	before := d.suspended.Reason
	d.suspended = d.suspended.Update(now, d.limits(), d.known)
	return suspension{before, d.suspended.Reason}
}

// factsToAnnounce returns the facts for primaries, with the reason for a refusal.
func (d *deviceFacts) factsToAnnounce() wire.Facts {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.known
	f.RefusalReason = d.suspended.Reason
	return f
}
