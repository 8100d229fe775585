package primary

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/control/facts"
	"mpbond/link/wire"
)

// TestUplinksComeAndGo: what is found is used as policy says, and what is gone
// is left. With real interfaces it is `--interface auto`.
func TestUplinksComeAndGo(t *testing.T) {
	p := newUplinked(t)
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Unix(1000, 0)
	for i, c := range []struct {
		after time.Duration
		found string
		open  string
	}{
		{0, "wlan0 wwan0", "wlan0"},
		{time.Second, "wlan0 wwan0", "wlan0"},
		{3 * time.Second, "wlan0 wwan0", "wlan0 wwan0"}, // nothing works by wlan0
		{time.Second, "wwan0", "wwan0"},
		{time.Second, "wwan0 usb0", "usb0 wwan0"},
		{time.Second, "usb0", "usb0"},
	} {
		now = now.Add(c.after)
		p.chooseUplinks(ctx, now, strings.Fields(c.found))
		if got := p.open(); got != c.open {
			t.Errorf("step %d, %s found: %q are open, want %q", i, c.found, got, c.open)
		}
	}
	cancel()
	p.wg.Wait()
	p.cur.e.Close(ctx)
}

// newUplinked is a primary that finds its interfaces, and whose server does not
// answer.
func newUplinked(t *testing.T) *Primary {
	t.Helper()
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.Generate()
	if err == nil {
		err = trust.Add(identity.Peer{Name: "home", Roles: []identity.Role{identity.RoleServer}, Key: key.Public(), Addresses: []string{"127.0.0.1:1"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := Default
	cfg.Pipe, cfg.Interfaces, cfg.Metered = "", []string{autoInterfaces}, []string{"wwan0"}
	p, err := New(cfg, key, trust, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// open are the interfaces in use, in order.
func (p *Primary) open() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := map[string]bool{}
	for name, u := range p.uplinks {
		if u.end != nil {
			open[name] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(open)), " ")
}

// TestUplinksCannotBeSeen: while the routes cannot be looked at, what is in use
// stays so, and if nothing is a subflow goes by the system's routes.
func TestUplinksCannotBeSeen(t *testing.T) {
	p := newUplinked(t)
	ctx, cancel := context.WithCancel(t.Context())
	looks := []struct {
		found []string
		err   error
		open  string // then; the system's routes have no name
	}{
		{nil, errors.New("no netlink"), ""},
		{[]string{"wlan0", "usb0"}, nil, " usb0 wlan0"}, // until one of them has a subflow
		{nil, errors.New("interrupted"), " usb0 wlan0"},
		{nil, nil, ""},
	}
	n := 0
	p.findUplinks = func() ([]string, error) {
		if n > len(looks) {
			return nil, nil // once more, before the end was seen
		}
		if n > 0 {
			last := looks[n-1]
			if got := p.open(); got != last.open || !p.hasUplinks() {
				t.Errorf("found %q, %v: in use are %q, want %q", last.found, last.err, got, last.open)
			}
		}
		if n++; n > len(looks) {
			cancel()
			return nil, nil
		}
		return looks[n-1].found, looks[n-1].err
	}
	p.keepUplinks(ctx)
	p.wg.Wait()
	p.cur.e.Close(ctx)
}

// TestUplinksByDefault: without a setting a device with one link goes by the system's
// routes, and one with several uses each; what is left of several keeps its subflow.
// The subflow by the system's routes ends once another one is up, and those by
// interfaces that are up once it is.
func TestUplinksByDefault(t *testing.T) {
	if !slices.Equal(Default.Interfaces, []string{autoInterfaces}) {
		t.Fatalf("the default is %q", Default.Interfaces)
	}
	p := newUplinked(t)
	p.standings.metered = nil
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	see := func(found, want string) {
		t.Helper()
		now = now.Add(time.Second)
		p.findUplinks = func() ([]string, error) { return strings.Fields(found), nil }
		if err := p.updateUplinks(ctx, now); err != nil || p.open() != want {
			t.Errorf("found %q: in use are %q, want %q (%v)", found, p.open(), want, err)
		}
	}
	see("wlan0", "")
	see("wlan0 wwan0", " wlan0 wwan0")
	p.uplinkChanged("wlan0", 1)
	see("wlan0 wwan0", "wlan0 wwan0")
	p.FactsChanged(facts.Facts{Links: map[string]facts.Link{"wwan0": {Metered: wire.MeteredYes}}})
	now = now.Add(time.Minute) // wlan0 has worked for long
	see("wlan0 wwan0", "wlan0")
	see("wwan0", "wwan0")
	see("", "") // wwan0 has no subflow
	see("eth0 wlan0", " eth0 wlan0")
	p.uplinkChanged("wlan0", 1)
	see("", " wlan0") // a VPN, say: it carries until the other does
	see("", " wlan0")
	p.uplinkChanged("", 1)
	see("", "")
	see("eth0 wlan0", " eth0 wlan0")
	p.uplinkChanged("eth0", 1)
	see("eth0 wlan0", "eth0 wlan0")
	see("", " eth0")
	p.uplinkChanged("eth0", -1) // it broke
	see("", "")
	cancel()
	p.wg.Wait()
	p.cur.e.Close(ctx)
}

// TestReachedBy: links count only if the system reaches the server by one of them.
func TestReachedBy(t *testing.T) {
	p := newUplinked(t) // its server is on loopback
	if p.reachedBy([]string{"wlan0", "wwan0"}) {
		t.Error("this device itself is reached by a link")
	}
	p.server.peer.Addresses = []string{"[fdff:ffff::1]:1"}
	if _, ok := p.ways.Via(t.Context(), p.server.peer.Addresses[0], 0); !ok && !p.reachedBy([]string{"wlan0", "wwan0"}) {
		t.Error("a server that cannot be reached at present rules all links out")
	}
}
