// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
	"mpbond/control/fleet/filestore"
	"mpbond/onload/allowance"
)

// engines are makers of engines: each returns how services share it.
var engines = map[string]func(t *testing.T) func(service string) Shared{
	"memory": func(*testing.T) func(string) Shared {
		e := newMemoryEngine()
		return func(service string) Shared { return memoryCells{e, service} }
	},
	"files": func(t *testing.T) func(string) Shared {
		dir := t.TempDir()
		return func(service string) Shared {
			store, err := filestore.Open(dir, quiet)
			if err != nil {
				t.Fatal(err)
			}
			cells, err := fleet.NewCells(store, service)
			if err != nil {
				t.Fatal(err)
			}
			return cells
		}
	},
}

// startShared starts a service without a listener.
func startShared(t *testing.T, rules allowance.Rules, shared Shared) (s *Service, stop func()) {
	t.Helper()
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	s = NewSharedService(Identity{keys().service, trust}, rules, []string{"north", "south"}, shared, quiet)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Share(ctx); close(done) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return s, stop
}

// TestSharedLikeOne sends random requests to several services, some of which die. Each answer is that of a
// single service, no cell ever has more permits than allowed, and what dies with a service is nothing.
func TestSharedLikeOne(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			runs, steps := 12, 400
			if name == "files" {
				runs, steps = 2, 150
			}
			for seed := range uint64(runs) {
				synctest.Test(t, func(t *testing.T) { checkLikeOne(t, seed, steps, open(t)) })
			}
		})
	}
}

func checkLikeOne(t *testing.T, seed uint64, steps int, open func(service string) Shared) {
	const devices = 9
	r := rand.New(rand.NewPCG(seed, 7))
	rules := rules(1 + r.IntN(4))
	type running struct {
		*Service
		name string
		stop func()
	}
	started := 0
	start := func() running {
		started++
		name := fmt.Sprintf("p%d", started)
		s, stop := startShared(t, rules, open(name))
		return running{s, name, stop}
	}
	list := []running{start(), start(), start()}
	defer func() {
		for _, s := range list {
			s.stop()
		}
	}()
	rules.ClockTolerance = ClockTolerance
	one := allowance.NewIssuer(rules, "north", "south")
	ends := map[string]map[string]time.Time{"north": {}, "south": {}} // of the permits that devices have
	granted, refused, died := 0, map[string]int{}, 0
	for range steps {
		i, cell := r.IntN(len(list)), []string{"north", "south"}[r.IntN(2)]
		switch r.IntN(10) {
		case 0, 1, 2:
			load := r.Float64() * .9
			one.SetLoadFrom(list[i].name, cell, load, time.Now())
			list[i].SetLoad(cell, load)
			time.Sleep(2 * writeInterval) // others learn it
			synctest.Wait()
		case 3:
			time.Sleep(time.Duration(r.IntN(40)) * time.Second)
		case 4:
			if r.IntN(4) == 0 {
				died++
				list[i].stop()
				list[i] = start()
				time.Sleep(2 * writeInterval)
				synctest.Wait()
			}
		default:
			device := fmt.Sprint(r.IntN(devices))
			want := one.RequestPermit(time.Now(), device, cell)
			got, err := list[i].requestShared(t.Context(), device, cell)
			if err != nil {
				t.Fatal(err)
			}
			if got.Since, want.Since = got.Since.UTC(), want.Since.UTC(); got.Granted != want.Granted ||
				got.Reason != want.Reason || got.Life != want.Life || got.Granted && !got.Since.Equal(want.Since) {
				t.Fatalf("seed %d: %s answers %+v, one service %+v", seed, list[i].name, got, want)
			}
			if refused[got.Reason]++; got.Granted {
				granted++
				ends[cell][device] = time.Now().Add(got.Life)
			}
		}
		for cell, permits := range ends {
			valid := 0
			for _, until := range permits {
				if time.Now().Before(until) {
					valid++
				}
			}
			if valid > rules.MaxPermits {
				t.Fatalf("seed %d: %s has %d permits of at most %d", seed, cell, valid, rules.MaxPermits)
			}
		}
	}
	if granted == 0 || len(refused) < 3 || died == 0 {
		t.Errorf("seed %d: %d grants, %v, %d services died: the test shows little", seed, granted, refused, died)
	}
}

