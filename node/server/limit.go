// SPDX-License-Identifier: Apache-2.0

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

// deviceRate limits the rate of a device in each direction, over all its bonds. nil is no limit.
type deviceRate struct{ up, down *rate.Limiter }

// account is what a device uses over all its bonds.
type account struct {
	rate   *deviceRate
	memory *endpoint.Share

	mu    sync.Mutex // guards slots and slotsReleased of its sessions too
	slots slotCounts // of all bonds with slots that are not released
}

// slotCounts counts used slots by kind.
type slotCounts [slotKinds]int

// slotKind is what a slot is for.
type slotKind int

const (
	streamSlots slotKind = iota
	flowSlots
	slotKinds
)

// takeSlot takes a slot of a kind, unless the device has limit slots already. giveSlot returns it.
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

// releaseSlots stops counting all slots of a bond that is being ended.
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

// countSlots returns the slots of a kind that the bond and its device have.
func (b *session) countSlots(k slotKind) (own, all int) {
	b.account.mu.Lock()
	defer b.account.mu.Unlock()
	return b.slots[k], b.account.slots[k]
}

// accountTable holds an account for each device: rate, share of the memory and the rate of new
// subflows. Accounts are never removed. Safe for concurrent use.
type accountTable struct {
	memory *endpoint.Memory
	rate   unit.Rate // of one device in each direction; 0: no limit

	mu       sync.Mutex
	byDevice map[identity.PublicKey]*account
	joins    tcp.RateLimiter[identity.PublicKey] // of subflows
}

func newAccountTable(memory *endpoint.Memory, rate unit.Rate) *accountTable {
	return &accountTable{
		memory:   memory,
		rate:     rate,
		byDevice: map[identity.PublicKey]*account{},
		joins:    tcp.RateLimiter[identity.PublicKey]{PerMinute: maxPerMinute},
	}
}

// accountOfDevice returns the account of a device.
func (t *accountTable) accountOfDevice(device identity.PublicKey) *account {
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

// admitJoin counts a new subflow of a device and reports whether it is within the limit.
func (t *accountTable) admitJoin(device identity.PublicKey, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.joins.Allow(device, now)
}

// limitConnRate applies the rate limit to a connection to a destination. Streams wait for their
// turn, which applies back-pressure to both sides.
func (v *deviceRate) limitConnRate(ctx context.Context, c net.Conn) net.Conn {
	if v == nil {
		return c
	}
	return &limitedConn{c, ctx, v}
}

// exceedsUp and exceedsDown report whether a datagram of n bytes exceeds the rate: it must not
// wait.
func (v *deviceRate) exceedsUp(n int) bool   { return v != nil && !v.up.AllowN(time.Now(), n) }
func (v *deviceRate) exceedsDown(n int) bool { return v != nil && !v.down.AllowN(time.Now(), n) }

// limitedConn is a connection to a destination at a device's rate. It has only the methods that
// package splice needs: others of *net.TCPConn would bypass the limit.
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

// minRate is the lowest useful limit.
const minRate = 64 * unit.Kbps
