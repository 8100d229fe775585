// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"sync"
	"time"
)

// signal wakes one waiting goroutine. It is a channel with a buffer of one.
type signal chan struct{}

// raiseSignal wakes the waiting goroutine, or lets its next wait return at once.
func (s signal) raiseSignal() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// waiters are goroutines that wait for a condition or a deadline. As for sync.Cond, L must be held
// for all methods.
type waiters struct {
	sync.Cond
	deadline time.Time // zero: none
	timer    *time.Timer
}

// deadlinePassed reports whether the deadline has passed.
func (w *waiters) deadlinePassed() bool {
	return !w.deadline.IsZero() && !time.Now().Before(w.deadline)
}

// setWaitDeadline sets the deadline, zero for none, and wakes all waiters.
func (w *waiters) setWaitDeadline(t time.Time) {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.deadline = t
	w.Broadcast()
	if !t.IsZero() {
		w.timer = time.AfterFunc(time.Until(t), func() {
			w.L.Lock()
			defer w.L.Unlock()
			w.Broadcast()
		})
	}
}

// writeCork gathers writes while it is corked. It is not safe for concurrent use.
type writeCork struct {
	corked bool
	held   []byte
}

// holdWriteBack reports whether writes are held back, and if so keeps a copy of p.
func (c *writeCork) holdWriteBack(p []byte) bool {
	if c.corked {
		c.held = append(c.held, p...)
	}
	return c.corked
}

// takeHeldWrites stops holding writes back and returns the gathered bytes, valid until the next
// holdWriteBack.
func (c *writeCork) takeHeldWrites() []byte {
	b := c.held
	c.corked, c.held = false, b[:0]
	return b
}