// TestSharedConcurrently checks that services that are asked at the same time grant exactly what there is.
func TestSharedConcurrently(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			const devices, most = 60, 7
			share := open(t)
			var services []*Service
			for i := range 3 {
				s, _ := startShared(t, rules(most), share(fmt.Sprintf("p%d", i)))
				s.SetLoad("north", .1)
				services = append(services, s)
			}
			var granted atomic.Int64
			var g sync.WaitGroup
			for d := range devices {
				g.Go(func() {
					a, err := services[d%len(services)].requestShared(t.Context(), fmt.Sprint(d), "north")
					if err != nil {
						t.Error(err)
					}
					if a.Granted {
						granted.Add(1)
					}
				})
			}
			g.Wait()
			if granted.Load() != most {
				t.Errorf("%d permits of %d", granted.Load(), most)
			}
			for i, s := range services {
				if cells := s.Report(t.Context()).Cells; len(cells[0].Permits) != most {
					t.Errorf("service %d knows %d permits", i, len(cells[0].Permits))
				}
			}
		})
	}
}

// TestSharedLoads checks that a service without a source knows the loads of another one, revokes by them, and
// knows none when that one has died.
func TestSharedLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMemoryEngine()
		a, stop := startShared(t, rules(3), memoryCells{e, "a"})
		b, stopB := startShared(t, rules(3), memoryCells{e, "b"})
		defer stopB()
		setLoad := func(load float64) {
			a.SetLoad("north", load)
			time.Sleep(2 * writeInterval)
			synctest.Wait()
		}
		ask := func() (wireAnswer, *watcher) {
			t.Helper()
			answer, w, err := b.issuePermit(t.Context(), identity.Peer{Name: "phone", Key: keys().phone.Public()},
				request{"north", true})
			if err != nil {
				t.Fatal(err)
			}
			return answer, w
		}
		if got, _ := ask(); got.Granted || !strings.Contains(got.Why, "unknown") {
			t.Errorf("without a load: %+v", got)
		}
		setLoad(.3)
		got, w := ask()
		if !got.Granted || got.Load != .3 || w == nil {
			t.Fatalf("with the load of the other service: %+v", got)
		}
		setLoad(.8)
		select {
		case second := <-w.revoked:
			if second.Granted || !strings.Contains(second.Why, "80 %") {
				t.Errorf("revoked by %+v", second)
			}
		default:
			t.Error("the permit is not revoked")
		}
		if held := a.Report(t.Context()).Cells[0].Permits; len(held) != 0 {
			t.Errorf("the other service counts a revoked permit: %+v", held)
		}
		b.SetLoad("north", .2)
		if got, _ := ask(); got.Granted {
			t.Errorf("the lower load counts: %+v", got)
		}
		stop()
		time.Sleep(29 * time.Second)
		b.SetLoad("north", .2)
		time.Sleep(2 * time.Second)
		if got, _ := ask(); !got.Granted || got.Load != .2 {
			t.Errorf("when the other service has been dead for 30 s: %+v", got)
		}
	})
}

// TestSharedTurns checks that a device that has held its permit for long gives it up for one that waits at another
// service.
func TestSharedTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMemoryEngine()
		a, stop := startShared(t, rules(1), memoryCells{e, "a"})
		defer stop()
		b, stopB := startShared(t, rules(1), memoryCells{e, "b"})
		defer stopB()
		ask := func(s *Service, device string, want bool) {
			t.Helper()
			s.SetLoad("north", .1)
			if got, err := s.requestShared(t.Context(), device, "north"); err != nil || got.Granted != want {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		for range 8 {
			ask(a, "x", true)
			time.Sleep(rules(1).Life / 2)
		}
		ask(a, "x", true)
		ask(b, "y", false)
		time.Sleep(rules(1).Life / 2)
		ask(a, "x", false)
	})
}

