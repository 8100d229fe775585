package device

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"mpbond/link/tcp"
)

// resolvedTTL is how long Routes believes what a name meant.
const resolvedTTL = time.Hour

// Routes tells by which own link an address is reached. It remembers what names
// mean, so that who asks each few seconds whether a link may be used sends nothing
// over it meanwhile. The zero value is ready. Safe for concurrent use.
type Routes struct {
	mu    sync.Mutex
	cache map[string]resolved // by address with a name
}

type resolved struct {
	addr  string
	until time.Time
}

// LinkTo is the interface by which the routes lead to an address, "host:port", with a
// firewall mark, 0 for none; "" if that cannot be known, or is this device
// itself. Nothing is sent, but to resolve a name.
func (r *Routes) LinkTo(ctx context.Context, addr string, mark int) string {
	link, _ := r.LinkVia(ctx, addr, mark)
	return link
}

// LinkVia is To, and reports whether there is a way at all: then an empty link is this
// device itself, or an interface that is not known.
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

// resolvedAddr is what an address meant lately, else itself.
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

// maxResolved bounds what is remembered: more servers than anybody has.
const maxResolved = 256
