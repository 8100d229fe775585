// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/base/waittest"
	"mpbond/link/tcp"
	"mpbond/onload/allowance"
)

// net/http waits for half a second before it closes a connection with an unread request
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

var keys = sync.OnceValue(func() (k struct{ service, phone, other *identity.Key }) {
	for _, key := range []**identity.Key{&k.service, &k.phone, &k.other} {
		var err error
		if *key, err = identity.Generate(); err != nil {
			panic(err)
		}
	}
	return k
})

var quiet = slog.New(slog.DiscardHandler)

// clock is a time that tests set.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time      { return time.Unix(c.at.Load(), 0) }
func (c *clock) add(d time.Duration) { c.at.Add(int64(d / time.Second)) }
func newClock() (c *clock)           { c = &clock{}; c.at.Store(1_800_000_000); return c }
func rules(most int) allowance.Rules {
	return allowance.Rules{Threshold: .7, Life: time.Minute, MaxPermits: most}
}
func (w *world) newClient() Client {
	return Client{Key: keys().phone, Address: w.addr, Service: keys().service.Public()}
}
func (w *world) restart(path string) { w.stop(); w.serve(path) }
func ask(t *testing.T, a Client) (got allowance.Answer) {
	t.Helper()
	got, err := a.RequestPermit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// world is a listening service.
type world struct {
	*clock
	t     *testing.T
	s     *Service
	trust *identity.Trust
	addr  string
	stop  func()
}

func newWorld(t *testing.T, path string) *world {
	t.Helper()
	w := &world{clock: newClock(), t: t, trust: newTrust(t)}
	w.serve(path)
	return w
}

// newSharedWorld returns a world whose service shares its permits.
func newSharedWorld(t *testing.T, shared Shared) *world {
	t.Helper()
	w := &world{clock: newClock(), t: t, trust: newTrust(t)}
	w.s = NewSharedService(Identity{keys().service, w.trust}, rules(1), []string{"north"}, shared, quiet)
	w.s.now = w.now
	w.listen()
	return w
}

// newTrust returns a trust file with the phone.
func newTrust(t *testing.T) *identity.Trust {
	t.Helper()
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := trust.Add(identity.Peer{Name: "phone", Roles: []identity.Role{identity.RoleHelper},
		Key: keys().phone.Public()}); err != nil {
		t.Fatal(err)
	}
	return trust
}

func (w *world) serve(path string) {
	w.t.Helper()
	issuer := allowance.NewIssuer(rules(1), "north")
	s, err := NewService(Identity{keys().service, w.trust}, issuer, "", quiet)
	s.now, w.s = w.now, s
	if err == nil && path != "" {
		err = s.openPermitJournal(path)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.listen()
}

// listen has the service answer at a new address.
func (w *world) listen() {
	w.t.Helper()
	s := w.s
	l, err := tcp.Listen(w.t.Context(), "127.0.0.1:0", tcp.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.t.Errorf("Serve ended with %v", err)
		}
		s.Close()
	})
	w.t.Cleanup(w.stop)
}

// TestPermits checks that the load decides about permits, and that both sides store valid ones.
func TestPermits(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "permits.jsonl")
	w := newWorld(t, path)
	if a := ask(t, w.newClient()); a.Granted || !strings.Contains(a.Reason, "is unknown") || a.RetryAfter == 0 {
		t.Errorf("%+v", a)
	}
	w.s.SetLoad("north", .5)
	if a := ask(t, w.newClient()); !a.Granted || a.Life != time.Minute || a.Load != .5 || a.Cell != "north" {
		t.Errorf("%+v", a)
	}
	if held := w.s.HeldPermits(); len(held) != 1 || held[0].Device != keys().phone.ID().String() {
		t.Errorf("%+v", held)
	}
	if err := w.trust.Add(identity.Peer{Name: "other", Roles: []identity.Role{identity.RoleHelper},
		Key: keys().other.Public()}); err != nil {
		t.Fatal(err)
	}
	since := w.s.HeldPermits()[0].Since
	w.add(10 * time.Second)
	w.s.SetLoad("north", .5)
	ask(t, w.newClient())
	w.restart(path)
	if held := w.s.HeldPermits(); len(held) != 1 || !held[0].Since.Equal(since) {
		t.Errorf("a permit held since %v was renewed and stored as %+v", since, held)
	}
	w.s.SetLoad("north", .5)
	second := w.newClient()
	second.Key, second.Cell = keys().other, "north"
	if a := ask(t, second); a.Granted || !strings.Contains(a.Reason, "1 devices") {
		t.Errorf("after a restart: %+v", a)
	}
	w.add(time.Minute)
	w.s.SetLoad("north", .5)
	if a := ask(t, second); !a.Granted {
		t.Errorf("when the other one is over: %+v", a)
	}
}

