package pipe

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlot: who waits for another connection, or one that works, goes on with it, or with
// why there will be none.
func TestSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &carried{}, &carried{}
		s := slot{at: first}
		s.cond.L = &s.mu
		set := func(f func()) {
			s.mu.Lock()
			defer s.mu.Unlock()
			f()
			s.cond.Broadcast()
		}
		type result struct {
			c   *carried
			err error
		}
		got := make(chan result, 1)
		await := func(f func() (*carried, error)) {
			go func() { c, err := f(); got <- result{c, err} }()
			synctest.Wait()
		}
		check := func(what string, c *carried, err error) {
			t.Helper()
			synctest.Wait()
			select {
			case r := <-got:
				if r.c != c || r.err != err {
					t.Errorf("%s: another connection, or %v", what, r.err)
				}
			default:
				t.Errorf("%s: it waits", what)
			}
		}
		await(s.awaitUsable)
		check("one that works", first, nil)
		set(func() { first.broken = errors.New("broken") })
		if s.usable() != nil || s.current() != first || s.failure() != nil {
			t.Error("a broken one is used, or the end")
		}
		await(s.awaitUsable)
		set(func() { s.at = second })
		check("after a broken one", second, nil)
		await(func() (*carried, error) { return s.awaitOther(first) })
		check("another one", second, nil)
		await(func() (*carried, error) { return s.awaitOther(second) })
		time.Sleep(time.Hour)
		set(func() { s.err = io.ErrClosedPipe })
		check("at the end", second, io.ErrClosedPipe)
		if s.usable() != nil || s.failure() != io.ErrClosedPipe {
			t.Error("it is used after the end")
		}
	})
}

// TestSkipReceived: what came over the connection before is skipped, however it is cut.
func TestSkipReceived(t *testing.T) {
	c := carried{skip: 5}
	for _, x := range []struct{ in, want string }{{"abc", ""}, {"de", ""}, {"fg", "fg"}} {
		if got := string(c.skipReceived([]byte(x.in))); got != x.want {
			t.Errorf("%q of %q", got, x.want)
		}
	}
	c.skip = 2
	if got := string(c.skipReceived([]byte("hijk"))); got != "jk" || c.skip != 0 {
		t.Errorf("%q", got)
	}
}
