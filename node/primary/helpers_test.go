package primary

import (
	"log/slog"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"mpbond/api"

	"mpbond/base/identity"
	"mpbond/control/policy"
)

func TestAwaited(t *testing.T) {
	for _, c := range []struct {
		what             string
		broken, hopeless bool
		stalled, back    time.Duration
		want             bool
	}{
		{"a pipe that is well", false, false, time.Hour, time.Hour, false},
		{"a stalled pipe", false, false, 0, time.Hour, true},
		{"a pipe that has stalled for too long", false, true, 0, time.Hour, false},
		{"a pipe that stalled until a moment ago", false, false, time.Second, time.Hour, true},
		{"a pipe that stalled until a moment ago, silent for too long", false, true, time.Second, time.Hour, false},
		{"a pipe that stalled long ago", false, false, silentLimit, time.Hour, false},
		{"a broken pipe", true, false, time.Hour, time.Hour, true},
		{"a broken pipe in the last moments of its window", true, true, time.Hour, time.Hour, true},
		{"a pipe that has just come back", false, false, time.Hour, time.Second, true},
		{"a pipe that came back in the last moments of its window", false, true, time.Hour, time.Second, true},
		{"a pipe that has been back for long", false, true, time.Hour, silentLimit, false},
	} {
		if got := awaited(c.broken, c.hopeless, c.stalled, c.back); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// TestRename: helpers are told of by the names that they have now, though they
// called, and failed, when they had others: also two that change their names.
func TestRename(t *testing.T) {
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Primary{trust: trust, helpers: map[identity.PublicKey]*helperSlot{}, sessions: newSessions(t, time.Minute)}
	p.policy = newPolicy(policy.Modes{}, nil, slog.New(slog.DiscardHandler), nil)
	p.standings = newStandings(t, "", deviceNames{trust: trust})
	p.troubles = &troubles{last: map[string]api.Trouble{"phone": {Text: "of the phone"}, "tablet": {Text: "of the tablet"}, "wlan0": {Text: "own"}}}
	p.demand = newDemand(p.sessions.isBusy)
	p.server = &serverPeer{trust: trust}
	slots := map[string]*helperSlot{}
	for _, name := range []string{"phone", "tablet", "watch"} {
		key, err := identity.Generate()
		if err == nil {
			err = trust.Add(identity.Peer{Name: name, Roles: []identity.Role{identity.RoleHelper}, Key: key.Public()})
		}
		if err != nil {
			t.Fatal(err)
		}
		slots[name] = &helperSlot{name: name, key: key.Public()}
		p.helpers[key.Public()] = slots[name]
	}
	for _, r := range [][2]string{{"phone", "x"}, {"tablet", "phone"}, {"x", "tablet"}} {
		if err := trust.Rename(r[0], r[1]); err != nil {
			t.Fatal(err)
		}
	}
	p.TrustChanged()
	for was, want := range map[string]string{"phone": "tablet", "tablet": "phone", "watch": "watch"} {
		if got := p.nameOf(slots[was]); got != want {
			t.Errorf("%s is %s now, want %s", was, got, want)
		}
	}
	if want := map[string]api.Trouble{"tablet": {Text: "of the phone"}, "phone": {Text: "of the tablet"}, "wlan0": {Text: "own"}}; !maps.Equal(p.troubles.list(), want) {
		t.Errorf("what went wrong last: %v, want %v", p.troubles.list(), want)
	}
}
