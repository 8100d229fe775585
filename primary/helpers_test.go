package primary

import (
	"path/filepath"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/identity"
)

func TestAwaited(t *testing.T) {
	for _, c := range []struct {
		what                      string
		broken, stalled, hopeless bool
		back                      time.Duration
		want                      bool
	}{
		{"a pipe that is well", false, false, false, time.Hour, false},
		{"a stalled pipe", false, true, false, time.Hour, true},
		{"a pipe that has stalled for too long", false, true, true, time.Hour, false},
		{"a broken pipe", true, false, false, time.Hour, true},
		{"a broken pipe in the last moments of its window", true, false, true, time.Hour, true},
		{"a pipe that has just come back", false, false, false, time.Second, true},
		{"a pipe that came back in the last moments of its window", false, false, true, time.Second, true},
		{"a pipe that has been back for long", false, false, true, silentLimit, false},
	} {
		if got := awaited(c.broken, c.stalled, c.hopeless, c.back); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// TestRename: a helper is told of by the name that it has now, though its
// subflow was made when it had another.
func TestRename(t *testing.T) {
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Primary{trust: trust, helpers: map[identity.PublicKey]*helperSlot{}}
	for _, name := range []string{"phone", "tablet"} {
		key, err := identity.Generate()
		if err == nil {
			err = trust.Add(identity.Peer{Name: name, Roles: []identity.Role{identity.RoleHelper}, Key: key.Public()})
		}
		if err != nil {
			t.Fatal(err)
		}
		p.helpers[key.Public()] = &helperSlot{name: name}
	}
	if err := trust.Rename("phone", "pixel"); err != nil {
		t.Fatal(err)
	}
	paths := []api.Path{{Device: "phone", Kind: api.Helped}, {Device: "tablet", Kind: api.Helped}, {Device: "phone", Kind: api.Direct}, {Device: "phone", State: api.Down}}
	p.rename(paths)
	for i, want := range []string{"pixel", "tablet", "phone", "pixel"} {
		if paths[i].Device != want {
			t.Errorf("path %d is of %s, want %s", i, paths[i].Device, want)
		}
	}
}
