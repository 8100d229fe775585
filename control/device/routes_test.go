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
	r.To(t.Context(), name, 0)
	if lookups.Load() == 0 {
		t.Fatal("it was not looked up")
	}
	r.note(name, resolved{"127.0.0.1:7600", time.Now().Add(resolvedFor)}) // as if somebody had answered
	lookups.Store(0)
	for range 10 {
		r.To(t.Context(), name, 0)
	}
	if lookups.Load() != 0 || r.meant(name) == name {
		t.Errorf("%d lookups within an hour", lookups.Load())
	}
	r.note(name, resolved{"127.0.0.1:7600", time.Now()})
	if r.To(t.Context(), name, 0); lookups.Load() == 0 {
		t.Error("it is not looked up again after an hour")
	}
	r.note(name, resolved{"no address", time.Now().Add(resolvedFor)})
	if r.To(t.Context(), name, 0); r.meant(name) != name {
		t.Error("it is believed although it cannot be reached")
	}
	if r.To(t.Context(), "127.0.0.1:7", 0); r.meant("127.0.0.1:7") != "127.0.0.1:7" {
		t.Error("an address means another one")
	}
	for i := range 3 * maxResolved {
		r.note(fmt.Sprint(i), resolved{"x", time.Now().Add(time.Hour)})
	}
	if len(r.known) > maxResolved {
		t.Errorf("%d names are remembered", len(r.known))
	}
}
