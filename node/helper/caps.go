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
	bounded   device.CapTarget
	allowance policy.Allowance
}

// Error is for the primary.
func (e capError) Error() string {
	if e.bounded.Peer != "" {
		return fmt.Sprintf("for this device %v", e.allowance)
	}
	return fmt.Sprintf("%s of the helper: %v", e.bounded.Link, e.allowance)
}

// primaryBound is what caps by a primary's name bound.
func primaryBound(p identity.Peer) device.CapTarget {
	return device.CapTarget{Peer: p.Key.ID().String(), Purpose: policy.ForPath}
}

// capChecker checks the owner's caps before a subflow is made. It owns a cache of routes
// and sends nothing to find out; errors are capErrors. Methods may be called by any
// goroutine.
type capChecker struct {
	allowance func(device.CapTarget) policy.Allowance // nil: there are no caps
	link      string                                  // the interface of HS-paths, "" leaves it to the routes
	mark      int                                     // the firewall mark of connections, for the routes
	routes    device.Routes
}

// checkCap returns the error that a link, or this device for a primary, may carry nothing
// more, nil if it may.
func (c *capChecker) checkCap(of device.CapTarget) error {
	if c.allowance == nil {
		return nil
	}
	if a := c.allowance(of); a.Level == policy.CapReached {
		return capError{of, a}
	}
	return nil
}

// checkServerCap returns the error that nothing more may be carried for a primary, or over
// the link to a server, nil if it may.
func (c *capChecker) checkServerCap(ctx context.Context, primary identity.Peer, server string) error {
	if c.allowance == nil {
		return nil
	}
	if err := c.checkCap(primaryBound(primary)); err != nil {
		return err
	}
	link := c.link
	if link == "" {
		link = c.routes.LinkTo(ctx, server, c.mark)
	}
	return c.checkCap(device.CapTarget{Link: link})
}

// refusalFor is the error that nothing is carried for a primary now, whatever its caps, if so.
func (h *Helper) refusalFor(primary identity.Peer) error {
	if h.trust.Paused(primary.Key) {
		return fault.New(fault.Limit, errPaused, "on the helper run `mpbond resume NAME`")
	}
	if why := h.Facts().RefusalReason; why != "" {
		return fault.New(fault.Limit, fmt.Errorf("suspended: %s", why), "see battery_floor and max_temperature in helper.toml and policy.toml there")
	}
	return nil
}

// CheckAllowed is why nothing is carried for a primary now, nil if it may be; server, if not "",
// is the address to which. It is for those who carry something else than subflows.
// Errors are faults.
func (h *Helper) CheckAllowed(ctx context.Context, primary identity.Peer, server string) error {
	if err := h.refusalFor(primary); err != nil {
		return err
	}
	err := h.caps.checkCap(primaryBound(primary))
	if err == nil && server != "" {
		err = h.caps.checkServerCap(ctx, primary, server)
	}
	return fault.New(fault.Limit, err, "see the caps in policy.toml there")
}

// CapReached ends all subflows of which a cap is used up. Their primaries are told.
func (h *Helper) CapReached(of device.CapTarget, a policy.Allowance) {
	h.relays.closeWhere(func(s *subflow) error {
		switch primary := primaryBound(s.primary); {
		case !of.CountsTraffic(policy.ForPath, s.link, primary.Peer):
			return nil
		case of.Peer == "":
			return capError{device.CapTarget{Link: s.link}, a}
		}
		return capError{of, a}
	})
}

// countForPrimary has what a connection carries counted as a primary's.
func countForPrimary(c pipe.Conn, p identity.Peer) {
	if c, ok := c.(interface{ For(peer string) }); ok {
		c.For(p.Key.ID().String())
	}
}