// TestRefusals checks that unknown devices get no permit, and that clients send nothing to other
// services.
func TestRefusals(t *testing.T) {
	w := newWorld(t, "")
	w.s.SetLoad("north", .1)
	for name, c := range map[string]struct {
		change func(*Client)
		kind   fault.Kind
	}{
		"a stranger":      {func(a *Client) { a.Key = keys().other }, fault.UnknownDevice},
		"another service": {func(a *Client) { a.Service = keys().other.Public() }, fault.WrongKey},
		"nobody":          {func(a *Client) { a.Address = "127.0.0.1:1" }, fault.Unreachable},
		"a long cell":     {func(a *Client) { a.Cell = strings.Repeat("x", 100) }, fault.Protocol},
		"a huge cell":     {func(a *Client) { a.Cell = strings.Repeat("x", 2*maxBody) }, fault.Protocol},
	} {
		a := w.newClient()
		c.change(&a)
		if _, err := a.RequestPermit(t.Context()); !fault.Is(err, c.kind) {
			t.Errorf("%s: %v (%s)", name, err, fault.KindOf(err))
		}
	}
	if err := w.trust.SetPaused("phone", true); err != nil {
		t.Fatal(err)
	}
	if _, err := w.newClient().RequestPermit(t.Context()); !fault.Is(err, fault.UnknownDevice) || fault.HintOf(err) == "" {
		t.Errorf("paused: %v", err)
	}
	if held := w.s.HeldPermits(); len(held) != 0 {
		t.Errorf("%+v", held)
	}
	for _, q := range []string{"GET " + permitPath + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST " + permitPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nx{}", "\x00"} {
		c, err := tls.Dial("tcp", w.addr, keys().phone.ClientConfig(keys().service.Public(), ALPN))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, strings.Replace(q, "Host: x", "Host: x\r\nConnection: close", 1))
		_ = c.CloseWrite()
		text, _ := io.ReadAll(c)
		if strings.HasPrefix(string(text), "HTTP/1.1 200") {
			t.Errorf("%q: %s", q, text)
		}
		c.Close()
	}
}

// TestUnclearGrantsAreRefused checks that only a clear grant leads to a permit, and only for a
// limited time.
func TestUnclearGrantsAreRefused(t *testing.T) {
	for body, status := range map[string]int{
		"": 200, "{": 200, "[]": 200, `{"granted":true}`: 200, `{"granted":true,"seconds":-5}`: 200,
		`{"granted":true,"seconds":"x"}`: 200,
		`{"granted":true,"seconds":60}`:  500, `{"granted":true,"seconds":61}`: 403, "<html>": 302,
	} {
		if a, err := parsePermitAnswer(status, []byte(body)); err == nil {
			t.Errorf("%d %s: %+v", status, body, a)
		}
	}
	a, err := parsePermitAnswer(http.StatusOK, []byte(`{"granted":true,"seconds":1e300}`))
	if err != nil || a.Life != allowance.MaxLife {
		t.Errorf("%+v, %v", a, err)
	}
	for _, field := range []string{"retry_after_seconds", "again_seconds"} { // the second one in former versions
		if a, err = parsePermitAnswer(http.StatusOK,
			[]byte(`{"granted":false,"`+field+`":1e300,"why":"\u001b[2Jno"}`)); err != nil ||
			a.RetryAfter != allowance.MaxLife || text.Short(a.Reason, maxReason) != "?[2Jno" {
			t.Errorf("%s: %+v, %v", field, a, err)
		}
	}
}

