// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
	"mpbond/control/fleet/filestore"
	"mpbond/link/pairing"
)

// breakable is a store whose engine can be lost.
type breakable struct {
	fleet.Store
	lost atomic.Bool
	mu   sync.Mutex
	cut  []context.CancelFunc // of watches

	delays  atomic.Bool // the next write of a count fails, and is in delayed
	delayed chan func()
}

var errLost = fault.New(fault.Unreachable, errors.New("the engine is lost"), "")

func (b *breakable) lose(lost bool) {
	b.lost.Store(lost)
	b.mu.Lock()
	defer b.mu.Unlock()
	if lost {
		for _, cut := range b.cut {
			cut()
		}
		b.cut = nil
	}
}

func (b *breakable) err() error {
	if b.lost.Load() {
		return errLost
	}
	return nil
}

func (b *breakable) Get(ctx context.Context, in fleet.Bucket, key string) (fleet.Record, error) {
	if err := b.err(); err != nil {
		return fleet.Record{}, err
	}
	return b.Store.Get(ctx, in, key)
}

func (b *breakable) ListUnder(ctx context.Context, in fleet.Bucket, prefixes []string) ([]fleet.Record, error) {
	if err := b.err(); err != nil {
		return nil, err
	}
	return b.Store.ListUnder(ctx, in, prefixes)
}

func (b *breakable) Create(ctx context.Context, in fleet.Bucket, key string, v []byte, life time.Duration) (uint64,
	error) {
	if err := b.err(); err != nil {
		return 0, err
	}
	if in == fleet.UsageCounts && b.delays.CompareAndSwap(true, false) {
		b.delayed <- func() { _, _ = b.Store.Create(context.Background(), in, key, v, life) }
		return 0, errLost
	}
	return b.Store.Create(ctx, in, key, v, life)
}

func (b *breakable) Update(ctx context.Context, in fleet.Bucket, r fleet.Record) (uint64, error) {
	if err := b.err(); err != nil {
		return 0, err
	}
	if in == fleet.UsageCounts && b.delays.CompareAndSwap(true, false) {
		b.delayed <- func() { _, _ = b.Store.Update(context.Background(), in, r) }
		return 0, errLost
	}
	return b.Store.Update(ctx, in, r)
}

func (b *breakable) Put(ctx context.Context, in fleet.Bucket, key string, v []byte) (uint64, error) {
	if err := b.err(); err != nil {
		return 0, err
	}
	return b.Store.Put(ctx, in, key, v)
}

func (b *breakable) AddEvents(ctx context.Context, events ...fleet.Event) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.Store.AddEvents(ctx, events...)
}

