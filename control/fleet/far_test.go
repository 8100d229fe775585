// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/natstest"
	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
	"mpbond/control/fleet/natsstore"
	"mpbond/link/pairing"
)

var farTime = flag.Duration("far", 0, "in TestFarServer measure three round trips, count requests for this time each, "+
	"cut the link for that time, and fail if the engine seems lost at any other time; needs an idle machine")

// farLinks are links to the nodes of an engine.
type farLinks []*natstest.Link

// newFarLinks returns links to all nodes of a cluster.
func newFarLinks(t testing.TB, c *natstest.Cluster, roundTrip time.Duration) (list farLinks) {
	for _, n := range c.Nodes {
		list = append(list, natstest.NewLink(t, strings.TrimPrefix(n.URL, "nats://"), roundTrip/2))
	}
	return list
}

func (f farLinks) urls() string {
	var list []string
	for _, l := range f {
		list = append(list, "nats://"+l.Addr())
	}
	return strings.Join(list, ",")
}

// openAt opens an engine that has no users.
func openAt(t testing.TB, urls string) *breakable {
	t.Helper()
	var b *breakable
	waittest.UntilSuccess(t, func() error { // a new cluster has no leader yet
		s, err := natsstore.Open(t.Context(), natsstore.Config{URLs: urls, Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			t.Cleanup(s.Close)
			b = &breakable{Store: s}
		}
		return err
	})
	return b
}

// TestFarServer checks that a server takes part in a fleet whose engine is far away, outlives the loss of its link, and
// logs how long all takes.
func TestFarServer(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Options{Nodes: 3, Discreet: true, Monitor: true})
	near := openAt(t, c.URLs())
	w := newWorldAt(t, near)
	eu := w.joinBy(near, "eu1", nil)
	const longest = 200 * time.Millisecond
	roundTrips := []time.Duration{longest}
	if *farTime > 0 {
		roundTrips = []time.Duration{0, 50 * time.Millisecond, longest}
	}
	for _, roundTrip := range roundTrips {
		links := newFarLinks(t, c, roundTrip)
		began := time.Now()
		store := openAt(t, links.urls())
		opened := time.Since(began)
		usage := newCarried()
		losses := &lossCounter{Handler: slog.DiscardHandler}
		us := w.joinBy(store, "us1", func(c *fleet.MemberConfig) {
			c.CacheFile, c.Usage, c.Log = "", usage.take, slog.New(losses)
		})
		w.awaitReady(us)
		w.Logf("%v: the engine is open after %v, the server is ready after %v", roundTrip, opened, time.Since(began))
		waittest.Until(t, "the operator sees the server", func() bool { return w.seesRunning("us1") })
		silences, stop := w.countSilences("us1")
		w.measureFar(us, usage)
		w.checkServer(us, eu, usage)
		if *farTime > 0 {
			w.countRequests(c)
		}
		stop()
		if *farTime > 0 && (losses.n.Load() != 0 || silences.Load() != 0) {
			t.Errorf("%v: the server lost the engine %d times, and was silent %d times", roundTrip, losses.n.Load(),
				silences.Load())
		}
		if roundTrip == longest {
			w.cutFar(us, links)
			if n := losses.n.Load(); n == 0 || *farTime > 0 && n != 1 {
				t.Errorf("the server logged %d losses of the engine", n)
			}
			w.checkFarQuota(us, usage)
		}
		w.must(us.stop())
	}
}

// lossCounter is a log that counts how often a server has lost the engine.
type lossCounter struct {
	slog.Handler
	n atomic.Int64
}

func (l *lossCounter) Enabled(context.Context, slog.Level) bool { return true }

func (l *lossCounter) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "engine does not answer") {
		l.n.Add(1)
	}
	return nil
}

// countSilences counts how often the report of a server ends, until stop.
func (w *world) countSilences(server string) (n *atomic.Int64, stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	n = &atomic.Int64{}
	go func() {
		isCurrent := false // else what is gone was so before
		ended <- w.store.Watch(ctx, fleet.Servers, func(c fleet.Change) {
			if isCurrent = isCurrent || c.IsCurrent; isCurrent && c.IsGone && c.Key == server {
				n.Add(1)
			}
		})
	}()
	return n, func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
}

