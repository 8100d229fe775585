// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// testTask notes when a ticker ticks.
type testTask struct {
	*Ticker
	began time.Time
	quit  chan bool

	mu    sync.Mutex
	ticks []time.Duration // since began, and since the last call of passed
	dues  []time.Duration // all
}

func runTask(c *Clock, interval time.Duration) *testTask {
	t := &testTask{Ticker: c.NewTicker(interval), began: time.Now(), quit: make(chan bool)}
	go func() {
		for {
			select {
			case due := <-t.C:
				t.mu.Lock()
				t.ticks = append(t.ticks, time.Since(t.began))
				t.dues = append(t.dues, due.Sub(t.began))
				t.mu.Unlock()
			case <-t.quit:
				t.Stop()
				close(t.quit)
				return
			}
		}
	}()
	return t
}

func (t *testTask) end() { t.quit <- true; <-t.quit }

// passed lets time pass and returns the ticks within it.
func (t *testTask) passed(d time.Duration) []time.Duration {
	time.Sleep(d)
	synctest.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	ticks := t.ticks
	t.ticks = nil
	return ticks
}

func seconds(list ...float64) (all []time.Duration) {
	for _, s := range list {
		all = append(all, time.Duration(s*float64(time.Second)))
	}
	return all
}

func requireTicks(t *testing.T, got []time.Duration, want ...float64) {
	t.Helper()
	if !slices.Equal(got, seconds(want...)) {
		t.Fatalf("ticks %v, want %v", got, seconds(want...))
	}
}

func TestBusyClockTicksAtEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		fast, slow := runTask(c, time.Second), runTask(c, 2500*time.Millisecond)
		defer fast.end()
		defer slow.end()
		c.AllowIdle(true)
		var ticks []time.Duration
		for range 6 {
			c.Wake()
			ticks = append(ticks, fast.passed(time.Second)...)
		}
		requireTicks(t, ticks, 1, 2, 3, 4, 5, 6)
		requireTicks(t, slow.passed(0), 2.5, 5)
	})
}

func TestIdleTicksAreRareAndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		c.AllowIdle(true)
		one := runTask(c, time.Second)
		defer one.end()
		time.Sleep(500 * time.Millisecond)
		other, rare := runTask(c, 700*time.Millisecond), runTask(c, 30*time.Second)
		defer other.end()
		defer rare.end()
		one.passed(idleAfter + time.Second)
		other.passed(0)
		time.Sleep(60*time.Second - time.Since(one.began))
		requireTicks(t, one.passed(0), 10, 20, 30, 40, 50, 60)
		requireTicks(t, other.passed(0), 9.5, 19.5, 29.5, 39.5, 49.5, 59.5)
		requireTicks(t, rare.passed(0), 29.5, 59.5)
	})
}

func TestWakeEndsIdlenessAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		c.AllowIdle(true)
		task, rare := runTask(c, time.Second), runTask(c, 15*time.Second)
		defer task.end()
		defer rare.end()
		task.passed(12500 * time.Millisecond)
		c.Wake()
		requireTicks(t, task.passed(0), 12.5)
		requireTicks(t, rare.passed(0)) // idleness has not made it slower
		c.Wake()                        // while awake, it makes no tick
		requireTicks(t, task.passed(2500*time.Millisecond), 13, 14, 15)
		c.Wake() // and keeps the clock awake
		requireTicks(t, task.passed(10*time.Second), 16, 17, 18, 19, 20)
		requireTicks(t, task.passed(20*time.Second), 30, 40)
		requireTicks(t, rare.passed(0), 15, 30, 45)
	})
}

func TestTickNowTicksAtOnceIdleOrNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		c.AllowIdle(true)
		task, rare := runTask(c, time.Second), runTask(c, time.Minute)
		defer task.end()
		defer rare.end()
		task.passed(12500 * time.Millisecond)
		c.TickNow()
		requireTicks(t, task.passed(10*time.Second), 12.5, 13, 14, 15, 16, 20)
		requireTicks(t, rare.passed(0), 12.5)
		c.Wake()
		task.passed(200 * time.Millisecond)
		c.TickNow()
		requireTicks(t, task.passed(0), 22.7)
		requireTicks(t, rare.passed(0), 22.7)
	})
}

func TestClockIdlesOnlyWhileAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		never, task := runTask(nil, time.Second), runTask(c, time.Second)
		defer never.end()
		defer task.end()
		if n := len(task.passed(100 * time.Second)); n != 100 {
			t.Fatalf("%d ticks before AllowIdle, want 100", n)
		}
		c.AllowIdle(true)
		requireTicks(t, task.passed(20500*time.Millisecond), 101, 102, 103, 110, 120)
		c.AllowIdle(false)
		requireTicks(t, task.passed(2500*time.Millisecond), 120.5, 121, 122, 123)
		if never.passed(0); len(never.dues) != 123 {
			t.Errorf("%d ticks of a nil clock, want 123", len(never.dues))
		}
		(*Clock)(nil).Wake()
		(*Clock)(nil).TickNow()
		(*Clock)(nil).AllowIdle(true)
	})
}

func TestResetChangesTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		task := runTask(c, time.Second)
		requireTicks(t, task.passed(2*time.Second), 1, 2)
		task.Reset(250 * time.Millisecond)
		requireTicks(t, task.passed(500*time.Millisecond), 2.25, 2.5)
		task.Reset(time.Second)
		requireTicks(t, task.passed(1500*time.Millisecond), 3, 4)
		task.end()
		task.Reset(time.Millisecond)
		if got := task.passed(time.Minute); len(got) > 0 {
			t.Errorf("ticks %v of a stopped ticker", got)
		}
	})
}

func TestLateTickSaysWhenItWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		task := runTask(c, time.Second)
		defer task.end()
		task.passed(1500 * time.Millisecond)
		c.mu.Lock() // as if the process were suspended: its timer fires late
		for ticker := range c.tickers {
			ticker.next = ticker.next.Add(-8 * time.Second)
		}
		c.mu.Unlock()
		task.passed(500 * time.Millisecond)
		if want := seconds(1, -6); !slices.Equal(task.dues, want) {
			t.Errorf("due %v, want %v", task.dues, want)
		}
	})
}