func (b *breakable) Watch(ctx context.Context, in fleet.Bucket, take func(fleet.Change)) error {
	if err := b.err(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.mu.Lock()
	b.cut = append(b.cut, cancel)
	b.mu.Unlock()
	err := b.Store.Watch(ctx, in, take)
	return errors.Join(err, b.err())
}

// world is a fleet on an engine in a directory.
type world struct {
	*testing.T
	dir   string
	store *breakable
	open  func() *breakable // opens the engine for a server
	key   *identity.Key     // of the fleet
	*fleet.Operator
}

func newKey(t testing.TB) *identity.Key {
	t.Helper()
	k, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newStore(t *testing.T, dir string) *breakable {
	t.Helper()
	s, err := filestore.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &breakable{Store: s, delayed: make(chan func(), 1)}
}

// newWorld makes a fleet whose list has the servers eu1, eu2 and us1.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{T: t, dir: t.TempDir(), key: newKey(t)}
	w.open = func() *breakable { return newStore(t, filepath.Join(w.dir, "engine")) }
	w.store = w.open()
	w.Operator = fleet.NewOperator(w.store, w.key)
	w.must(w.Init(t.Context(), "acme"))
	for _, name := range []string{"eu1", "eu2", "us1"} {
		w.must(w.AddServer(t.Context(), fleet.Server{Name: name, Region: name[:2], Key: newKey(t).Public(),
			Addresses: []string{name + ".example.org:7600"}}))
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// member is a running membership.
type member struct {
	*fleet.Member
	store   *breakable
	changes atomic.Int64
	stop    func() error // ends it and returns the error of Run
	done    chan error   // receives the error of Run
}

// join starts the membership of a server, with its own connection to the engine.
func (w *world) join(name string, edit func(*fleet.MemberConfig)) *member {
	w.Helper()
	return w.joinBy(w.open(), name, edit)
}

// joinBy starts the membership of a server by a connection to the engine.
func (w *world) joinBy(store *breakable, name string, edit func(*fleet.MemberConfig)) *member {
	w.Helper()
	m := &member{store: store}
	cfg := fleet.MemberConfig{Server: fleet.Server{Name: name, Region: name[:2], Key: newKey(w).Public()},
		Version:   "test",
		CacheFile: filepath.Join(w.dir, name+".cache"), Log: slog.New(slog.DiscardHandler)}
	if edit != nil {
		edit(&cfg)
	}
	var err error
	m.Member, err = fleet.NewMember(m.store, cfg)
	w.must(err)
	m.SetChanged(func() { m.changes.Add(1) })
	ctx, cancel := context.WithCancel(context.Background())
	m.done = make(chan error, 1)
	go func() { m.done <- m.Run(ctx) }()
	m.stop = func() error {
		cancel()
		err := <-m.done
		m.done <- err // for further calls
		return err
	}
	w.Cleanup(func() { _ = m.stop() })
	return m
}

// awaitReady waits until a member knows the devices.
func (w *world) awaitReady(m *member) {
	w.Helper()
	waittest.Until(w, "the server knows the devices", func() bool { return m.Status().Age >= 0 })
}

// device is a device of the tests.
type device struct{ *identity.Key }

// enroll has a device use a code at a server.
func (d device) enroll(ctx context.Context, m *member, code pairing.Code) (string, error) {
	e := pairing.Enrollee{Key: d.Public(), Name: "phone " + d.ID().String()[:4]}
	claim, err := code.SignClaim(d.Public())
	if err != nil {
		return "", err
	}
	e.Claim = claim
	return m.Enroll(ctx, code.ID(), e)
}

func (w *world) invite(t fleet.InviteTerms) pairing.Code {
	w.Helper()
	if t.Life == 0 {
		t.Life = time.Hour
	}
	code, _, err := w.Invite(w.Context(), t)
	w.must(err)
	return code
}

// knowsDevice reports whether a member serves a device.
func knowsDevice(m *member, d device) bool {
	return m.Allowed(identity.RolePrimary)(d.Public()) && !m.IsStale()
}

func (w *world) awaitKnown(m *member, d device, want bool) {
	w.Helper()
	waittest.Until(w, fmt.Sprintf("%s is served: %v", d.ID(), want), func() bool { return knowsDevice(m, d) == want })
}

// TestOneUse checks that a code is used once, when many devices use it at two servers at once, and that all
// servers then serve that device.
func TestOneUse(t *testing.T) {
	w := newWorld(t)
	a, b := w.join("eu1", nil), w.join("eu2", nil)
	w.awaitReady(a)
	w.awaitReady(b)
	for range 5 {
		code := w.invite(fleet.InviteTerms{Terms: fleet.Terms{Groups: []string{"staff"}, Quota: unit.GB}})
		if len(code.Addrs) == 0 || !code.IsFleet() || pairing.FleetFingerprint(w.key.Public()) != code.Fleet {
			t.Fatalf("code %v", code)
		}
		var g sync.WaitGroup
		var won atomic.Pointer[device]
		for i := range 8 {
			d := device{newKey(t)}
			g.Go(func() {
				at := a
				if i%2 == 1 {
					at = b
				}
				switch _, err := d.enroll(t.Context(), at, code); {
				case err == nil && won.Swap(&d) != nil:
					t.Error("two devices used one code")
				case err != nil && !fault.Is(err, fault.UnknownDevice):
					t.Error(err)
				}
			})
		}
		g.Wait()
		d := won.Load()
		if d == nil {
			t.Fatal("nobody could use the code")
		}
		w.awaitKnown(a, *d, true)
		w.awaitKnown(b, *d, true)
		if _, err := (device{newKey(t)}).enroll(t.Context(), a, code); !fault.Is(err, fault.UnknownDevice) {
			t.Errorf("a used code: %v", err)
		}
	}
	list, damaged, err := fleet.ReadDevices(t.Context(), w.store)
	if err != nil || len(list) != 5 || damaged != 0 {
		t.Errorf("%d devices, %d damaged: %v", len(list), damaged, err)
	}
	for _, d := range list {
		if d.Quota != unit.GB || len(d.Groups) != 1 || !strings.HasPrefix(d.Name, "phone-") {
			t.Errorf("device %+v", d)
		}
	}
}

// TestInterruptedEnrolment checks that a device whose server ended right after the code was used can try again, and
// that no other device can.
func TestInterruptedEnrolment(t *testing.T) {
	w := newWorld(t)
	engine := w.open()
	engine.Store = failCreate{engine.Store} // before the server reads it
	a, b := w.joinBy(engine, "eu1", nil), w.join("eu2", nil)
	w.awaitReady(b)
	code, d := w.invite(fleet.InviteTerms{}), device{newKey(t)}
	if _, err := d.enroll(t.Context(), a, code); !fault.Is(err, fault.Unreachable) {
		t.Fatalf("enrolled without a record: %v", err)
	}
	if _, err := (device{newKey(t)}).enroll(t.Context(), b, code); !fault.Is(err, fault.UnknownDevice) {
		t.Errorf("another device used the code: %v", err)
	}
	if _, err := d.enroll(t.Context(), b, code); err != nil {
		t.Errorf("the same device again: %v", err)
	}
	w.awaitKnown(b, d, true)
}

// failCreate fails to create devices.
type failCreate struct{ fleet.Store }

func (f failCreate) Create(ctx context.Context, b fleet.Bucket, key string, v []byte, life time.Duration) (uint64,
	error) {
	if b == fleet.Devices {
		return 0, errLost
	}
	return f.Store.Create(ctx, b, key, v, life)
}

// TestRevoke checks that a revocation is applied by all servers before Revoke returns, and that a new invitation
// lets the device join again.
func TestRevoke(t *testing.T) {
	w := newWorld(t)
	w.must(w.RemoveServer(t.Context(), "eu2")) // a silent server would not confirm
	a, b := w.join("eu1", nil), w.join("us1", nil)
	w.awaitReady(a)
	w.awaitReady(b)
	d := device{newKey(t)}
	if _, err := d.enroll(t.Context(), a, w.invite(fleet.InviteTerms{})); err != nil {
		t.Fatal(err)
	}
	w.awaitKnown(b, d, true)
	waittest.Until(t, "both servers report", func() bool { return len(a.Status().Running) == 2 })
	began := time.Now()
	_, behind, err := w.Revoke(t.Context(), d.Public(), time.Minute)
	if err != nil || len(behind) != 0 {
		t.Fatalf("behind %v: %v", behind, err)
	}
	if knowsDevice(a, d) || knowsDevice(b, d) {
		t.Error("a server serves the device after the revocation is confirmed")
	}
	t.Logf("confirmed by both servers after %v", time.Since(began).Round(time.Millisecond))
	if a.changes.Load() == 0 {
		t.Error("the server was not told of a change")
	}
	if _, err := d.enroll(t.Context(), b, w.invite(fleet.InviteTerms{})); err != nil {
		t.Fatal(err)
	}
	w.awaitKnown(a, d, true)
	// one that cannot reach the engine is named
	b.store.lose(true)
	_, behind, err = w.Revoke(t.Context(), d.Public(), 100*time.Millisecond)
	if err != nil || len(behind) == 0 {
		t.Errorf("behind %v: %v", behind, err)
	}
}

// TestRulings checks pauses and quotas.
func TestRulings(t *testing.T) {
	w := newWorld(t)
	var usage atomic.Pointer[[]fleet.DeviceUsage]
	usage.Store(&[]fleet.DeviceUsage{})
	a := w.join("eu1", func(c *fleet.MemberConfig) {
		c.Usage = func() []fleet.DeviceUsage { return *usage.Load() }
	})
	w.awaitReady(a)
	d := device{newKey(t)}
	if _, err := d.enroll(t.Context(), a, w.invite(fleet.InviteTerms{Name: "anna",
		Terms: fleet.Terms{Quota: unit.MB}})); err != nil {
		t.Fatal(err)
	}
	if p, ok := a.Lookup(d.Public()); !ok || p.Name != "anna" || !p.HasRole(identity.RolePrimary) ||
		a.Paused(d.Public()) {
		t.Errorf("%+v, %v", p, ok)
	}
	_, _, err := w.Rule(t.Context(), d.Public(), func(r *fleet.Ruling) { r.Paused = true })
	w.must(err)
	waittest.Until(t, "the device is paused", func() bool { return a.Paused(d.Public()) })
	_, _, err = w.Rule(t.Context(), d.Public(), func(r *fleet.Ruling) { r.Paused = false })
	w.must(err)
	waittest.Until(t, "the device is resumed", func() bool { return !a.Paused(d.Public()) })
	day := time.Now().Format(time.DateOnly)
	usage.Store(&[]fleet.DeviceUsage{{Device: d.ID().String(), Day: day, Month: fleet.Volume{Down: 2 * unit.MB},
		All: fleet.Volume{Down: 2 * unit.MB}}})
	waittest.Until(t, "the quota is used up", func() bool { return a.Paused(d.Public()) })
	_, _, err = w.Rule(t.Context(), d.Public(), func(r *fleet.Ruling) { r.Quota = 0 })
	w.must(err)
	waittest.Until(t, "there is no quota any more", func() bool { return !a.Paused(d.Public()) })
}

// TestForgeries checks that records that the fleet's key did not sign change nothing, whoever writes them.
func TestForgeries(t *testing.T) {
	w := newWorld(t)
	a := w.join("eu1", nil)
	w.awaitReady(a)
	good := device{newKey(t)}
	if _, err := good.enroll(t.Context(), a, w.invite(fleet.InviteTerms{})); err != nil {
		t.Fatal(err)
	}
	record, err := w.store.Get(t.Context(), fleet.Devices, good.Public().String())
	w.must(err)
	_, _, err = w.Revoke(t.Context(), good.Public(), 0)
	w.must(err)
	w.awaitKnown(a, good, false)

	// the record from before the revocation, restored
	_, err = w.store.Put(t.Context(), fleet.Devices, record.Key, record.Value)
	w.must(err)
	waitForRevision := func(key string) { // a later record, by which all earlier ones were applied
		t.Helper()
		next := device{newKey(t)}
		if _, err := next.enroll(t.Context(), a, w.invite(fleet.InviteTerms{})); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, key, func() bool { return a.Status().Devices > 0 && knowsDevice(a, next) })
	}
	waitForRevision("the restored record was read")
	// deleted, and then restored
	now, err := w.store.Get(t.Context(), fleet.Devices, record.Key)
	w.must(err)
	devices := a.Status().Devices
	w.must(w.store.Delete(t.Context(), fleet.Devices, record.Key, now.Revision))
	waittest.Until(t, "the deletion was read", func() bool { return a.Status().Devices < devices })
	_, err = w.store.Put(t.Context(), fleet.Devices, record.Key, record.Value)
	w.must(err)
	// a second device by a code that has let one in
	used := w.invite(fleet.InviteTerms{})
	if _, err := (device{newKey(t)}).enroll(t.Context(), a, used); err != nil {
		t.Fatal(err)
	}
	second := newKey(t).Public()
	claim, err := used.SignClaim(second)
	w.must(err)
	list, _, err := fleet.ReadDevices(t.Context(), w.store)
	w.must(err)
	for _, d := range list {
		if d.Code == used.ID() {
			r, err := w.store.Get(t.Context(), fleet.Devices, d.Key.String())
			w.must(err)
			var fields map[string]any
			w.must(json.Unmarshal(r.Value, &fields))
			fields["key"], fields["claim"] = second.String(), claim[:]
			forged, err := json.Marshal(fields)
			w.must(err)
			_, err = w.store.Put(t.Context(), fleet.Devices, second.String(), forged)
			w.must(err)
		}
	}
	// a device in the place of another, with the other's invitation
	thief := device{newKey(t)}
	var fields map[string]any
	w.must(json.Unmarshal(record.Value, &fields))
	fields["key"] = thief.Public().String()
	forged, err := json.Marshal(fields)
	w.must(err)
	_, err = w.store.Put(t.Context(), fleet.Devices, thief.Public().String(), forged)
	w.must(err)
	// a device invited by the key of another fleet
	other := fleet.NewOperator(newStore(t, t.TempDir()), newKey(t))
	w.must(other.Init(t.Context(), "other"))
	// records of no sense
	for key, value := range map[string]string{"mpb1nonsense": "{}", newKey(t).Public().String(): "{", "x": ""} {
		_, err = w.store.Put(t.Context(), fleet.Devices, key, []byte(value))
		w.must(err)
	}
	next := device{newKey(t)} // whose record follows
	if _, err := next.enroll(t.Context(), a, w.invite(fleet.InviteTerms{})); err != nil {
		t.Fatal(err)
	}
	b := w.join("eu2", nil)
	w.awaitKnown(b, next, true)
	for _, m := range []*member{a, b} {
		if knowsDevice(m, thief) {
			t.Error("a device with the invitation of another is served")
		}
	}
	if knowsDevice(a, good) {
		t.Error("a restored record has undone a revocation")
	}
	if a.Allowed(identity.RolePrimary)(second) {
		t.Error("a code has let a second device in")
	}
	if _, damaged, err := fleet.ReadDevices(t.Context(), w.store); damaged != 4 || err != nil {
		t.Errorf("%d damaged records: %v", damaged, err)
	}
}

// TestUsedCode checks that a device whose server's last answer was lost can use its code again, at any server, as long
// as the code lives, and that this undoes no later decision.
func TestUsedCode(t *testing.T) {
	w := newWorld(t)
	engine := w.open()
	lives := &codeLives{Store: engine.Store}
	engine.Store = lives // before the server reads it
	a, b := w.joinBy(engine, "eu1", nil), w.join("eu2", nil)
	w.awaitReady(a)
	w.awaitReady(b)
	first, d := w.invite(fleet.InviteTerms{Life: time.Hour, Name: "anna"}), device{newKey(t)}
	use := func(m *member, code pairing.Code, want string) {
		t.Helper()
		if _, err := m.Registration(t.Context(), code.ID()); err != nil {
			t.Error(err)
		}
		if name, err := d.enroll(t.Context(), m, code); name != want || err != nil {
			t.Errorf("it is %q, not %q: %v", name, want, err)
		}
	}
	use(a, first, "anna")
	if lives.life < time.Hour || lives.life > 2*time.Hour {
		t.Errorf("the used record lives for %v", lives.life)
	}
	use(a, first, "anna")
	use(b, first, "anna")
	if _, err := (device{newKey(t)}).enroll(t.Context(), a, first); !fault.Is(err, fault.UnknownDevice) {
		t.Errorf("a code of another device: %v", err)
	}
	use(a, w.invite(fleet.InviteTerms{Name: "berta"}), "berta")
	use(b, first, "anna") // that name is in its code
	list, damaged, err := fleet.ReadDevices(t.Context(), w.store)
	if err != nil || len(list) != 1 || damaged != 0 || list[0].Name != "berta" {
		t.Errorf("devices %+v, %d damaged: %v", list, damaged, err)
	}
	_, _, err = w.Revoke(t.Context(), d.Public(), 10*time.Second)
	w.must(err)
	if _, err := d.enroll(t.Context(), b, first); !fault.Is(err, fault.UnknownDevice) || knowsDevice(b, d) {
		t.Errorf("a code has undone a revocation: %v", err)
	}
	waittest.Until(t, "all events are written", func() bool { return a.Status().Waiting+b.Status().Waiting == 0 })
	paired := 0
	w.must(w.store.Events(t.Context(), time.Time{}, false, func(e fleet.Event) {
		if e.Kind == "paired" {
			paired++
		}
	}))
	if paired != 2 {
		t.Errorf("%d events of devices that were paired", paired)
	}
}

// codeLives notes the life of the last code that was updated.
type codeLives struct {
	fleet.Store
	life time.Duration
}

func (k *codeLives) Update(ctx context.Context, b fleet.Bucket, r fleet.Record) (uint64, error) {
	if b == fleet.Codes {
		k.life = r.Life
	}
	return k.Store.Update(ctx, b, r)
}
