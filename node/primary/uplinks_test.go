// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/identity"
)

// newUplinks returns uplinks of a device whose interfaces the test sets. An uplink carries nothing
// and ends a moment after it was closed.
func newUplinks(t *testing.T, metered ...string) *uplinks {
	t.Helper()
	return &uplinks{
		listInterfaces: func() ([]string, error) { return nil, nil },
		isMetered:      func(name string) bool { return slices.Contains(metered, name) },
		supervise:      func(ctx context.Context, _ string) { <-ctx.Done() },
		log:            slog.New(slog.DiscardHandler), all: map[string]*uplink{}}
}

// openNames returns the interfaces in use, in order.
func (u *uplinks) openNames() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	open := map[string]bool{}
	for name, one := range u.all {
		if one.stop != nil {
			open[name] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(open)), " ")
}

// TestUplinksComeAndGo: found interfaces are used as policy decides, and missing ones are left, as
// with `--interface auto`.
func TestUplinksComeAndGo(t *testing.T) {
	u := newUplinks(t, "wwan0")
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Unix(1000, 0)
	for i, c := range []struct {
		after time.Duration
		found string
		open  string
	}{
		{0, "wlan0 wwan0", "wlan0"},
		{time.Second, "wlan0 wwan0", "wlan0"},
		{3 * time.Second, "wlan0 wwan0", "wlan0 wwan0"}, // nothing works over wlan0
		{time.Second, "wwan0", "wwan0"},
		{time.Second, "wwan0 usb0", "usb0 wwan0"},
		{time.Second, "usb0", "usb0"},
	} {
		now = now.Add(c.after)
		u.applyUplinkChoice(ctx, now, strings.Fields(c.found))
		if got := u.openNames(); got != c.open {
			t.Errorf("step %d, %s found: %q are open, want %q", i, c.found, got, c.open)
		}
	}
	cancel()
	u.wg.Wait()
}

// TestUplinksCannotBeSeen: while interfaces cannot be listed, those in use stay; without any, a
// subflow uses the system's routes.
func TestUplinksCannotBeSeen(t *testing.T) {
	u := newUplinks(t)
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	for _, look := range []struct {
		found []string
		err   error
		open  string // then; the system's routes have no name
	}{
		{nil, errors.New("no netlink"), ""},
		{[]string{"wlan0", "usb0"}, nil, " usb0 wlan0"}, // until one of them has a subflow
		{nil, errors.New("interrupted"), " usb0 wlan0"},
		{nil, nil, ""},
	} {
		u.listInterfaces = func() ([]string, error) { return look.found, look.err }
		if err := u.updateUplinks(ctx, now); err != look.err {
			t.Errorf("%v, want %v", err, look.err)
		}
		if _, any := u.hasUplinks(); u.openNames() != look.open || !any {
			t.Errorf("found %q, %v: in use are %q, want %q", look.found, look.err, u.openNames(), look.open)
		}
		now = now.Add(time.Second)
	}
	cancel()
	u.wg.Wait()
}

// TestUplinksByDefault: by default a device with one link uses the system's routes, and one with
// several links uses each; the last of several keeps its subflow. The subflow over the system's
// routes ends once another one is up, and interfaces that are up end once it is up.
func TestUplinksByDefault(t *testing.T) {
	if !slices.Equal(Default.Interfaces, []string{autoInterfaces}) {
		t.Fatalf("the default is %q", Default.Interfaces)
	}
	u := newUplinks(t)
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	see := func(found, want string) {
		t.Helper()
		now = now.Add(time.Second)
		u.listInterfaces = func() ([]string, error) { return strings.Fields(found), nil }
		if err := u.updateUplinks(ctx, now); err != nil || u.openNames() != want {
			t.Errorf("found %q: in use are %q, want %q (%v)", found, u.openNames(), want, err)
		}
	}
	see("wlan0", "")
	see("wlan0 wwan0", " wlan0 wwan0")
	u.countSubflow("wlan0", 1)
	see("wlan0 wwan0", "wlan0 wwan0")
	u.isMetered = func(name string) bool { return name == "wwan0" }
	now = now.Add(time.Minute) // wlan0 has worked for long
	see("wlan0 wwan0", "wlan0")
	see("wwan0", "wwan0")
	see("", "") // wwan0 has no subflow
	see("eth0 wlan0", " eth0 wlan0")
	u.countSubflow("wlan0", 1)
	see("", " wlan0") // such as a VPN: it carries until the other does
	see("", " wlan0")
	u.countSubflow("", 1)
	see("", "")
	see("eth0 wlan0", " eth0 wlan0")
	u.countSubflow("eth0", 1)
	see("eth0 wlan0", "eth0 wlan0")
	see("", " eth0")
	u.countSubflow("eth0", -1) // it broke
	see("", "")
	cancel()
	u.wg.Wait()
}

// TestUplinksNeverNone: in any order of events, something is in use after each check, and
// everything ends with the context.
func TestUplinksNeverNone(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		u := newUplinks(t, "wwan0")
		ctx, cancel := context.WithCancel(t.Context())
		now := time.Unix(1000, 0)
		names := []string{"wlan0", "wwan0", "eth0"}
		for range 50 {
			var found []string
			for _, name := range names {
				if r.IntN(2) == 0 {
					found = append(found, name)
				}
			}
			u.listInterfaces = func() ([]string, error) { return found, nil }
			if err := u.updateUplinks(ctx, now); err != nil {
				t.Fatal(err)
			}
			open := 0
			for _, one := range u.all {
				if one.stop != nil {
					open++
				}
			}
			if open == 0 {
				t.Fatalf("seed %d: found %q, and nothing is in use", seed, found)
			}
			u.countSubflow(names[r.IntN(3)], 1-2*r.IntN(2))
			now = now.Add(time.Duration(r.IntN(5000)) * time.Millisecond)
		}
		cancel()
		u.wg.Wait()
	}
}

// TestReachServer: links count only if the system's routes to the server use one of them.
func TestReachServer(t *testing.T) {
	f := &uplinkFinder{server: &serverPeer{peer: identity.Peer{Addresses: []string{"127.0.0.1:1"}}}}
	if f.routesReachServer([]string{"wlan0", "wwan0"}) {
		t.Error("this device itself is reached by a link")
	}
	f.server.peer.Addresses = []string{"[fdff:ffff::1]:1"}
	if _, ok := f.routes.LinkVia(t.Context(), f.server.peer.Addresses[0], 0); !ok &&
		!f.routesReachServer([]string{"wlan0", "wwan0"}) {
		t.Error("a server that cannot be reached at present rules all links out")
	}
}
