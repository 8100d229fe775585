package primary

import (
	"cmp"
	"context"
	"fmt"

	"mpbond/device"
	"mpbond/fault"
	"mpbond/policy"
	"mpbond/tcp"
)

// spent is the error that an own link may carry nothing more, if so: that
// interface, or the one by which the routes lead to the server. Nothing is sent
// to find out.
func (p *Primary) spent(ctx context.Context, link, server string) error {
	if p.cfg.Allowed == nil {
		return nil
	}
	if link == "" {
		link = p.ways.To(ctx, server, p.cfg.mark())
	}
	return p.spentOn(link)
}

// linkOf is the own interface that a connection goes by, "" if that is not known.
func linkOf(c *tcp.Conn) string { return cmp.Or(c.Interface(), device.InterfaceOf(c.LocalAddr())) }

// spentOn is the error that an own link may carry nothing more, if so.
func (p *Primary) spentOn(link string) error {
	if p.cfg.Allowed == nil {
		return nil
	}
	if a := p.cfg.Allowed(link); a.Level == policy.CapReached {
		return fault.New(fault.Limit, fmt.Errorf("%s: %v", link, a), "raise the cap in policy.toml, or wait; see `mpbond usage`")
	}
	return nil
}