// measureFar pairs and revokes devices at a server and counts what they carry, and logs how long that takes.
func (w *world) measureFar(far *member, usage *carried) {
	w.Helper()
	var paired, refused, confirmed []time.Duration
	for range 3 {
		d, code := device{newKey(w)}, w.invite(fleet.InviteTerms{})
		paired = append(paired, w.timePairing(far, d, code))
		began := time.Now()
		done := make(chan error, 1)
		go func() {
			_, behind, err := w.Revoke(w.Context(), d.Public(), time.Minute)
			if err == nil && len(behind) > 0 {
				err = fmt.Errorf("not confirmed by %q", behind)
			}
			done <- err
		}()
		waittest.Until(w, "the server refuses the device", func() bool {
			return !far.Allowed(identity.RolePrimary)(d.Public())
		})
		refused = append(refused, time.Since(began))
		w.must(<-done)
		confirmed = append(confirmed, time.Since(began))
	}
	const devices = 1000
	before, began := w.countRows(w.store), time.Now()
	for range devices {
		usage.list <- fleet.DeviceUsage{Device: newKey(w).ID().String(), Day: time.Now().Format(time.DateOnly),
			Month: fleet.Volume{Down: 1}, All: fleet.Volume{Down: 1}}
	}
	waittest.Until(w, "all is counted", func() bool { return w.countRows(w.store) >= before+devices })
	counted := time.Since(began)
	began = time.Now()
	rows := w.countRows(far.store)
	w.Logf("pairing takes %v; a revoked device is refused after %v, and that is confirmed after %v; %d devices are "+
		"counted after %v; %d records are read in %v", medianDuration(paired),
		medianDuration(refused), medianDuration(confirmed), devices,
		counted, rows, time.Since(began))
}

// countRows returns how many counts an engine has, as read by a store.
func (w *world) countRows(s fleet.Store) int {
	w.Helper()
	rows, err := fleet.ReadUsage(w.Context(), s)
	w.must(err)
	return len(rows)
}

