// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// TestRoutesRemember: a name is looked up once in an hour, and at once when what it
// meant cannot be reached any more.
func TestRoutesRemember(t *testing.T) {
	var lookups atomic.Int32
	was := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		lookups.Add(1)
		return nil, fmt.Errorf("nobody answers")
	}}
	defer func() { net.DefaultResolver = was }()
	var r Routes
	const name = "server.example.org.:7600"
	r.LinkTo(t.Context(), name, 0)
	if lookups.Load() == 0 {
		t.Fatal("it was not looked up")
	}
	r.rememberAddr(name, resolved{"127.0.0.1:7600", time.Now().Add(resolvedTTL)}) // as if somebody had answered
	lookups.Store(0)
	for range 10 {
		r.LinkTo(t.Context(), name, 0)
	}
	if lookups.Load() != 0 || r.resolvedAddr(name) == name {
		t.Errorf("%d lookups within an hour", lookups.Load())
	}
	r.rememberAddr(name, resolved{"127.0.0.1:7600", time.Now()})
	if r.LinkTo(t.Context(), name, 0); lookups.Load() == 0 {
		t.Error("it is not looked up again after an hour")
	}
	r.rememberAddr(name, resolved{"no address", time.Now().Add(resolvedTTL)})
	if r.LinkTo(t.Context(), name, 0); r.resolvedAddr(name) != name {
		t.Error("it is believed although it cannot be reached")
	}
	if r.LinkTo(t.Context(), "127.0.0.1:7", 0); r.resolvedAddr("127.0.0.1:7") != "127.0.0.1:7" {
		t.Error("an address means another one")
	}
	for i := range 3 * maxResolved {
		r.rememberAddr(fmt.Sprint(i), resolved{"x", time.Now().Add(time.Hour)})
	}
	if len(r.cache) > maxResolved {
		t.Errorf("%d names are remembered", len(r.cache))
	}
}
