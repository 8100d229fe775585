package helper

import (
	"context"
	"fmt"

	"mpbond/identity"
	"mpbond/pipe"
	"mpbond/policy"
	"mpbond/tcp"
)

// capError is that a link may carry nothing more.
type capError struct {
	link string
	a    policy.Allowance
}

func (e capError) Error() string { return fmt.Sprintf("%s of the helper: %v", e.link, e.a) }

// spent is the error that the link to a server may carry nothing more, if so.
// Nothing is sent to find out.
func (h *Helper) spent(ctx context.Context, server string) error {
	if h.cfg.Allowed == nil {
		return nil
	}
	link := h.cfg.HSInterface
	if link == "" {
		link = h.routes.To(ctx, server, h.cfg.Mark)
	}
	return h.spentOn(link)
}

// spentOn is the error that a link may carry nothing more, if so.
func (h *Helper) spentOn(link string) error {
	if h.cfg.Allowed == nil {
		return nil
	}
	if a := h.cfg.Allowed(link); a.Level == policy.CapReached {
		return capError{link, a}
	}
	return nil
}

// Spent ends all subflows over a link, "" for all links, since it may carry
// nothing more. Their primaries are told.
func (h *Helper) Spent(link string, a policy.Allowance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, f := range h.relays {
		if link == "" || f.link == link {
			r.close(capError{f.link, a})
		}
	}
}

// countFor has what a connection carries counted as a primary's.
func countFor(c pipe.Conn, p identity.Peer) {
	if c, ok := c.(*tcp.Conn); ok {
		c.For(p.Key.ID().String())
	}
}
