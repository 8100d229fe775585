// SPDX-License-Identifier: Apache-2.0

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

// fakeCarrier is a stream or flow that records its app and when it was set.
type fakeCarrier struct {
	mu   sync.Mutex
	is   endpoint.AppInfo
	at   time.Time
	over bool
}

func (f *fakeCarrier) SetApp(o endpoint.AppInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.is, f.at = o, time.Now()
}

func (f *fakeCarrier) IsDone() bool { return f.over }

func (f *fakeCarrier) currentApp() (endpoint.AppInfo, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.is, f.at
}

// TestOwnerNames: the name of an app, by what is known of it.
func TestOwnerNames(t *testing.T) {
	name := "4000000000"
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	o := newAppFinder(nil)
	o.isLocal = func(a netip.Addr) bool { return a == netip.MustParseAddr("192.168.1.2") }
	at := func(s string) intercept.App { return intercept.App{Addr: netip.MustParseAddrPort(s)} }
	here, there := at("192.168.1.2:4000"), at("192.168.1.9:4000")
	for _, c := range []struct {
		app     intercept.App
		process *policy.Process
		want    endpoint.AppInfo
	}{
		{here, &policy.Process{Exe: "/usr/bin/curl", UID: 4000000000},
			endpoint.AppInfo{App: "curl", Program: "/usr/bin/curl", User: name}},
		{here, &policy.Process{Exe: "/usr/bin/curl", Label: "work", UID: 4000000000},
			endpoint.AppInfo{App: "work", Program: "/usr/bin/curl", Label: "work", User: name}},
		{here, &policy.Process{UID: 4000000000}, endpoint.AppInfo{App: "user " + name, User: name}},
		{here, &policy.Process{Exe: "/tmp/a\xffb", UID: 4000000000},
			endpoint.AppInfo{App: "a\uFFFDb", Program: "/tmp/a\uFFFDb", User: name}},
		{here, nil, endpoint.AppInfo{App: api.AppUnknown}},
		{there, nil, endpoint.AppInfo{App: "from 192.168.1.9"}},
		{at("[fe80::9%eth0]:4000"), nil, endpoint.AppInfo{App: "from fe80::9%eth0"}},
		{intercept.App{}, nil, endpoint.AppInfo{App: api.AppUnknown}},
	} {
		if got := o.identifyApp(appQuery{app: c.app, process: c.process, processKnown: true}); got != c.want {
			t.Errorf("%v %+v: %+v, want %+v", c.app.Addr, c.process, got, c.want)
		}
	}
	for uid := range uint32(4 * maxUserNames) {
		if o.lookUpUserName(4_000_000_000 + uid); len(o.userNames) > maxUserNames {
			t.Fatalf("%d names of users are kept", len(o.userNames))
		}
	}
	if !isLocalAddress(netip.MustParseAddr("127.0.0.9")) || isLocalAddress(netip.MustParseAddr("203.0.113.7")) {
		t.Error("which addresses are of this machine")
	}
}

// TestAppLookupsPause: a slow lookup does not block callers, and later queries wait; nine tenths of
// the time there is no lookup. What a rule has found, or what has ended, is not looked up. Queries
// beyond the queue stay unknown.
func TestAppLookupsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 2 * time.Millisecond
		looks := 0
		o := newAppFinder(func(intercept.App) *policy.Process {
			looks++
			time.Sleep(took)
			return &policy.Process{Exe: "/bin/x" + strconv.Itoa(looks)}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { o.runQueries(ctx); close(ended) }()
		synctest.Wait()
		began := time.Now()
		ask := func(q appQuery) *fakeCarrier {
			f := &fakeCarrier{over: q.conn != nil}
			q.conn = f
			o.queueQuery(q)
			return f
		}
		first, second := ask(appQuery{}), ask(appQuery{})
		over := ask(appQuery{conn: &fakeCarrier{}})
		ruled := ask(appQuery{processKnown: true, process: &policy.Process{Exe: "/bin/ruled"}})
		third := ask(appQuery{})
		if time.Since(began) != 0 {
			t.Errorf("asking took %v", time.Since(began))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i, c := range []struct {
			f     *fakeCarrier
			app   string
			after time.Duration
		}{
			{first, "x1", settleDelay + took}, {second, "x2", settleDelay + 11*took}, {ruled, "ruled", settleDelay + 20*took},
			{third, "x3", settleDelay + 21*took},
		} {
			if is, at := c.f.currentApp(); is.App != c.app || at.Sub(began) != c.after {
				t.Errorf("%d: %+v after %v, want %s after %v", i, is, at.Sub(began), c.app, c.after)
			}
		}
		if is, _ := over.currentApp(); is != (endpoint.AppInfo{}) {
			t.Errorf("what is over is %+v", is)
		}
		var many []*fakeCarrier
		for range 2 * maxQueries {
			many = append(many, ask(appQuery{}))
		}
		if is, at := many[len(many)-1].currentApp(); is.App != api.AppUnknown || !at.Equal(time.Now()) {
			t.Errorf("the last of too many: %+v", is)
		}
		if is, _ := many[0].currentApp(); is.App == api.AppUnknown {
			t.Error("the first of too many is unknown")
		}
		cancel()
		<-ended
	})
}

// TestOwnerOfThis: the program of a real connection is this test.
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
	app := intercept.App{
		Network: "tcp",
		Addr:    c.LocalAddr().(*net.TCPAddr).AddrPort(),
		Peer:    c.RemoteAddr().(*net.TCPAddr).AddrPort(),
	}
	if p.findAppProcess(app) == nil {
		t.Skip("this system does not tell whose a connection is")
	}
	if got := newAppFinder(p.findAppProcess).identifyApp(appQuery{app: app}); got.Program != exe ||
		got.App != filepath.Base(exe) ||
		got.User == "" {
		t.Errorf("%+v, want %s", got, exe)
	}
}
