package primary

import (
	"cmp"
	"context"
	"fmt"
	"net"

	"mpbond/base/fault"
	"mpbond/control/device"
	"mpbond/control/policy"
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

// linkOf is the own interface that a connection goes by: the one that it is bound
// to, or else that has its local address; "" if that is not known.
func linkOf(bound string, local net.Addr) string { return cmp.Or(bound, device.InterfaceOf(local)) }

// spentOn is the error that an own link may carry nothing more, if so.
func (p *Primary) spentOn(link string) error {
	if p.cfg.Allowed == nil {
		return nil
	}
	if a := p.cfg.Allowed(device.Bounded{Link: link}); a.Level == policy.CapReached {
		return fault.New(fault.Limit, fmt.Errorf("%s: %v", link, a), "raise the cap in policy.toml, or wait; see `mpbond usage`")
	}
	return nil
}
