// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/identity"
	"mpbond/control/fleet"
	"mpbond/link/wire"
)

// joinTestFleet has a guide know the regions of its servers: the part of their names before the dash.
func joinTestFleet(t *testing.T, g *fleetGuide) {
	t.Helper()
	key := newKey(t)
	now := time.Now()
	list := fleet.ServerList{Fleet: "acme", Number: 1, Issued: now, Expires: now.Add(time.Hour)}
	for _, p := range g.server.listFleetServers() {
		region, _, _ := strings.Cut(p.Name, "-")
		list.Servers = append(list.Servers, fleet.Server{Name: p.Name, Region: region, Key: p.Key,
			Addresses: p.Addresses})
	}
	body, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	sig := key.Sign(append([]byte("mpbond fleet list 1\x00"), body...))
	offer, err := json.Marshal(fleet.Offer{List: fleet.Signed{Body: body, Sig: sig[:]}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "fleet.json")
	if _, err := fleet.Join(path, g.server.trust, key.Public(), offer, list.Servers[0].Key); err != nil {
		t.Fatal(err)
	}
	if g.fleet, err = fleet.LoadJoined(path, g.server.trust); err != nil {
		t.Fatal(err)
	}
}

// TestNearServerIsFound checks with random fleets that a device is at a near server after a few choices, and that
// a choice measures no more than three servers.
func TestNearServerIsFound(t *testing.T) {
	const fleets, choices = 100, 3
	const ms = time.Millisecond
	rnd := rand.New(rand.NewPCG(7, 7))
	var near [choices]int
	for range fleets {
		servers := fakeServers{}
		var names []string
		regions := make([]time.Duration, 1+rnd.IntN(6))
		for i := range regions {
			regions[i] = 5*ms + time.Duration(rnd.Int64N(int64(245*ms)))
		}
		for i := range 3 + rnd.IntN(48) {
			r := rnd.IntN(len(regions))
			name := fmt.Sprintf("r%d-%d", r, i)
			names = append(names, name)
			servers[addrOf(name)] = regions[r] + time.Duration(rnd.Int64N(int64(20*ms)))
		}
		best := time.Hour
		for _, took := range servers {
			best = min(best, took)
		}
		synctest.Test(t, func(t *testing.T) {
			g := newTestGuide(t, newBondHolder(t, time.Minute), servers, names...)
			joinTestFleet(t, g)
			g.random = rnd.IntN
			for i := range choices {
				var asked atomic.Int64
				g.measure = func(ctx context.Context, addr, iface string) (time.Duration, error) {
					asked.Add(1)
					return servers.measure(ctx, addr, iface)
				}
				got, ok := g.choose(t.Context(), identity.PublicKey{}, "")
				if !ok || asked.Load() > measuredServers {
					t.Fatalf("it chose %q and measured %d servers", got.Name, asked.Load())
				}
				// keepSimilar lets a quarter more pass
				if took := servers[addrOf(got.Name)]; took <= max(best+25*ms, best*5/4) {
					near[i]++
				}
				g.measuring.Wait()
			}
		})
	}
	t.Logf("of %d fleets, near after 1, 2, 3 choices: %v", fleets, near)
	// three choices see six regions: three, two more beside the best of those, then the last one
	if near[1]*100 < 90*fleets || near[2] < fleets {
		t.Error("that is not enough")
	}
}

// TestSortByNearness checks which servers are measured first.
func TestSortByNearness(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		list  string         // names with the region before the dash
		times map[string]int // ms; 0: no answer
		busy  string         // has much load
		want  string         // the first three
	}{
		"nothing known: one of each region": {list: "a-1 a-2 a-3 b-1 b-2 c-1", want: "a-1 b-1 c-1"},
		"two regions":                       {list: "a-1 a-2 b-1 b-2", want: "a-1 b-1 a-2"},
		"no regions":                        {list: "x y z w", want: "x y z"},
		"the best, then new regions": {list: "a-1 a-2 b-1 c-1 d-1", times: map[string]int{"a-1": 20, "b-1": 10},
			want: "b-1 c-1 d-1"},
		"one new region": {list: "a-1 b-1 c-1 d-1", times: map[string]int{"a-1": 20, "b-1": 10, "c-1": 30},
			want: "b-1 d-1 a-1"},
		"all regions known: near ones": {list: "a-1 a-2 b-1 b-2 c-1", times: map[string]int{"a-1": 90, "b-1": 20, "c-1": 40},
			want: "b-1 b-2 c-1"},
		"one that was not measured": {list: "a-1 a-2 a-3 a-4 b-1 b-2",
			times: map[string]int{"a-1": 10, "a-2": 11, "a-3": 12, "a-4": 13, "b-1": 90}, want: "a-1 a-2 b-2"},
		"not one that is silent": {list: "a-1 a-2 b-1 c-1", times: map[string]int{"a-1": 0, "b-1": 30, "c-1": 40},
			want: "b-1 a-2 c-1"},
		"not the one that is busy": {list: "a-1 b-1 c-1 d-1 e-1",
			times: map[string]int{"a-1": 30, "b-1": 20, "c-1": 31, "d-1": 32, "e-1": 90}, busy: "b-1", want: "a-1 c-1 d-1"},
	} {
		now, times := time.Now(), serverTimes{}
		var list []candidate
		for i, name := range strings.Fields(c.list) {
			region, _, _ := strings.Cut(name, "-")
			one := candidate{peer: identity.Peer{Name: name, Key: identity.PublicKey{byte(i + 1)}}, region: region}
			if name == c.busy {
				one.hint = &fleet.Hint{CPU: 0.9}
			}
			if took, ok := c.times[name]; ok {
				times.note(one.peer.Key, time.Duration(took)*ms, now)
			}
			list = append(list, one)
		}
		sorted := times.sortByNearness(slices.Clone(list), times.timesOfRegions(list, now), 3, now)
		if len(sorted) != len(list) {
			t.Errorf("%s: %d of %d servers", name, len(sorted), len(list))
		}
		var got []string
		for _, one := range sorted {
			got = append(got, one.peer.Name)
		}
		if first := strings.Join(got[:3], " "); first != c.want {
			t.Errorf("%s: %s, want %s", name, first, c.want)
		}
	}
}

