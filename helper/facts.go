package helper

import (
	"net"

	"mpbond/device"
	"mpbond/device/facts"
	"mpbond/pipe"
	"mpbond/wire"
)

// FactsChanged takes what is known of this device now, and tells the primaries,
// on pipes that wait and on those that carry subflows.
func (h *Helper) FactsChanged(f facts.Facts) {
	now := f.Of(h.link())
	if now.Radio == wire.RadioNone {
		now.Radio = device.RadioOf(now.Link)
	}
	h.factsMu.Lock()
	defer h.factsMu.Unlock()
	if now == h.facts {
		return
	}
	h.facts = now
	var offers []*pipe.Offer
	var links []*pipe.Link
	h.mu.Lock()
	for o := range h.offers {
		offers = append(offers, o)
	}
	for r := range h.relays {
		links = append(links, r.pipe)
	}
	h.mu.Unlock()
	for _, o := range offers {
		_ = o.SendFacts(now) // a pipe that broke is noticed by who waits on it
	}
	for _, l := range links {
		_ = l.SendFacts(now)
	}
}

// tellFacts tells a primary what is known of this device, on a pipe that is in
// h.offers or h.relays from now on.
func (h *Helper) tellFacts(on interface{ SendFacts(wire.Facts) error }) {
	h.factsMu.Lock()
	defer h.factsMu.Unlock()
	if h.facts != (wire.Facts{}) {
		_ = on.SendFacts(h.facts)
	}
}

// Facts are what primaries are told of this device.
func (h *Helper) Facts() wire.Facts {
	h.factsMu.Lock()
	defer h.factsMu.Unlock()
	return h.facts
}

// link is the interface by which servers are reached, "" where that is not
// known.
func (h *Helper) link() string {
	if h.cfg.HSInterface != "" {
		return h.cfg.HSInterface
	}
	var local net.Addr
	h.mu.Lock()
	for r := range h.relays {
		local = r.hs.LocalAddr()
	}
	h.mu.Unlock()
	if local != nil {
		if name := device.InterfaceOf(local); name != "" {
			return name
		}
	}
	if names, err := device.Uplinks(); err == nil && len(names) > 0 {
		return names[0]
	}
	return ""
}
