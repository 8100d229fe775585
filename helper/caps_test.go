package helper

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/fault"
	"mpbond/pipe"
	"mpbond/policy"
	"mpbond/wire"
)

// TestSpentLink: what is asked about in the end is the link that the connection
// has, whatever the routes told before.
func TestSpentLink(t *testing.T) {
	spent := policy.Caps{Daily: 20e6}.Judge(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
	w := newWorld(t, overTCP, "127.0.0.1:0", Config{Allowed: func(link string) policy.Allowance {
		if link == "" { // of a server on this device no link is told before
			return policy.Allowance{}
		}
		return spent
	}})
	came := make(chan error, 1)
	go func() {
		c, err := w.sl.Accept()
		if err == nil {
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		came <- err
	}()
	_, err := w.waiting().Join(t.Context(), w.server, pipe.DefaultWindow)
	if !fault.Is(err, fault.Limit) || !strings.Contains(err.Error(), "the daily cap of 20 MB is used up") {
		t.Errorf("a subflow: %v", err)
	}
	w.sl.Close()
	if err := <-came; err == nil {
		t.Error("something was sent over it")
	}
	w.stop()
}

// TestSpent: subflows over a link whose cap is used up end at once, primaries are
// told why, and new ones are refused before anything is sent, until it may be used
// again.
func TestSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spent := policy.Caps{Daily: 20e6}.Judge(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
		var now atomic.Pointer[policy.Allowance]
		now.Store(&policy.Allowance{})
		w := newWorld(t, inMemory, "x:1", Config{HSInterface: "wwan0", Allowed: func(link string) policy.Allowance {
			if link != "wwan0" {
				t.Errorf("asked about %q", link)
			}
			return *now.Load()
		}})
		p, s, _ := w.subflow()
		ended := make(chan error, 2)
		for _, l := range []*pipe.Link{p, s} {
			go func() {
				_, err := io.ReadAll(l)
				ended <- err
			}()
		}
		w.h.Spent("wlan0", spent)
		time.Sleep(time.Minute)
		if n := len(w.h.Status().Subflows); n != 1 || len(ended) > 0 {
			t.Fatalf("another link's cap: %d subflows", n)
		}
		now.Store(&spent)
		w.h.Spent("wwan0", spent)
		var f wire.Refuse
		for range 2 {
			if err := <-ended; errors.As(err, &f) && (f.Code != wire.CodeLimit || f.Text != "wwan0 of the helper: the daily cap of 20 MB is used up, until 2026-11-22 00:00") {
				t.Errorf("told %v", f)
			}
		}
		if f.Text == "" {
			t.Error("the primary is not told")
		}
		synctest.Wait()
		if n := len(w.h.Status().Subflows); n != 0 {
			t.Errorf("%d subflows are left", n)
		}
		w.h.servers = nil // nothing may be dialled
		_, err := w.waiting().Join(t.Context(), w.server, pipe.DefaultWindow)
		if !fault.Is(err, fault.Limit) || !strings.Contains(err.Error(), "the daily cap of 20 MB is used up") {
			t.Errorf("a new one: %v", err)
		}
		w.h.servers = w.servers
		now.Store(&policy.Allowance{})
		w.subflow()
		w.stop()
	})
}
