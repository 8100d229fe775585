// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/identity"
	"mpbond/link/wire"
)

// TestSilentServer checks when a server whose bond has stalled counts as silent.
func TestSilentServer(t *testing.T) {
	const never, ms20 = time.Hour, 20 * time.Millisecond
	for name, c := range map[string]struct {
		greets  time.Duration // this server's handshake
		fails   error
		servers fakeServers // the others
		hangs   bool        // they complete no handshake of TLS
		isLeft  bool
	}{
		"silent":             {never, nil, fakeServers{addrOf("b"): ms20}, false, true},
		"it fails":           {time.Millisecond, syscall.ECONNRESET, fakeServers{addrOf("b"): ms20}, false, true},
		"it is there":        {30 * time.Millisecond, nil, fakeServers{addrOf("b"): ms20}, false, false},
		"it is far away":     {400 * time.Millisecond, nil, fakeServers{addrOf("b"): ms20}, false, false},
		"all are slow":       {900 * time.Millisecond, nil, fakeServers{addrOf("b"): 700 * time.Millisecond}, false, false},
		"another one hangs":  {never, nil, fakeServers{addrOf("b"): ms20}, true, false},
		"all are far away":   {1900 * time.Millisecond, nil, fakeServers{addrOf("b"): 600 * time.Millisecond}, false, false},
		"nobody answers":     {never, nil, fakeServers{}, false, false},
		"there is one":       {never, nil, nil, false, false},
		"others are as lost": {never, nil, fakeServers{addrOf("b"): never}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBondHolder(t, time.Minute)
				names := []string{"a", "b"}
				if c.servers == nil {
					names = names[:1]
				}
				g := newTestGuide(t, b, c.servers, names...)
				now, _ := g.server.currentServer()
				g.greet = func(ctx context.Context, p identity.Peer) error {
					took, err := c.greets, c.fails
					if p.Key != now.Key { // two round trips
						took, err = 2*c.servers[p.Addresses[0]], nil
						if c.hangs {
							took = never
						}
					}
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(took):
						return err
					}
				}
				began := time.Now()
				next, isLeft := g.findOtherIfSilent(t.Context(), now)
				if isLeft != c.isLeft || isLeft && next.Name != "b" {
					t.Errorf("left: %v, for %q", isLeft, next.Name)
				}
				if took := time.Since(began); took > greetLimit {
					t.Errorf("it took %v", took)
				}
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				b.closeWithFarewell(gone)
			})
		})
	}
}

// TestServerIsLeftAloneAfterCheck checks that a server is left alone for silenceRecheck after a check that took longer
// than that.
func TestServerIsLeftAloneAfterCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBondHolder(t, time.Hour)
		defer endBond(t, b)
		attachMuteSubflow(t, b)
		if _, err := b.currentSession().endpoint.Dial("web:80", wire.ModeBond, 0); err != nil {
			t.Fatal(err)
		}
		g := newTestGuide(t, b, fakeServers{addrOf("b"): 20 * time.Millisecond}, "a", "b")
		now, _ := g.server.currentServer()
		began := make(chan time.Time, 99) // of checks
		g.greet = func(ctx context.Context, p identity.Peer) error {
			if p.Key == now.Key {
				began <- time.Now()
			}
			<-ctx.Done() // no server completes a handshake
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { g.runSilenceWatch(ctx); close(ended) }()
		last := <-began
		for range 3 {
			next := <-began
			if apart := next.Sub(last); apart < greetLimit+silenceRecheck {
				t.Errorf("checks %v apart, want at least %v", apart, greetLimit+silenceRecheck)
			}
			last = next
		}
		cancel()
		<-ended
	})
}