// TestServerTimes checks what is remembered: for a day, a failure for minutes, nothing of another network, and
// nothing of servers that have left the fleet.
func TestServerTimes(t *testing.T) {
	const ms = time.Millisecond
	now := time.Now()
	a, b, c := identity.PublicKey{1}, identity.PublicKey{2}, identity.PublicKey{3}
	remembered := func(times serverTimes, now time.Time) (list []time.Duration) {
		for _, key := range []identity.PublicKey{a, b, c} {
			took, ok := times.timeOf(key, now)
			if !ok {
				took = -1
			}
			list = append(list, took)
		}
		return list
	}
	expect := func(what string, times serverTimes, at time.Time, want ...time.Duration) {
		t.Helper()
		if got := remembered(times, at); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	times := serverTimes{}
	times.note(a, 20*ms, now)
	times.note(b, 90*ms, now)
	times.note(c, 0, now)
	expect("at once", times, now, 20*ms, 90*ms, 0)
	expect("after an hour", times, now.Add(time.Hour), 20*ms, 90*ms, -1)
	expect("after two days", times, now.Add(48*time.Hour), -1, -1, -1)
	later := now.Add(time.Minute)
	times.note(a, 45*ms, later) // a bit late
	expect("a late answer", times, later, 45*ms, 90*ms, 0)
	later = later.Add(time.Minute)
	times.note(b, 15*ms, later)
	times.note(a, 200*ms, later)
	times.note(c, 0, later)
	expect("in another network", times, later, 200*ms, 15*ms, 0)
	later = later.Add(time.Minute)
	times.note(b, 200*ms, later)
	expect("in a third network", times, later, -1, 200*ms, -1)
	times.note(a, ms, later)
	times.forgetOthers([]candidate{{peer: identity.Peer{Key: b}}})
	if _, ok := times[b]; len(times) != 1 || !ok {
		t.Errorf("of one server it remembers %v", times)
	}
}

// TestListNearer checks which difference is worth a change of the server.
func TestListNearer(t *testing.T) {
	const ms = time.Millisecond
	current, other, third := identity.PublicKey{1}, identity.PublicKey{2}, identity.PublicKey{3}
	for name, c := range map[string]struct {
		current, other, third time.Duration // 0: no answer
		want                  int
	}{
		"much nearer":          {90 * ms, 20 * ms, 0, 1},
		"two that are nearer":  {90 * ms, 20 * ms, 22 * ms, 2},
		"hardly nearer":        {90 * ms, 65 * ms, 0, 0},
		"few ms":               {30 * ms, 12 * ms, 0, 0},
		"further":              {20 * ms, 90 * ms, 0, 0},
		"current does not say": {0, 20 * ms, 0, 0},
		"no other answers":     {20 * ms, 0, 0, 0},
	} {
		var list []candidate
		for key, took := range map[identity.PublicKey]time.Duration{current: c.current, other: c.other, third: c.third} {
			if took > 0 {
				list = append(list, candidate{peer: identity.Peer{Key: key}, score: took})
			}
		}
		if got := listNearer(list, current); len(got) != c.want {
			t.Errorf("%s: %d servers, want %d", name, len(got), c.want)
		}
	}
}

// moveWorld is a bond at a far server of a fleet.
type moveWorld struct {
	*fleetGuide
	bond  *bondHolder
	asked atomic.Int64
}

func newMoveWorld(t *testing.T) *moveWorld {
	t.Helper()
	servers := fakeServers{}
	for name, ms := range map[string]time.Duration{"as-1": 250, "eu-1": 15, "sa-1": 240, "us-1": 120, "us-2": 121} {
		servers[addrOf(name)] = ms * time.Millisecond
	}
	w := &moveWorld{bond: newBondHolder(t, time.Minute)}
	w.fleetGuide = newTestGuide(t, w.bond, servers, "as-1", "eu-1", "sa-1", "us-1", "us-2")
	joinTestFleet(t, w.fleetGuide)
	w.measure = func(ctx context.Context, addr, iface string) (time.Duration, error) {
		w.asked.Add(1)
		return servers.measure(ctx, addr, iface)
	}
	t.Cleanup(func() {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		w.bond.closeWithFarewell(gone)
	})
	return w
}

// look has the guide look for a nearer server after a while, and returns which one the bond has then, and how many
// were measured.
func (w *moveWorld) look(t *testing.T, after time.Duration) (server string, measured int) {
	time.Sleep(after)
	w.asked.Store(0)
	w.moveNearer(t.Context(), w.bond.currentSession())
	synctest.Wait()
	now, _ := w.server.currentServer()
	return now.Name, int(w.asked.Load())
}

// TestMoveNearer checks that a bond that works goes to a server that is much nearer, that its streams stay, and how
// often servers are measured for that.
func TestMoveNearer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMoveWorld(t)
		old := w.bond.currentSession()
		c, err := old.endpoint.Dial("web:80", wire.ModeBond, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Reset()
		for i, step := range []struct {
			after time.Duration
			want  int
		}{
			{0, 3}, {exploreInterval / 2, 0}, {exploreInterval, 3}, {2 * exploreInterval, 0}, {measureInterval, 3},
			{time.Second, 0},
		} {
			if server, n := w.look(t, step.after); server != "eu-1" || n != step.want {
				t.Errorf("step %d: it is at %s and has measured %d servers, want %d", i, server, n, step.want)
			}
			if n := old.endpoint.Streams(); i == 0 && (w.bond.currentSession() == old || n != 1) {
				t.Errorf("a new session: %v, old streams: %d", w.bond.currentSession() != old, n)
			}
		}
	})
}

// TestMoveFromFarthest checks that the server in use is measured too, although others are known to be nearer.
func TestMoveFromFarthest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMoveWorld(t)
		now := time.Now()
		for _, c := range w.listCandidates(identity.PublicKey{}, now) {
			took, _ := w.measure(t.Context(), c.peer.Addresses[0], "")
			w.times.note(c.peer.Key, took, now)
		}
		if server, n := w.look(t, measureInterval); server != "eu-1" || n != 3 {
			t.Errorf("it is at %s after %d measurements", server, n)
		}
	})
}
