// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"mpbond/link/tcp"
)

// resolvedTTL is how long Routes keeps a resolved name.
const resolvedTTL = time.Hour

// Routes finds the link over which an address is reached. It caches resolved names, so that
// frequent checks of a link send nothing over it. The zero value is ready to use. Safe for
// concurrent use.
type Routes struct {
	mu    sync.Mutex
	cache map[string]resolved // by address with a name
}

// resolved is the cached address of a name.
type resolved struct {
	addr  string
	until time.Time
}

// LinkTo returns the interface of the route to an address, "host:port", with a firewall mark, 0 for
// none. It returns "" if that is unknown or this device itself. It sends nothing except to resolve
// a name.
func (r *Routes) LinkTo(ctx context.Context, addr string, mark int) string {
	link, _ := r.LinkVia(ctx, addr, mark)
	return link
}

// LinkVia is LinkTo, and reports whether a route exists. An empty link then means this device
// itself or an unknown interface.
func (r *Routes) LinkVia(ctx context.Context, addr string, mark int) (link string, ok bool) {
	d := net.Dialer{}
	if mark != 0 {
		d.Control = func(_, _ string, raw syscall.RawConn) error { return tcp.SetMark(raw, mark) }
	}
	c, err := d.DialContext(ctx, "udp", r.resolvedAddr(addr))
	if err != nil {
		r.rememberAddr(addr, resolved{})
		return "", false
	}
	defer c.Close()
	if r.resolvedAddr(addr) == addr {
		r.rememberAddr(addr, resolved{c.RemoteAddr().String(), time.Now().Add(resolvedTTL)})
	}
	return NetworkOf(c.LocalAddr()), true
}

// resolvedAddr returns addr with the address that its name was resolved to lately, or addr itself
// if none is cached.
func (r *Routes) resolvedAddr(addr string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.cache[addr]; time.Now().Before(known.until) {
		return known.addr
	}
	return addr
}

func (r *Routes) rememberAddr(addr string, to resolved) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cache == nil || len(r.cache) >= maxResolved {
		r.cache = map[string]resolved{}
	}
	r.cache[addr] = to
}

// maxResolved bounds the cache.
const maxResolved = 256
