// SPDX-License-Identifier: Apache-2.0

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

// capError is the error that the cap of a link, or of a primary, is used up.
type capError struct {
	bounded   device.CapTarget
	allowance policy.Allowance
}

// Error returns a text for the primary.
func (e capError) Error() string {
	if e.bounded.Peer != "" {
		return fmt.Sprintf("for this device %v", e.allowance)
	}
	return fmt.Sprintf("%s of the helper: %v", e.bounded.Link, e.allowance)
}

// primaryBound returns the target of caps that are set for a primary by name.
func primaryBound(p identity.Peer) device.CapTarget {
	return device.CapTarget{Peer: p.Key.ID().String(), Purpose: policy.ForHSPath}
}

// capChecker checks the owner's caps before a subflow is opened. It caches routes and sends
// nothing. Safe for concurrent use.
type capChecker struct {
	allowance func(device.CapTarget) policy.Allowance // nil: no caps
	link      string                                  // the interface of HS-paths; "": the routes decide
	mark      int                                     // the firewall mark of connections, for the routes
	routes    device.Routes
}

// checkTargetCap returns an error if the cap of a link or primary is used up.
func (c *capChecker) checkTargetCap(of device.CapTarget) error {
	if c.allowance == nil {
		return nil
	}
	if a := c.allowance(of); a.Level == policy.CapReached {
		return capError{of, a}
	}
	return nil
}

// checkServerCap returns an error if the cap of a primary, or of the link to a server, is used up.
func (c *capChecker) checkServerCap(ctx context.Context, primary identity.Peer, server string) error {
	if c.allowance == nil {
		return nil
	}
	if err := c.checkTargetCap(primaryBound(primary)); err != nil {
		return err
	}
	link := c.link
	if link == "" {
		link = c.routes.LinkTo(ctx, server, c.mark)
	}
	return c.checkTargetCap(device.CapTarget{Link: link})
}

// refusalFor returns nil if traffic for a primary may be carried now, whatever its caps, else the
// reason.
func (h *Helper) refusalFor(primary identity.Peer) error {
	if h.trust.Paused(primary.Key) {
		return fault.New(fault.Limit, errPaused, "on the helper run `mpbond resume NAME`")
	}
	if why := h.Facts().RefusalReason; why != "" {
		return fault.New(
			fault.Limit,
			fmt.Errorf("suspended: %s", why),
			"see battery_floor and max_temperature in helper.toml and policy.toml there",
		)
	}
	return nil
}

// CheckAllowed returns nil if traffic for the primary may be carried now, else a fault with the
// reason. If server is not empty, it also checks the cap of the link to it. It is for traffic
// outside subflows.
func (h *Helper) CheckAllowed(ctx context.Context, primary identity.Peer, server string) error {
	if err := h.refusalFor(primary); err != nil {
		return err
	}
	err := h.caps.checkTargetCap(primaryBound(primary))
	if err == nil && server != "" {
		err = h.caps.checkServerCap(ctx, primary, server)
	}
	return fault.New(fault.Limit, err, "see the caps in policy.toml there")
}

// CapReached ends the subflows whose traffic counts toward the cap of target of, which is used up,
// and sends the reason to their primaries. a is the allowance of the target.
func (h *Helper) CapReached(of device.CapTarget, a policy.Allowance) {
	h.relays.closeWhere(func(s *subflow) error {
		switch primary := primaryBound(s.primary); {
		case !of.CountsTraffic(policy.ForHSPath, s.link, primary.Peer):
			return nil
		case of.Peer == "":
			return capError{device.CapTarget{Link: s.link}, a}
		}
		return capError{of, a}
	})
}

// countForPrimary counts the bytes of a connection for a primary.
func countForPrimary(c pipe.Conn, p identity.Peer) {
	if c, ok := c.(interface{ SetPeerName(peer string) }); ok {
		c.SetPeerName(p.Key.ID().String())
	}
}
