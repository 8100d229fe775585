package helper

import (
	"context"
	"fmt"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/pipe"
)

// capError is that a link may carry nothing more, or any of them for a primary.
type capError struct {
	of device.Bounded
	a  policy.Allowance
}

// Error is for the primary.
func (e capError) Error() string {
	if e.of.Peer != "" {
		return fmt.Sprintf("for this device %v", e.a)
	}
	return fmt.Sprintf("%s of the helper: %v", e.of.Link, e.a)
}

// forPrimary is what caps by a primary's name bound.
func forPrimary(p identity.Peer) device.Bounded {
	return device.Bounded{Peer: p.Key.ID().String(), By: policy.ForPath}
}

// spent is the error that nothing more may be carried for a primary, or over the link
// to a server, if so. Nothing is sent to find out.
func (h *Helper) spent(ctx context.Context, primary identity.Peer, server string) error {
	if h.cfg.Allowed == nil {
		return nil
	}
	if err := h.usedUp(forPrimary(primary)); err != nil {
		return err
	}
	link := h.cfg.HSInterface
	if link == "" {
		link = h.routes.To(ctx, server, h.cfg.Mark)
	}
	return h.usedUp(device.Bounded{Link: link})
}

// usedUp is the error that a link, or this device for a primary, may carry nothing
// more, if so.
func (h *Helper) usedUp(of device.Bounded) error {
	if h.cfg.Allowed == nil {
		return nil
	}
	if a := h.cfg.Allowed(of); a.Level == policy.CapReached {
		return capError{of, a}
	}
	return nil
}

// willing is the error that nothing is carried for a primary now, whatever its caps, if so.
func (h *Helper) willing(primary identity.Peer) error {
	if h.trust.Paused(primary.Key) {
		return fault.New(fault.Limit, errPaused, "on the helper run `mpbond resume NAME`")
	}
	if why := h.Facts().Refuses; why != "" {
		return fault.New(fault.Limit, fmt.Errorf("it rests: %s", why), "see battery_floor and max_temperature in helper.toml and policy.toml there")
	}
	return nil
}

// May is why nothing is carried for a primary now, nil if it may be; server, if not "",
// is the address to which. It is for those who carry something else than subflows.
// Errors are faults.
func (h *Helper) May(ctx context.Context, primary identity.Peer, server string) error {
	if err := h.willing(primary); err != nil {
		return err
	}
	err := h.usedUp(forPrimary(primary))
	if err == nil && server != "" {
		err = h.spent(ctx, primary, server)
	}
	return fault.New(fault.Limit, err, "see the caps in policy.toml there")
}

// Spent ends all subflows of which a cap is used up. Their primaries are told.
func (h *Helper) Spent(of device.Bounded, a policy.Allowance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, f := range h.relays {
		if primary := forPrimary(f.primary); of.Counts(policy.ForPath, f.link, primary.Peer) {
			if of.Peer == "" {
				r.close(capError{device.Bounded{Link: f.link}, a})
			} else {
				r.close(capError{of, a})
			}
		}
	}
}

// countFor has what a connection carries counted as a primary's.
func countFor(c pipe.Conn, p identity.Peer) {
	if c, ok := c.(interface{ For(peer string) }); ok {
		c.For(p.Key.ID().String())
	}
}
