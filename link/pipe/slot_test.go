// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlot checks that goroutines that wait for another or a working connection get it, or the
// reason why none will come.
func TestSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &linkConn{}, &linkConn{}
		s := slot{conn: first}
		s.cond.L = &s.mu
		set := func(f func()) {
			s.mu.Lock()
			defer s.mu.Unlock()
			f()
			s.cond.Broadcast()
		}
		type result struct {
			c   *linkConn
			err error
		}
		got := make(chan result, 1)
		await := func(f func() (*linkConn, error)) {
			go func() { c, err := f(); got <- result{c, err} }()
			synctest.Wait()
		}
		check := func(what string, c *linkConn, err error) {
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
		await(s.awaitUsableConn)
		check("one that works", first, nil)
		set(func() { first.breakErr = errors.New("broken") })
		if s.usableConn() != nil || s.currentConn() != first || s.linkEndError() != nil {
			t.Error("a broken one is used, or the end")
		}
		await(s.awaitUsableConn)
		set(func() { s.conn = second })
		check("after a broken one", second, nil)
		await(func() (*linkConn, error) { return s.awaitOtherConn(first) })
		check("another one", second, nil)
		await(func() (*linkConn, error) { return s.awaitOtherConn(second) })
		time.Sleep(time.Hour)
		set(func() { s.endErr = io.ErrClosedPipe })
		check("at the end", second, io.ErrClosedPipe)
		if s.usableConn() != nil || s.linkEndError() != io.ErrClosedPipe {
			t.Error("it is used after the end")
		}
	})
}

// TestSkipReceived checks that bytes received over the previous connection are skipped, however
// they are split.
func TestSkipReceived(t *testing.T) {
	c := linkConn{skipBytes: 5}
	for _, x := range []struct{ in, want string }{{"abc", ""}, {"de", ""}, {"fg", "fg"}} {
		if got := string(c.skipReceived([]byte(x.in))); got != x.want {
			t.Errorf("%q of %q", got, x.want)
		}
	}
	c.skipBytes = 2
	if got := string(c.skipReceived([]byte("hijk"))); got != "jk" || c.skipBytes != 0 {
		t.Errorf("%q", got)
	}
}