// TestSharedLoadMeanwhile checks that a permit is revoked at once if its cell becomes loaded while it is stored.
func TestSharedLoadMeanwhile(t *testing.T) {
	e := newMemoryEngine()
	s, _ := startShared(t, rules(1), memoryCells{e, "a"})
	s.SetLoad("north", .1)
	e.during = sync.OnceFunc(func() { s.SetLoad("north", .9) })
	a, w, err := s.issuePermit(t.Context(), identity.Peer{Name: "phone", Key: keys().phone.Public()},
		request{"north", true})
	if err != nil || !a.Granted || w == nil || len(w.revoked) != 1 {
		t.Errorf("%+v, %+v, %v", a, w, err)
	}
}

// TestSharedProblemEnds checks that a problem that is not noted again ends after its time, which is logged once.
func TestSharedProblemEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s := NewSharedService(Identity{keys().service, trust}, rules(1), []string{"north"},
			memoryCells{newMemoryEngine(), "a"}, slog.New(slog.NewTextHandler(&log, nil)))
		for range 2 {
			s.noteProblemFor(maxLoadAge, "an effect", errors.New("a cause"))
			time.Sleep(maxLoadAge / 2)
		}
		if r := s.Report(t.Context()); len(r.Problems) != 1 {
			t.Errorf("problems %q", r.Problems)
		}
		time.Sleep(maxLoadAge)
		for range 2 {
			if r := s.Report(t.Context()); len(r.Problems) != 0 {
				t.Errorf("problems %q", r.Problems)
			}
		}
		if n := strings.Count(log.String(), "no longer: an effect"); n != 1 {
			t.Errorf("the end is logged %d times: %s", n, log.String())
		}
	})
}

// TestSharedLost checks a service whose engine is lost and comes back: it grants and renews nothing, refuses in a
// loaded cell, revokes, and says why. Nothing is granted twice for an answer that was lost.
func TestSharedLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMemoryEngine()
		s, stop := startShared(t, rules(1), memoryCells{e, "a"})
		defer stop()
		s.SetLoad("north", .1)
		ask := func(device string) (allowance.Answer, error) { return s.requestShared(t.Context(), device, "north") }
		peer := identity.Peer{Name: "phone", Key: keys().phone.Public()}
		_, w, err := s.issuePermit(t.Context(), peer, request{"north", true})
		if err != nil || w == nil {
			t.Fatalf("no permit: %v", err)
		}
		e.lost.Store(true)
		if _, err := ask(peer.Key.ID().String()); !fault.Is(err, fault.Unreachable) {
			t.Errorf("renewed without the engine: %v", err)
		}
		s.SetLoad("north", .1)
		time.Sleep(2 * writeInterval)
		r := s.Report(t.Context())
		if len(r.Problems) != 2 || !strings.Contains(r.Problems[0], grantsNothing) ||
			!strings.Contains(r.Problems[1], "the engine is lost") {
			t.Errorf("problems %q", r.Problems)
		}
		if len(r.Cells[0].Permits) != 1 {
			t.Errorf("known permits are forgotten: %+v", r.Cells)
		}
		s.SetLoad("north", .9)
		if len(w.revoked) != 1 {
			t.Error("the permit is not revoked")
		}
		if a, err := ask("other"); err != nil || a.Granted || !strings.Contains(a.Reason, "90 %") {
			t.Errorf("in a loaded cell: %+v, %v", a, err)
		}
		time.Sleep(10 * time.Second)
		e.lost.Store(false)
		time.Sleep(2 * retryInterval)
		synctest.Wait()
		if r := s.Report(t.Context()); len(r.Problems) != 0 || len(r.Cells[0].Permits) != 0 {
			t.Errorf("when the engine is back: %+v", r)
		}
		s.SetLoad("north", .1)
		e.losesNext.Store(true)
		if _, err := ask("other"); err == nil {
			t.Error("a lost answer is no error")
		}
		if a, err := ask("third"); err != nil || a.Granted {
			t.Errorf("the permit whose answer was lost does not count: %+v, %v", a, err)
		}
		if a, err := ask("other"); err != nil || !a.Granted {
			t.Errorf("asked again: %+v, %v", a, err)
		}
	})
}

