package primary

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/link/pipe"
)

// TestSpentLink: what is asked about in the end is the link that the connection
// has, whatever the routes told before; then nothing is sent over it.
func TestSpentLink(t *testing.T) {
	p := offline(t, time.Minute)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p.server.Addresses = []string{l.Addr().String()}
	spent := policy.Caps{Daily: 20e6}.Judge(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
	p.cfg.Allowed = func(of device.Bounded) policy.Allowance {
		if of.Link == "" { // of a server on this device no link is told before
			return policy.Allowance{}
		}
		return spent
	}
	if _, err := p.direct(t.Context(), "", "laptop", 0); !fault.Is(err, fault.Limit) {
		t.Errorf("a subflow: %v", err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		t.Errorf("%d bytes were sent, and then %v", len(b), err)
	}
}

// TestSpentHelper: a helper whose cap here is used up rests at once, others do not, and
// it goes on when it may carry again.
func TestSpentHelper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := offline(t, time.Minute)
		var events []string
		p.rec = (*trace.Recorder)(nil).Tell("laptop", func(e trace.Event) {
			if strings.HasPrefix(string(e.Kind), "device_") {
				events = append(events, string(e.Kind)+" "+e.Device)
			}
		})
		phone := device.Bounded{Peer: "PHONE", By: policy.ForPipe}
		var spent atomic.Bool
		p.cfg.Allowed = func(of device.Bounded) policy.Allowance {
			if !spent.Load() || of != phone {
				return policy.Allowance{}
			}
			return policy.Caps{Monthly: 20e6}.Judge(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
		}
		slot := &helperSlot{name: "phone", id: phone.Peer, revoked: make(chan struct{})}
		p.helpers[identity.PublicKey{1}] = slot
		p.helpers[identity.PublicKey{2}] = &helperSlot{name: "tablet", id: "TABLET", revoked: make(chan struct{})}
		spent.Store(true)
		p.Spent(device.Bounded{Link: "wwan0"}, policy.Allowance{})
		if _, rests := p.StandingOf(identity.PublicKey{1}); rests != "" {
			t.Errorf("for the cap of a link: it rests: %q", rests)
		}
		p.Spent(phone, policy.Allowance{})
		const why = "the monthly cap of 20 MB is used up, until 2026-12-01 00:00"
		for key, want := range map[identity.PublicKey]string{{1}: why, {2}: ""} {
			if _, rests := p.StandingOf(key); rests != want {
				t.Errorf("%v rests: %q, want %q", key[0], rests, want)
			}
		}
		slot.paused = true
		p.review(time.Now())
		if _, rests := p.StandingOf(identity.PublicKey{1}); rests != pausedHere {
			t.Errorf("paused: %q", rests)
		}
		slot.paused = false
		p.review(time.Now())
		goesOn := make(chan struct{})
		go func() {
			p.awaitHelper(t.Context(), slot, &pipe.Waiting{})
			close(goesOn)
		}()
		synctest.Wait()
		select {
		case <-goesOn:
			t.Error("it goes on")
		default:
		}
		spent.Store(false)
		p.review(time.Now())
		<-goesOn
		if want := []string{"device_rests phone", "device_allowed phone"}; !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
	})
}

// TestSpentLinkRests: a link that may carry nothing is tried each limitRest, though
// apps want streams: a try that finds out by dialling carries something itself.
func TestSpentLinkRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := offline(t, time.Hour)
		tries := 0
		spent := policy.Caps{Daily: 20e6}.Judge(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
		p.cfg.Allowed = func(device.Bounded) policy.Allowance {
			tries++
			return spent
		}
		ctx, cancel := context.WithTimeout(t.Context(), 6*limitRest-time.Second)
		defer cancel()
		wanted := make(chan error)
		go func() {
			_, err := p.DialStream(ctx, "web:80")
			wanted <- err
		}()
		p.keepDirect(ctx, "wwan0")
		if err := <-wanted; err == nil {
			t.Error("a stream was opened")
		}
		if tries != 6 {
			t.Errorf("%d tries", tries)
		}
	})
}