func medianDuration(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

// timePairing has a device use a code, and returns how long the server's requests took.
func (w *world) timePairing(m *member, d device, code pairing.Code) time.Duration {
	w.Helper()
	var began time.Time
	waittest.UntilSuccess(w, func() error { // a replica may learn of the code a moment later
		began = time.Now()
		_, err := m.Registration(w.Context(), code.ID())
		return err
	})
	if _, err := d.enroll(w.Context(), m, code); err != nil {
		w.Fatal(err)
	}
	return time.Since(began)
}

// countRequests logs how many requests two servers make while nothing happens.
func (w *world) countRequests(c *natstest.Cluster) {
	before, err := c.Requests()
	w.must(err)
	time.Sleep(*farTime)
	after, err := c.Requests()
	w.must(err)
	w.Logf("%.1f requests a second of two servers", float64(after-before)/farTime.Seconds())
}

// cutFar cuts the links of a server until it and the operator have noticed, and checks that it goes on meanwhile, and
// catches up afterwards.
func (w *world) cutFar(far *member, links farLinks) {
	w.Helper()
	kept, revoked := device{newKey(w)}, device{newKey(w)}
	for _, d := range []device{kept, revoked} {
		w.timePairing(far, d, w.invite(fleet.InviteTerms{}))
	}
	began := time.Now()
	for _, l := range links {
		l.Cut(true)
	}
	_, behind, err := w.Revoke(w.Context(), revoked.Public(), 0)
	if err != nil || !slices.Contains(behind, "us1") {
		w.Errorf("a server without a link has confirmed a revocation: behind %q, %v", behind, err)
	}
	waittest.Until(w, "the server says that the engine is lost", func() bool { return far.Status().EngineLost })
	waittest.Until(w, "the operator sees that the server is silent", func() bool { return !w.seesRunning("us1") })
	time.Sleep(*farTime - time.Since(began))
	if !knowsDevice(far, kept) || !knowsDevice(far, revoked) {
		w.Error("a server without a link does not serve the devices that it knows")
	}
	for _, l := range links {
		l.Restore()
	}
	began = time.Now()
	w.awaitKnown(far, revoked, false)
	applied := time.Since(began)
	waittest.Until(w, "the engine is back", func() bool { return !far.Status().EngineLost })
	waittest.Until(w, "the operator sees the server", func() bool { return w.seesRunning("us1") })
	w.Logf("the link is back: a revocation is applied after %v, all is well after %v", applied, time.Since(began))
	w.timePairing(far, device{newKey(w)}, w.invite(fleet.InviteTerms{}))
}

// seesRunning reports whether the operator sees that a server runs.
func (w *world) seesRunning(name string) bool {
	v, err := fleet.ReadStatus(w.Context(), w.store)
	w.must(err)
	return slices.ContainsFunc(v.Servers, func(s fleet.ServerView) bool { return s.Name == name && s.State != nil })
}

// checkFarQuota checks that a server learns in time what many others have carried for a device with a quota.
func (w *world) checkFarQuota(far *member, usage *carried) {
	w.Helper()
	const others = 40
	for i := range others {
		w.must(w.AddServer(w.Context(), fleet.Server{Name: fmt.Sprintf("eu%d", i+2), Key: newKey(w).Public(),
			Addresses: []string{"eu.example.org:7600"}}))
	}
	waittest.Until(w, "the server has the list", func() bool { return len(far.Status().List.Servers) == others+2 })
	d := device{newKey(w)}
	w.timePairing(far, d, w.invite(fleet.InviteTerms{Terms: fleet.Terms{Quota: 100 * unit.KB}}))
	other := newCarried()
	eu := w.joinBy(w.store, "eu2", func(c *fleet.MemberConfig) { c.Usage = other.take })
	w.awaitReady(eu)
	carry := func(c *carried, n unit.Bytes) {
		v := fleet.Volume{Down: n}
		c.list <- fleet.DeviceUsage{Device: d.ID().String(), Day: time.Now().Format(time.DateOnly), Month: v, All: v}
	}
	carry(other, 100*unit.KB)
	sum := unit.Bytes(0)
	waittest.Until(w, "the device has used up its quota", func() bool {
		if len(usage.list) == 0 { // it goes on
			sum++
			carry(usage, sum)
		}
		return far.Paused(d.Public())
	})
}

// TestPairingRequests checks that a server waits for four answers of the engine while it pairs a device: the engine may
// be far away.
func TestPairingRequests(t *testing.T) {
	w := newWorld(t)
	engine := w.open()
	store := &pairingStore{Store: engine.Store}
	engine.Store = store
	a := w.joinBy(engine, "eu1", nil)
	w.awaitReady(a)
	code, before := w.invite(fleet.InviteTerms{}), store.requests.Load()
	w.timePairing(a, device{newKey(t)}, code)
	if n := store.requests.Load() - before; n != 4 {
		t.Errorf("the server waited for %d answers", n)
	}
}

// pairingStore counts the requests of a pairing.
type pairingStore struct {
	fleet.Store
	requests atomic.Int64
}

func (p *pairingStore) Get(ctx context.Context, b fleet.Bucket, key string) (fleet.Record, error) {
	if b == fleet.Codes || b == fleet.Devices {
		p.requests.Add(1)
	}
	return p.Store.Get(ctx, b, key)
}

func (p *pairingStore) Create(ctx context.Context, b fleet.Bucket, key string, v []byte, life time.Duration) (uint64,
	error) {
	p.requests.Add(1)
	return p.Store.Create(ctx, b, key, v, life)
}

func (p *pairingStore) Update(ctx context.Context, b fleet.Bucket, r fleet.Record) (uint64, error) {
	p.requests.Add(1)
	return p.Store.Update(ctx, b, r)
}

func (p *pairingStore) Delete(ctx context.Context, b fleet.Bucket, key string, revision uint64) error {
	p.requests.Add(1)
	return p.Store.Delete(ctx, b, key, revision)
}
