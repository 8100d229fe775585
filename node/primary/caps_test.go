package primary

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/control/device"
	"mpbond/control/policy"
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
	p.server.peer.Addresses = []string{l.Addr().String()}
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