// TestSharedForgotten checks that permits count that a service knows, but the engine has lost.
func TestSharedForgotten(t *testing.T) {
	e := newMemoryEngine()
	a, _ := startShared(t, rules(2), memoryCells{e, "a"})
	b, _ := startShared(t, rules(2), memoryCells{e, "b"})
	ask := func(s *Service, device string, want bool) {
		t.Helper()
		s.SetLoad("north", .1)
		if got, err := s.requestShared(t.Context(), device, "north"); err != nil || got.Granted != want {
			t.Errorf("%s: %+v, %v", device, got, err)
		}
	}
	held := func(s *Service, want string) {
		t.Helper()
		devices := ""
		for _, p := range s.Report(t.Context()).Cells[0].Permits {
			devices += p.DeviceID
		}
		if devices != want {
			t.Errorf("permits of %q instead of %q", devices, want)
		}
	}
	ask(a, "x", true)
	held(b, "x")
	ask(a, "y", true)
	e.mu.Lock()
	clear(e.permits)
	clear(e.revision)
	e.mu.Unlock()
	held(a, "xy")
	held(b, "x")
	e.during = func() { // the other service is faster, and does not know of y
		e.during = nil
		ask(b, "z", true)
	}
	ask(a, "w", false)
	held(a, "xyz")
	held(b, "xyz")
	b.SetLoad("north", .9)
	if err := b.editPermits(t.Context(), "north", func(now time.Time) { b.issuer.Revoke(now, "y", "north") }); err != nil {
		t.Error(err)
	}
	held(a, "xz") // what the engine has counts again
}

// TestSharedDevices checks what devices learn from a service whose engine is lost: a permit stays valid.
func TestSharedDevices(t *testing.T) {
	e := newMemoryEngine()
	w := newSharedWorld(t, memoryCells{e, "a"})
	w.s.SetLoad("north", .1)
	phone := w.newClient()
	phone.Cell = "north"
	k, err := newKeeperWithClock(phone.WatchPermit, filepath.Join(t.TempDir(), "permit.jsonl"), quiet, w.now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	waittest.Until(t, "a permit", func() bool { return k.DayLimit().Unlimited })
	cancel()
	<-done
	e.lost.Store(true)
	_, err = phone.RequestPermit(t.Context())
	if !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
		t.Fatalf("%v (%s)", err, fault.KindOf(err))
	}
	own := phone
	own.Key = keys().service
	r, err := own.FetchReport(t.Context())
	if err != nil || r.Engine != "memory" || len(r.Problems) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	var page bytes.Buffer
	if err := r.Print(&page, w.now()); err != nil || !strings.Contains(page.String(), "phone") ||
		!strings.Contains(page.String(), "shared with other services in memory\n"+grantsNothing) {
		t.Errorf("%v\n%s", err, &page)
	}
	w.s.SetLoad("north", .9)
	if a := ask(t, phone); a.Granted {
		t.Errorf("in a loaded cell: %+v", a)
	}
	phone.Cell = "../x"
	if a := ask(t, phone); a.Granted || !strings.Contains(a.Reason, "does not know the cell") {
		t.Errorf("a cell that no service has: %+v", a)
	}
}

