// SPDX-License-Identifier: Apache-2.0

// Package pace makes the periodic work of a program rare while the program is idle. Each wake-up of
// an idle processor costs energy, so all tickers of a Clock tick together, and seldom as long as
// nothing moves. It has no part in the data path, which only reports that bytes move.
package pace

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// IdleInterval is the least interval of ticks while a program is idle, and so how late it may
	// notice what neither moves bytes nor is reported by the system.
	IdleInterval = 10 * time.Second
	// idleAfter is how long nothing must have moved until a program is idle: what follows traffic,
	// such as the last acknowledgement or a decision after some seconds, is handled at the usual pace.
	idleAfter = 3 * time.Second
)

// Clock paces the tickers of one program. While bytes move, each ticks at its own interval. A few
// seconds after the last call of Wake the program is idle: then each ticks every IdleInterval, or at
// its own interval if that is longer. All ticks are at multiples of their interval since the clock
// was made, so that those of several tickers need one wake-up of the processor.
//
// A Clock never idles before AllowIdle. Safe for concurrent use. A nil Clock never idles.
type Clock struct {
	moved atomic.Bool // Wake was called since the last tick; set with mu held

	mu        sync.Mutex // guards the fields below
	start     time.Time
	tickers   map[*Ticker]bool
	timer     *time.Timer
	timerAt   time.Time // when timer fires; zero: it is stopped
	mayIdle   bool
	isIdle    bool
	lastMoved time.Time // as far as known at the last tick
}

// Ticker ticks for one task until Stop.
type Ticker struct {
	// C receives a value with each tick: the time at which it was due. It is much earlier than the
	// present if this process was suspended meanwhile. A tick is dropped if the last one still waits.
	C <-chan time.Time

	clock    *Clock
	c        chan time.Time
	interval time.Duration // clock.mu must be held
	next     time.Time     // clock.mu must be held
}

// New returns a clock that does not idle yet.
func New() *Clock {
	c := &Clock{start: time.Now(), tickers: map[*Ticker]bool{}}
	c.timer = time.AfterFunc(time.Hour, c.handleTimer)
	c.timer.Stop()
	return c
}

// NewTicker returns a ticker with an interval, which must be positive. The caller must stop it.
func (c *Clock) NewTicker(interval time.Duration) *Ticker {
	if c == nil {
		c = New()
	}
	ticks := make(chan time.Time, 1)
	t := &Ticker{C: ticks, clock: c, c: ticks, interval: interval}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickers[t] = true
	t.next = c.nextTick(t, time.Now())
	c.setTimer()
	return t
}

// Stop ends the ticks. It does not close C.
func (t *Ticker) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	delete(t.clock.tickers, t)
	t.clock.setTimer()
}

// Reset changes the interval, which must be positive, from the next tick on. It does nothing if the
// interval is the same. The first tick may come sooner than the interval, since it is at a multiple
// of it; a tick that waits in C stays there.
func (t *Ticker) Reset(interval time.Duration) {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.interval == interval || !c.tickers[t] {
		return
	}
	t.interval = interval
	t.next = c.nextTick(t, time.Now())
	c.setTimer()
}

// AllowIdle sets whether the clock may idle. It may while the system reports what tasks would
// otherwise have to look for: see TickNow.
func (c *Clock) AllowIdle(allowed bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mayIdle, c.lastMoved = allowed, time.Now()
	if !allowed && c.isIdle {
		c.endIdleness(time.Now())
	}
}

// Wake reports that bytes move, or that a task needs its usual pace for a few seconds. If the
// program was idle, the tickers that idleness made slower tick at once. Usually it costs one atomic
// load.
func (c *Clock) Wake() {
	if c == nil || c.moved.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved.Store(true)
	if c.isIdle {
		c.endIdleness(time.Now())
	}
}

// TickNow does what Wake does and makes all tickers tick at once, whatever their interval and also
// if the program is not idle: something has changed that tasks look for, such as an address of this
// device. Each call costs a run of every task, so the caller collects changes that come together.
func (c *Clock) TickNow() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved.Store(true)
	now := time.Now()
	c.isIdle, c.lastMoved = false, now
	for t := range c.tickers {
		c.tick(t, now)
	}
	c.setTimer()
}

// endIdleness returns to the usual pace and makes the tickers tick that idleness made slower. mu must
// be held.
func (c *Clock) endIdleness(now time.Time) {
	c.isIdle, c.lastMoved = false, now
	for t := range c.tickers {
		if t.interval < IdleInterval {
			c.tick(t, now)
		}
	}
	c.setTimer()
}

// tick makes one ticker tick. mu must be held.
func (c *Clock) tick(t *Ticker, now time.Time) {
	due := now
	if t.next.Before(now) {
		due = t.next
	}
	select {
	case t.c <- due:
	default: // the last tick still waits
	}
	t.next = c.nextTick(t, now)
}

// handleTimer makes the tickers tick that are due.
func (c *Clock) handleTimer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.timerAt = time.Time{}
	if c.moved.Swap(false) {
		c.lastMoved = now
	}
	if !c.isIdle && c.mayIdle && now.Sub(c.lastMoved) >= idleAfter {
		c.isIdle = true
		for t := range c.tickers {
			if now.Before(t.next) {
				t.next = c.nextTick(t, now)
			}
		}
	}
	for t := range c.tickers {
		if !now.Before(t.next) {
			c.tick(t, now)
		}
	}
	c.setTimer()
}

// nextTick returns the first time after now that is a multiple of the ticker's present interval. mu
// must be held.
func (c *Clock) nextTick(t *Ticker, now time.Time) time.Time {
	interval := t.interval
	if c.isIdle {
		interval = max(interval, IdleInterval)
	}
	return now.Add(interval - now.Sub(c.start)%interval)
}

// setTimer sets the timer to the next tick of any ticker. mu must be held.
func (c *Clock) setTimer() {
	var next time.Time
	for t := range c.tickers {
		if next.IsZero() || t.next.Before(next) {
			next = t.next
		}
	}
	switch {
	case next.Equal(c.timerAt):
	case next.IsZero():
		c.timer.Stop()
	default:
		c.timer.Reset(time.Until(next))
	}
	c.timerAt = next
}
