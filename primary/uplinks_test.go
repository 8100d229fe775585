package primary

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/identity"
)

// TestUplinksComeAndGo: what is found is used as policy says, and what is gone
// is left. With real interfaces it is `--interface auto`.
func TestUplinksComeAndGo(t *testing.T) {
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
		p.mu.Lock()
		open := map[string]bool{}
		for name, u := range p.uplinks {
			if u.end != nil {
				open[name] = true
			}
		}
		p.mu.Unlock()
		if got := strings.Join(slices.Sorted(maps.Keys(open)), " "); got != c.open {
			t.Errorf("step %d, %s found: %q are open, want %q", i, c.found, got, c.open)
		}
	}
	cancel()
	p.wg.Wait()
	p.cur.e.Close(ctx)
}