// TestSharedRecords checks records that other services may have written: of other clocks, of other rules, and
// damaged.
func TestSharedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMemoryEngine()
		cells := memoryCells{e, "a"}
		s, stop := startShared(t, rules(1), cells)
		defer stop()
		write := func(text string) {
			t.Helper()
			_, revision, _ := cells.ReadPermits(t.Context(), "north")
			if done, err := cells.ReplacePermits(t.Context(), "north", []byte(text), revision); !done || err != nil {
				t.Fatal(done, err)
			}
		}
		ask := func() (allowance.Answer, error) {
			s.SetLoad("north", .1)
			return s.requestShared(t.Context(), "x", "north")
		}
		write("{")
		if _, err := ask(); !fault.Is(err, fault.Integrity) || fault.HintOf(err) == "" {
			t.Errorf("damaged: %v", err)
		}
		write(fmt.Sprintf(`{"permits":[{"device":"y","until":%q}],"last_waiting":%[1]q}`,
			time.Now().Add(1000*time.Hour).Format(time.RFC3339)))
		if a, err := ask(); err != nil || a.Granted {
			t.Errorf("a permit of the future does not count: %+v, %v", a, err)
		}
		time.Sleep(allowance.MaxLife + ClockTolerance - time.Second)
		if a, err := ask(); err != nil || a.Granted {
			t.Errorf("a permit of the longest life does not count: %+v, %v", a, err)
		}
		time.Sleep(time.Second)
		if a, err := ask(); err != nil || !a.Granted {
			t.Errorf("a permit counts for longer than any can: %+v, %v", a, err)
		}
		time.Sleep(rules(1).Life + ClockTolerance - time.Second)
		if got := s.HeldPermits(); len(got) != 1 {
			t.Error("a permit ends before the clock of another service can say so")
		}

		s.takeLoad("b", "south", fmt.Appendf(nil, `{"load":0.2,"at":%q}`,
			time.Now().Add(20*time.Second).Format(time.RFC3339)))
		if r := s.Report(t.Context()); len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "service b") {
			t.Errorf("a clock that is ahead: %q", r.Problems)
		}
		time.Sleep(31 * time.Second)
		if r := s.Report(t.Context()); len(r.Problems) != 0 {
			t.Errorf("a service that reports no more: %q", r.Problems)
		}
		for _, text := range []string{"{", `{"load":2}`, `{"load":-1}`, `{"load":"x"}`,
			`{"load":0.1,"at":"0001-01-01T00:00:00Z"}`} {
			s.takeLoad("c", "south", []byte(text))
		}
		s.takeLoad("c", "nowhere", []byte(`{"load":0.1}`))
		if c := s.Report(t.Context()).Cells[1]; c.Load != nil {
			t.Errorf("a load of more than 30 s ago counts: %v", *c.Load)
		}
		s.SetLoad("south", .1)
		s.takeLoad("c", "south", []byte(`{"load":0.1,"at":"0001-01-01T00:00:00Z"}`))
		if c := s.Report(t.Context()).Cells[1]; c.Load == nil {
			t.Error("an old load of another service replaces this one's")
		}
	})
}

// TestSharedSize checks that the permits of a cell fit into a record.
func TestSharedSize(t *testing.T) {
	e := newMemoryEngine()
	cell := strings.Repeat("c", 64)
	s := NewSharedService(Identity{Key: keys().service}, rules(1000), []string{cell}, memoryCells{e, "a"}, quiet)
	s.SetLoad(cell, .1)
	id := keys().phone.ID().String()
	for n := range MaxSharedPermits + 1 {
		a, err := s.requestShared(t.Context(), fmt.Sprintf("%.*s%04d", len(id)-4, id, n), cell)
		if err != nil || a.Granted != (n < MaxSharedPermits) {
			t.Fatalf("%d: %+v, %v", n, a, err)
		}
	}
	if n := len(e.permits[cell]); n > fleet.MaxValue {
		t.Errorf("%d permits take %d bytes", MaxSharedPermits, n)
	}
}
