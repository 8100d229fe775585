package device

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"mpbond/link/tcp"
)

// resolvedFor is how long Routes believes what a name meant.
const resolvedFor = time.Hour

// Routes tells by which own link an address is reached. It remembers what names
// mean, so that who asks each few seconds whether a link may be used sends nothing
// over it meanwhile. The zero value is ready. Safe for concurrent use.
type Routes struct {
	mu    sync.Mutex
	known map[string]resolved // by address with a name
}

type resolved struct {
	addr  string
	until time.Time
}

// To is the interface by which the routes lead to an address, "host:port", with a
// firewall mark, 0 for none; "" if that cannot be known, or is this device
// itself. Nothing is sent, but to resolve a name.
func (r *Routes) To(ctx context.Context, addr string, mark int) string {
	link, _ := r.Via(ctx, addr, mark)
	return link
}

// Via is To, and reports whether there is a way at all: then an empty link is this
// device itself, or an interface that is not known.
func (r *Routes) Via(ctx context.Context, addr string, mark int) (link string, ok bool) {
	d := net.Dialer{}
	if mark != 0 {
		d.Control = func(_, _ string, raw syscall.RawConn) error { return tcp.SetMark(raw, mark) }
	}
	c, err := d.DialContext(ctx, "udp", r.meant(addr))
	if err != nil {
		r.note(addr, resolved{})
		return "", false
	}
	defer c.Close()
	if r.meant(addr) == addr {
		r.note(addr, resolved{c.RemoteAddr().String(), time.Now().Add(resolvedFor)})
	}
	return NetworkOf(c.LocalAddr()), true
}

// meant is what an address meant lately, else itself.
func (r *Routes) meant(addr string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.known[addr]; time.Now().Before(known.until) {
		return known.addr
	}
	return addr
}

func (r *Routes) note(addr string, to resolved) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxResolved {
		r.known = map[string]resolved{}
	}
	r.known[addr] = to
}

// maxResolved bounds what is remembered: more servers than anybody has.
const maxResolved = 256
