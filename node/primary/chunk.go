package primary

import (
	"fmt"
	"net/netip"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/node/endpoint"
)

// remember keeps a stream by the address of its app. Mu is held.
func (p *Primary) remember(app netip.AddrPort, c *endpoint.Conn) {
	if len(p.apps) > 2*p.cur.e.Streams()+16 {
		for a, old := range p.apps {
			if old.Done() {
				delete(p.apps, a)
			}
		}
	}
	p.apps[app] = c
}

// Chunk takes an app's word about what it waits for; see api.Chunk.
func (p *Primary) Chunk(c api.Chunk) error {
	addr, err := netip.ParseAddrPort(c.App)
	if err != nil {
		return fault.New(fault.Usage, fmt.Errorf("app %.60q: %w", c.App, err), "give the app's own end of its connection to mpbond, like 127.0.0.1:40000")
	}
	if c.Bytes <= 0 {
		return fault.New(fault.Usage, fmt.Errorf("a chunk of %d bytes", c.Bytes), "tell how many bytes are waited for, 1 or more")
	}
	p.mu.Lock()
	s := p.apps[netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())]
	p.mu.Unlock()
	if s == nil || s.Done() {
		return fault.New(fault.NotFound, fmt.Errorf("no connection of an app at %v is carried", addr), "it must have been made through the proxy or by `mpbond run`, and be open")
	}
	if c.Up {
		s.Mark(c.Bytes)
	} else {
		s.Await(c.Bytes)
	}
	return nil
}
