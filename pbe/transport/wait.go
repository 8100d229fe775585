package transport

import (
	"sync"
	"time"
)

// signal wakes one goroutine that waits for it: it is a channel of one place.
type signal chan struct{}

func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// waiters are goroutines that wait for a condition, until a deadline. All methods, as those
// of sync.Cond, are called with L held.
type waiters struct {
	sync.Cond
	deadline time.Time // zero: none
	timer    *time.Timer
}

// deadlinePassed reports whether the deadline is over.
func (w *waiters) deadlinePassed() bool {
	return !w.deadline.IsZero() && !time.Now().Before(w.deadline)
}

// setDeadline sets another deadline, zero for none, and wakes all.
func (w *waiters) setDeadline(t time.Time) {
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

// writeCork gathers writes while it is closed. It is for one goroutine.
type writeCork struct {
	corked bool
	held   []byte
}

// holdBack keeps p if the cork is closed.
func (c *writeCork) holdBack(p []byte) bool {
	if c.corked {
		c.held = append(c.held, p...)
	}
	return c.corked
}

// takeHeld opens the cork and returns what was held, valid until hold.
func (c *writeCork) takeHeld() []byte {
	b := c.held
	c.corked, c.held = false, b[:0]
	return b
}
