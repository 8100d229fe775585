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

// capChecker checks the owner's caps before a subflow is made. It owns a cache of routes
// and sends nothing to find out; errors are capErrors. Methods may be called by any
// goroutine.
type capChecker struct {
	allowance func(device.Bounded) policy.Allowance // nil: there are no caps
	link      string                                // the interface of HS-paths, "" leaves it to the routes
	mark      int                                   // the firewall mark of connections, for the routes
	routes    device.Routes
}

// check returns the error that a link, or this device for a primary, may carry nothing
// more, nil if it may.
func (c *capChecker) check(of device.Bounded) error {
	if c.allowance == nil {
		return nil
	}
	if a := c.allowance(of); a.Level == policy.CapReached {
		return capError{of, a}
	}
	return nil
}

// checkServer returns the error that nothing more may be carried for a primary, or over
// the link to a server, nil if it may.
func (c *capChecker) checkServer(ctx context.Context, primary identity.Peer, server string) error {
	if c.allowance == nil {
		return nil
	}
	if err := c.check(forPrimary(primary)); err != nil {
		return err
	}
	link := c.link
	if link == "" {
		link = c.routes.To(ctx, server, c.mark)
	}
	return c.check(device.Bounded{Link: link})
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
	err := h.caps.check(forPrimary(primary))
	if err == nil && server != "" {
		err = h.caps.checkServer(ctx, primary, server)
	}
	return fault.New(fault.Limit, err, "see the caps in policy.toml there")
}

// Spent ends all subflows of which a cap is used up. Their primaries are told.
func (h *Helper) Spent(of device.Bounded, a policy.Allowance) {
	h.relays.closeWhere(func(s *subflow) error {
		switch primary := forPrimary(s.primary); {
		case !of.Counts(policy.ForPath, s.link, primary.Peer):
			return nil
		case of.Peer == "":
			return capError{device.Bounded{Link: s.link}, a}
		}
		return capError{of, a}
	})
}

// countFor has what a connection carries counted as a primary's.
func countFor(c pipe.Conn, p identity.Peer) {
	if c, ok := c.(interface{ For(peer string) }); ok {
		c.For(p.Key.ID().String())
	}
}
