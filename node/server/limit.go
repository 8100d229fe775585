package server

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/link/tcp"
	"mpbond/node/endpoint"
)

// Tuning of the rate limit. Small pieces let streams take turns.
const (
	leastBurst = 64 << 10
	piece      = 16 << 10
)

// speed bounds what a device moves in each direction, over all its bonds. A
// nil speed is no bound.
type speed struct{ up, down *rate.Limiter }

// account is what a device takes, over all its bonds.
type account struct {
	speed  *speed
	memory *endpoint.Share

	mu    sync.Mutex // guards sessions' taken and over too
	taken load       // of the bonds that have not ended for want of room
}

// load is how much is being served, by kind.
type load [kinds]int

// kind is of what there is a limit.
type kind int

const (
	streams kind = iota
	flows
	kinds
)

// take counts one more of a kind, which give gives back, unless the device has as
// many as that already.
func (b *session) take(k kind, limit int) bool {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	if b.over || b.of.taken[k] >= limit {
		return false
	}
	b.of.taken[k]++
	b.taken[k]++
	return true
}

func (b *session) give(k kind) {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.taken[k]--
	if !b.over {
		b.of.taken[k]--
	}
}

// giveAll has what the bond still serves count no more: it is being ended.
func (b *session) giveAll() {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	if b.over {
		return
	}
	b.over = true
	for k, n := range b.taken {
		b.of.taken[k] -= n
	}
}

// taking is how many of a kind the bond, and its device in all, have.
func (b *session) taking(k kind) (own, all int) {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	return b.taken[k], b.of.taken[k]
}

// accountTable holds what each device takes over all its bonds: its speed, its share of the
// memory, and how many subflows it begins. It owns the accounts, which stay until the end.
// Methods may be called by any goroutine.
type accountTable struct {
	memory *endpoint.Memory
	rate   unit.Rate // of one device in each direction; 0: no bound

	mu    sync.Mutex
	all   map[identity.PublicKey]*account
	joins tcp.Tries[identity.PublicKey] // of subflows
}

func newAccountTable(memory *endpoint.Memory, rate unit.Rate) *accountTable {
	return &accountTable{memory: memory, rate: rate, all: map[identity.PublicKey]*account{}, joins: tcp.Tries[identity.PublicKey]{PerMinute: maxPerMinute}}
}

// of returns the account of a device.
func (t *accountTable) of(device identity.PublicKey) *account {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.all[device]
	if a == nil {
		a = &account{memory: t.memory.Share()}
		if t.rate > 0 {
			bytes := float64(t.rate) / 8
			burst := max(leastBurst, int(bytes/20)) // 50 ms
			a.speed = &speed{rate.NewLimiter(rate.Limit(bytes), burst), rate.NewLimiter(rate.Limit(bytes), burst)}
		}
		t.all[device] = a
	}
	return a
}

// takeJoin counts a subflow that a device begins, and reports whether it may.
func (t *accountTable) takeJoin(device identity.PublicKey, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.joins.Take(device, now)
}

// carry makes the bytes of a destination count. Streams wait for their turn,
// and so push back to the web server and to the device.
func (v *speed) carry(ctx context.Context, c net.Conn) net.Conn {
	if v == nil {
		return c
	}
	return &slowed{c, ctx, v}
}

// drops tell whether a datagram of n bytes is too much now: it must not wait.
func (v *speed) dropsUp(n int) bool   { return v != nil && !v.up.AllowN(time.Now(), n) }
func (v *speed) dropsDown(n int) bool { return v != nil && !v.down.AllowN(time.Now(), n) }

// slowed is a destination at a device's speed. It has no more methods than
// package splice needs: those of a *net.TCPConn would lead around it.
type slowed struct {
	net.Conn
	ctx context.Context
	v   *speed
}

// Read implements net.Conn.
func (c *slowed) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), piece)])
	if n > 0 {
		if e := c.v.down.WaitN(c.ctx, n); e != nil {
			return 0, e
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *slowed) Write(p []byte) (total int, err error) {
	for len(p) > 0 && err == nil {
		part := p[:min(len(p), piece)]
		if err = c.v.up.WaitN(c.ctx, len(part)); err == nil {
			var n int
			n, err = c.Conn.Write(part)
			total += n
			p = p[n:]
		}
	}
	return total, err
}

// CloseWrite ends the direction to the destination.
func (c *slowed) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// SetLinger lets splice reset the connection.
func (c *slowed) SetLinger(sec int) error { return c.Conn.(*net.TCPConn).SetLinger(sec) }

// leastRate is the lowest limit that makes sense.
const leastRate = 64 * unit.Kbps