// TestKeeper checks that a permit is requested, survives a restart, and expires if the service is
// unreachable for its life.
func TestKeeper(t *testing.T) {
	path := filepath.Join(t.TempDir(), "permit.jsonl")
	c := newClock()
	k, err := keptAt(path, c)
	if err != nil {
		t.Fatal(err)
	}
	if k.DayLimit().Unlimited {
		t.Error("a permit before the first request")
	}
	if live, err := NewKeeper(nil, filepath.Join(t.TempDir(), "other.jsonl"), quiet); err != nil ||
		strings.Contains(live.now().String(), "m=") {
		t.Errorf("a clock that stops while the device sleeps: %v, %v", live.now(), err)
	} else {
		live.journal.Close()
	}
	next := k.applyAnswer(c.now(), allowance.Answer{Granted: true, Life: time.Minute}, nil)
	if !k.DayLimit().Unlimited || next.Sub(c.now()) != 30*time.Second {
		t.Errorf("%+v, asks again at %v", k.DayLimit(), next)
	}
	if err := k.journal.Close(); err != nil {
		t.Fatal(err)
	}
	c.add(30 * time.Second)
	if k, err = keptAt(path, c); err != nil {
		t.Fatal(err)
	}
	if !k.DayLimit().Unlimited {
		t.Errorf("after a restart: %+v", k.DayLimit())
	}
	k.applyAnswer(c.now(), allowance.Answer{}, fault.New(fault.Unreachable, errors.New("no route"), ""))
	if got := k.DayLimit(); !got.Unlimited || !strings.Contains(got.Reason, "no route") {
		t.Errorf("while the service is away: %+v", got)
	}
	c.add(30 * time.Second)
	if got := k.DayLimit(); got.Unlimited || !strings.Contains(got.Reason, "no route") {
		t.Errorf("the service has been away for a life: %+v", got)
	}
	k.applyAnswer(c.now(), allowance.Answer{Granted: true, Life: time.Minute}, nil)
	k.applyAnswer(c.now(), allowance.Answer{Reason: "the cell is loaded"}, nil)
	if got := k.DayLimit(); got.Unlimited || !strings.Contains(got.Reason, "the operator refuses: the cell is loaded") {
		t.Errorf("refused: %+v", got)
	}
	if err := k.journal.Close(); err != nil {
		t.Fatal(err)
	}
	if k, err = keptAt(path, c); err != nil {
		t.Fatal(err)
	}
	if k.DayLimit().Unlimited {
		t.Error("a revoked permit exists after a restart")
	}
	if err := k.journal.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestKeeperAsks checks that a Keeper requests permits, tries again without a service, and ends
// with its context.
func TestKeeperAsks(t *testing.T) {
	w := newWorld(t, "")
	w.s.SetLoad("north", .1)
	k, err := NewKeeper(w.newClient().WatchPermit, filepath.Join(t.TempDir(), "permit.jsonl"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	waittest.Until(t, "a permit", func() bool { return k.DayLimit().Unlimited })
	cancel()
	<-done
}

// TestCallers checks that silent connections are limited and time out.
func TestCallers(t *testing.T) {
	w := newWorld(t, "")
	for range maxConnsPerAddress {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if _, err := w.newClient().RequestPermit(t.Context()); err == nil {
		t.Error("connections are not limited")
	}
}

// keptAt returns a Keeper of a file with a given clock.
func keptAt(path string, c *clock) (*Keeper, error) {
	return newKeeperWithClock(nil, path, quiet, c.now)
}
