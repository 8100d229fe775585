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
	minBurst = 64 << 10
	maxPiece = 16 << 10
)

// deviceRate bounds what a device moves in each direction, over all its bonds. A
// nil speed is no bound.
type deviceRate struct{ up, down *rate.Limiter }

// account is what a device takes, over all its bonds.
type account struct {
	rate   *deviceRate
	memory *endpoint.Share

	mu    sync.Mutex // guards sessions' taken and over too
	slots slotCounts // of the bonds that have not ended for want of room
}

// slotCounts is how much is being served, by kind.
type slotCounts [slotKinds]int

// slotKind is of what there is a limit.
type slotKind int

const (
	streamSlots slotKind = iota
	flowSlots
	slotKinds
)

// takeSlot counts one more of a kind, which give gives back, unless the device has as
// many as that already.
func (b *session) takeSlot(k slotKind, limit int) bool {
	b.account.mu.Lock()
	defer b.account.mu.Unlock()
	if b.slotsReleased || b.account.slots[k] >= limit {
		return false
	}
	b.account.slots[k]++
	b.slots[k]++
	return true
}

func (b *session) giveSlot(k slotKind) {
	b.account.mu.Lock()
	defer b.account.mu.Unlock()
	b.slots[k]--
	if !b.slotsReleased {
		b.account.slots[k]--
	}
}

// releaseSlots has what the bond still serves count no more: it is being ended.
func (b *session) releaseSlots() {
	b.account.mu.Lock()
	defer b.account.mu.Unlock()
	if b.slotsReleased {
		return
	}
	b.slotsReleased = true
	for k, n := range b.slots {
		b.account.slots[k] -= n
	}
}

// countSlots is how many of a kind the bond, and its device in all, have.
func (b *session) countSlots(k slotKind) (own, all int) {
	b.account.mu.Lock()
	defer b.account.mu.Unlock()
	return b.slots[k], b.account.slots[k]
}

// accountTable holds what each device takes over all its bonds: its speed, its share of the
// memory, and how many subflows it begins. It owns the accounts, which stay until the end.
// Methods may be called by any goroutine.
type accountTable struct {
	memory *endpoint.Memory
	rate   unit.Rate // of one device in each direction; 0: no bound

	mu       sync.Mutex
	byDevice map[identity.PublicKey]*account
	joins    tcp.RateLimiter[identity.PublicKey] // of subflows
}

func newAccountTable(memory *endpoint.Memory, rate unit.Rate) *accountTable {
	return &accountTable{memory: memory, rate: rate, byDevice: map[identity.PublicKey]*account{}, joins: tcp.RateLimiter[identity.PublicKey]{PerMinute: maxPerMinute}}
}

// accountOf returns the account of a device.
func (t *accountTable) accountOf(device identity.PublicKey) *account {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.byDevice[device]
	if a == nil {
		a = &account{memory: t.memory.NewShare()}
		if t.rate > 0 {
			bytes := float64(t.rate) / 8
			burst := max(minBurst, int(bytes/20)) // 50 ms
			a.rate = &deviceRate{rate.NewLimiter(rate.Limit(bytes), burst), rate.NewLimiter(rate.Limit(bytes), burst)}
		}
		t.byDevice[device] = a
	}
	return a
}

// admitJoin counts a subflow that a device begins, and reports whether it may.
func (t *accountTable) admitJoin(device identity.PublicKey, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.joins.Allow(device, now)
}

// limitConn makes the bytes of a destination count. Streams wait for their turn,
// and so push back to the web server and to the device.
func (v *deviceRate) limitConn(ctx context.Context, c net.Conn) net.Conn {
	if v == nil {
		return c
	}
	return &limitedConn{c, ctx, v}
}

// drops tell whether a datagram of n bytes is too much now: it must not wait.
func (v *deviceRate) exceedsUp(n int) bool   { return v != nil && !v.up.AllowN(time.Now(), n) }
func (v *deviceRate) exceedsDown(n int) bool { return v != nil && !v.down.AllowN(time.Now(), n) }

// limitedConn is a destination at a device's speed. It has no more methods than
// package splice needs: those of a *net.TCPConn would lead around it.
type limitedConn struct {
	net.Conn
	ctx  context.Context
	rate *deviceRate
}

// Read implements net.Conn.
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), maxPiece)])
	if n > 0 {
		if e := c.rate.down.WaitN(c.ctx, n); e != nil {
			return 0, e
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *limitedConn) Write(p []byte) (total int, err error) {
	for len(p) > 0 && err == nil {
		part := p[:min(len(p), maxPiece)]
		if err = c.rate.up.WaitN(c.ctx, len(part)); err == nil {
			var n int
			n, err = c.Conn.Write(part)
			total += n
			p = p[n:]
		}
	}
	return total, err
}

// CloseWrite ends the direction to the destination.
func (c *limitedConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// SetLinger lets splice reset the connection.
func (c *limitedConn) SetLinger(sec int) error { return c.Conn.(*net.TCPConn).SetLinger(sec) }

// minRate is the lowest limit that makes sense.
const minRate = 64 * unit.Kbps
