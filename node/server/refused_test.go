package server

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/link/wire"
)

// TestRefusals: a device of another version, one that is paused and one that is not
// known are kept with the reason, and logged once each, until they are let in.
func TestRefusals(t *testing.T) {
	s, primary, stop := start(t, time.Minute)
	stranger, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	call := func(key *identity.Key, version uint8) {
		t.Helper()
		c := tls.Client(dialServer(t, s), key.Client(s.key.Public(), wire.ALPN))
		defer c.Close()
		if _, err := c.Write(wire.Append(nil, wire.Join{Version: version, Path: 1, Device: "laptop"})); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Read(make([]byte, 100)) // the answer, or an alert
	}
	refused := func(device, reason string, count int) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(time.Millisecond) {
			list := s.Refusals()
			if len(list) == 1 && list[0].Device == device && strings.HasPrefix(list[0].Reason, reason) && list[0].Count == count && list[0].Here {
				return
			}
			if time.Since(began) > 10*time.Second {
				t.Fatalf("refusals %+v, want %q", list, reason)
			}
		}
	}
	for range 3 {
		call(primary, wire.Version+1)
	}
	refused("laptop", fmt.Sprintf("version %d here, %d there: upgrade mpbond on this device", wire.Version, wire.Version+1), 3)
	call(primary, wire.Version-1)
	refused("laptop", fmt.Sprintf("version %d here, %d there: upgrade mpbond on laptop", wire.Version, wire.Version-1), 1)
	if err := s.trust.Pause("laptop", true); err != nil {
		t.Fatal(err)
	}
	call(primary, wire.Version)
	refused("laptop", pausedHere, 1)
	if err := s.trust.Pause("laptop", false); err != nil {
		t.Fatal(err)
	}
	call(primary, wire.Version)
	for began := time.Now(); len(s.Refusals()) > 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("refusals %+v", s.Refusals())
		}
	}
	call(stranger, wire.Version)
	refused("", "unknown device", 1)
	if n := strings.Count(stop(), "connection refused"); n < 1 || n > 4 { // the log bounds them too
		t.Errorf("%d lines in the log, want 1 to 4", n)
	}
}
