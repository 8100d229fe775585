package primary

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/api"
	"mpbond/control/policy"
	"mpbond/node/endpoint"
	"mpbond/node/intercept"
)

// fakeOwned is a stream or flow that takes down whose it is, and when.
type fakeOwned struct {
	mu   sync.Mutex
	is   endpoint.Owner
	at   time.Time
	over bool
}

func (f *fakeOwned) SetOwner(o endpoint.Owner) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.is, f.at = o, time.Now()
}

func (f *fakeOwned) Done() bool { return f.over }

func (f *fakeOwned) got() (endpoint.Owner, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.is, f.at
}

// TestOwnerNames: what an app is called, by what is known of it.
func TestOwnerNames(t *testing.T) {
	name := "4000000000"
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	o := newOwners(nil)
	o.here = func(a netip.Addr) bool { return a == netip.MustParseAddr("192.168.1.2") }
	at := func(s string) intercept.App { return intercept.App{Addr: netip.MustParseAddrPort(s)} }
	here, there := at("192.168.1.2:4000"), at("192.168.1.9:4000")
	for _, c := range []struct {
		app     intercept.App
		process *policy.Process
		want    endpoint.Owner
	}{
		{here, &policy.Process{Exe: "/usr/bin/curl", UID: 4000000000}, endpoint.Owner{App: "curl", Program: "/usr/bin/curl", User: name}},
		{here, &policy.Process{Exe: "/usr/bin/curl", Label: "work", UID: 4000000000}, endpoint.Owner{App: "work", Program: "/usr/bin/curl", Label: "work", User: name}},
		{here, &policy.Process{UID: 4000000000}, endpoint.Owner{App: "user " + name, User: name}},
		{here, &policy.Process{Exe: "/tmp/a\xffb", UID: 4000000000}, endpoint.Owner{App: "a\uFFFDb", Program: "/tmp/a\uFFFDb", User: name}},
		{here, nil, endpoint.Owner{App: api.AppUnknown}},
		{there, nil, endpoint.Owner{App: "from 192.168.1.9"}},
		{at("[fe80::9%eth0]:4000"), nil, endpoint.Owner{App: "from fe80::9%eth0"}},
		{intercept.App{}, nil, endpoint.Owner{App: api.AppUnknown}},
	} {
		if got := o.answer(question{app: c.app, process: c.process, looked: true}); got != c.want {
			t.Errorf("%v %+v: %+v, want %+v", c.app.Addr, c.process, got, c.want)
		}
	}
	for uid := range uint32(4 * maxUserNames) {
		if o.user(4_000_000_000 + uid); len(o.users) > maxUserNames {
			t.Fatalf("%d names of users are kept", len(o.users))
		}
	}
	if !ofThisMachine(netip.MustParseAddr("127.0.0.9")) || ofThisMachine(netip.MustParseAddr("203.0.113.7")) {
		t.Error("which addresses are of this machine")
	}
}

// TestOwnersRest: a look that takes long holds nobody up who asks, those that
// follow wait, and nine tenths of the time nothing is looked for. What a rule
// has found is not looked for again, nor what is over; what finds no room stays
// unknown.
func TestOwnersRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 2 * time.Millisecond
		looks := 0
		o := newOwners(func(intercept.App) *policy.Process {
			looks++
			time.Sleep(took)
			return &policy.Process{Exe: "/bin/x" + strconv.Itoa(looks)}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { o.run(ctx); close(ended) }()
		synctest.Wait()
		began := time.Now()
		ask := func(q question) *fakeOwned {
			f := &fakeOwned{over: q.of != nil}
			q.of = f
			o.ask(q)
			return f
		}
		first, second := ask(question{}), ask(question{})
		over := ask(question{of: &fakeOwned{}})
		ruled := ask(question{looked: true, process: &policy.Process{Exe: "/bin/ruled"}})
		third := ask(question{})
		if time.Since(began) != 0 {
			t.Errorf("asking took %v", time.Since(began))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i, c := range []struct {
			f     *fakeOwned
			app   string
			after time.Duration
		}{
			{first, "x1", settled + took}, {second, "x2", settled + 11*took}, {ruled, "ruled", settled + 20*took}, {third, "x3", settled + 21*took},
		} {
			if is, at := c.f.got(); is.App != c.app || at.Sub(began) != c.after {
				t.Errorf("%d: %+v after %v, want %s after %v", i, is, at.Sub(began), c.app, c.after)
			}
		}
		if is, _ := over.got(); is != (endpoint.Owner{}) {
			t.Errorf("what is over is %+v", is)
		}
		var many []*fakeOwned
		for range 2 * maxQuestions {
			many = append(many, ask(question{}))
		}
		if is, at := many[len(many)-1].got(); is.App != api.AppUnknown || !at.Equal(time.Now()) {
			t.Errorf("the last of too many: %+v", is)
		}
		if is, _ := many[0].got(); is.App == api.AppUnknown {
			t.Error("the first of too many is unknown")
		}
		cancel()
		<-ended
	})
}

// TestOwnerOfThis: the program of a real connection is this one.
func TestOwnerOfThis(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := newPolicy(new(policy.Rules), nil, nil, nil)
	app := intercept.App{Network: "tcp", Addr: c.LocalAddr().(*net.TCPAddr).AddrPort(), Peer: c.RemoteAddr().(*net.TCPAddr).AddrPort()}
	if p.processOf(app) == nil {
		t.Skip("this system does not tell whose a connection is")
	}
	if got := newOwners(p.processOf).answer(question{app: app}); got.Program != exe || got.App != filepath.Base(exe) || got.User == "" {
		t.Errorf("%+v, want %s", got, exe)
	}
}
