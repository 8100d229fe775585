// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// TestSpentLink: the last check is for the link of the connection, whatever the routes predicted.
func TestSpentLink(t *testing.T) {
	spent := policy.Caps{Daily: 20e6}.Evaluate(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
	w := newTestWorld(t, overTCP, "127.0.0.1:0", Config{Allowed: func(of device.CapTarget) policy.Allowance {
		if of.Link == "" { // a server on this device has no predicted link
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
	_, err := w.acceptWaiting().Join(t.Context(), w.server, pipe.DefaultResumeTimeout)
	if !fault.Is(err, fault.Limit) || !strings.Contains(err.Error(), "the daily cap of 20 MB is used up") {
		t.Errorf("a subflow: %v", err)
	}
	w.sl.Close()
	if err := <-came; err == nil {
		t.Error("something was sent over it")
	}
	w.stop()
}

// TestSpent: subflows over a link, or for a primary, with a used-up cap end at once, and their
// primaries get the reason. New ones are refused before anything is sent, until the cap allows
// traffic again. Other caps have no effect.
func TestSpent(t *testing.T) {
	laptop := device.CapTarget{Peer: keys().primary.Public().ID().String(), Purpose: policy.ForHSPath}
	somebody := device.CapTarget{Peer: keys().server.Public().ID().String(), Purpose: policy.ForHSPath}
	itsPipe := device.CapTarget{Peer: laptop.Peer, Purpose: policy.ForPipe}
	for _, c := range []struct {
		of     device.CapTarget
		others []device.CapTarget
		text   string
	}{
		{device.CapTarget{Link: "wwan0"}, []device.CapTarget{{Link: "wlan0"}, somebody}, "wwan0 of the helper: "},
		{laptop, []device.CapTarget{somebody, itsPipe}, "for this device "},
	} {
		checkCapReached(t, c.of, c.others, c.text+"the daily cap of 20 MB is used up, until 2026-11-22 00:00")
	}
}

// cappedDialer fails to dial while it is on.
type cappedDialer struct {
	pipe.Carrier
	on atomic.Bool
}

func (b *cappedDialer) Dial(ctx context.Context, addr string) (pipe.Conn, error) {
	if b.on.Load() {
		return nil, errors.New("nothing may be dialled")
	}
	return b.Carrier.Dial(ctx, addr)
}

func checkCapReached(t *testing.T, of device.CapTarget, others []device.CapTarget, text string) {
	synctest.Test(t, func(t *testing.T) {
		spent := policy.Caps{Daily: 20e6}.Evaluate(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
		var now atomic.Pointer[policy.Allowance]
		now.Store(&policy.Allowance{})
		var carriers []*cappedDialer // of pipes, and of servers
		w := newTestWorld(t, func() pipe.Carrier {
			carriers = append(carriers, &cappedDialer{Carrier: inMemory()})
			return carriers[len(carriers)-1]
		}, "x:1", Config{HSInterface: "wwan0", Allowed: func(asked device.CapTarget) policy.Allowance {
			if asked != of {
				return policy.Allowance{}
			}
			return *now.Load()
		}})
		p, s, _ := w.joinSubflow()
		ended := make(chan error, 2)
		for _, l := range []pipe.Hop{p, s} {
			go func() {
				_, err := io.ReadAll(l)
				ended <- err
			}()
		}
		for _, other := range others {
			w.h.CapReached(other, spent)
			time.Sleep(time.Minute)
			if n := len(w.h.Status().Subflows); n != 1 || len(ended) > 0 {
				t.Fatalf("the cap of %+v: %d subflows", other, n)
			}
		}
		now.Store(&spent)
		w.h.CapReached(of, spent)
		var f wire.Refuse
		for range 2 {
			if err := <-ended; errors.As(err, &f) && (f.Code != wire.CodeLimit || f.Text != text) {
				t.Errorf("got %v", f)
			}
		}
		if f.Text == "" {
			t.Error("the primary gets no reason")
		}
		synctest.Wait()
		if n := len(w.h.Status().Subflows); n != 0 {
			t.Errorf("%d subflows are left", n)
		}
		carriers[1].on.Store(true)
		_, err := w.acceptWaiting().Join(t.Context(), w.server, pipe.DefaultResumeTimeout)
		if !fault.Is(err, fault.Limit) || !strings.Contains(err.Error(), text) {
			t.Errorf("a new one: %v", err)
		}
		carriers[1].on.Store(false)
		now.Store(&policy.Allowance{})
		w.joinSubflow()
		w.stop()
	})
}

// TestCapChecker: a server is refused if the cap of the primary, or of the link to the server, is
// reached, and by no other cap.
func TestCapChecker(t *testing.T) {
	primary := identity.Peer{Name: "laptop", Key: keys().primary.Public()}
	of := primaryBound(primary)
	for name, c := range map[string]struct {
		reached device.CapTarget
		link    string
		refused bool
	}{
		"none":                {device.CapTarget{Link: "x"}, "wwan0", false},
		"the link's":          {device.CapTarget{Link: "wwan0"}, "wwan0", true},
		"the primary's":       {of, "wwan0", true},
		"for its pipes":       {device.CapTarget{Peer: of.Peer, Purpose: policy.ForPipe}, "wwan0", false},
		"loopback's by route": {device.CapTarget{Link: "lo"}, "", false}, // not a network link
	} {
		checker := &capChecker{link: c.link, allowance: func(asked device.CapTarget) policy.Allowance {
			if asked == c.reached {
				return policy.Allowance{Level: policy.CapReached}
			}
			return policy.Allowance{}
		}}
		err := checker.checkServerCap(t.Context(), primary, "127.0.0.1:7600")
		if (err != nil) != c.refused || err != nil && !errors.As(err, new(capError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := new(capChecker).checkServerCap(t.Context(), primary, "127.0.0.1:7600"); err != nil {
		t.Errorf("without caps: %v", err)
	}
}
