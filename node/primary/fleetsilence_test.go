// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/identity"
)

// TestSilentServer checks when a server whose bond has stalled counts as silent.
func TestSilentServer(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		greets  time.Duration // this server's handshake
		fails   error
		servers fakeServers // the others
		isLeft  bool
	}{
		"silent":             {never, nil, fakeServers{addrOf("b"): 20 * time.Millisecond}, true},
		"it fails":           {time.Millisecond, errors.New("reset"), fakeServers{addrOf("b"): 20 * time.Millisecond}, true},
		"it is there":        {30 * time.Millisecond, nil, fakeServers{addrOf("b"): 20 * time.Millisecond}, false},
		"it is far away":     {400 * time.Millisecond, nil, fakeServers{addrOf("b"): 20 * time.Millisecond}, false},
		"all are slow":       {900 * time.Millisecond, nil, fakeServers{addrOf("b"): 700 * time.Millisecond}, false},
		"nobody answers":     {never, nil, fakeServers{}, false},
		"there is one":       {never, nil, nil, false},
		"others are as lost": {never, nil, fakeServers{addrOf("b"): never}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBondHolder(t, time.Minute)
				names := []string{"a", "b"}
				if c.servers == nil {
					names = names[:1]
				}
				g := newTestGuide(t, b, c.servers, names...)
				g.greet = func(ctx context.Context, _ identity.Peer) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(c.greets):
						return c.fails
					}
				}
				now, _ := g.server.currentServer()
				began := time.Now()
				next, isLeft := g.findOtherIfSilent(t.Context(), now)
				if isLeft != c.isLeft || isLeft && next.Name != "b" {
					t.Errorf("left: %v, for %q", isLeft, next.Name)
				}
				if took := time.Since(began); took > handshakeTimeout+silenceGrace {
					t.Errorf("it took %v", took)
				}
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				b.closeWithFarewell(gone)
			})
		})
	}
}
