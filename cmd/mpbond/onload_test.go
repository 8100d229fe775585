// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/porttest"
	"mpbond/base/waittest"
	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
	"mpbond/link/tcp"
	"mpbond/onload/allowance"
	"mpbond/onload/permit"
	"mpbond/onload/relay"
)

// startProcess runs the program until the test ends.
func startProcess(t *testing.T, args ...string) {
	t.Helper()
	cmd := newProcess(args...)
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("%v: %v: %s", args, err, &out)
		}
	})
}

// permitService is an operator's permit service for one cell.
type permitService struct {
	service *permit.Service
	log     clitest.LockedBuffer

	mu   sync.Mutex // one load after the other
	load float64
}

// setLoad sets the load of the cell.
func (p *permitService) setLoad(load float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.load = load
	p.service.SetLoad("north", load)
}

// requestCount returns how many requests the service has answered.
func (p *permitService) requestCount() int { return strings.Count(p.log.String(), "msg=permit ") }

// grantPermits runs a permit service until the test ends. load is the load of its cell. A helper
// that is refused asks again after 5 s, and one with a permit after 10 s.
func grantPermits(t *testing.T, address string, id permit.Identity, load float64) *permitService {
	t.Helper()
	rules := allowance.Rules{Threshold: .7, Life: 20 * time.Second, MaxPermits: 16}
	p := &permitService{}
	var err error
	p.service, err = permit.NewService(id, allowance.NewIssuer(rules, "north"),
		filepath.Join(t.TempDir(), "permits.jsonl"), slog.New(slog.NewTextHandler(&p.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := tcp.Listen(t.Context(), address, tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	p.setLoad(load)
	var running sync.WaitGroup
	running.Go(func() { // a load that is not observed for a while counts as unknown
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.mu.Lock()
				p.service.SetLoad("north", p.load)
				p.mu.Unlock()
			case <-ctx.Done():
				return
			}
		}
	})
	running.Go(func() { _ = p.service.Serve(ctx, l) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		p.service.Close()
	})
	return p
}

// TestOnload checks that a helper without a primary accepts connections while the operator's
// service permits it, shows that, and closes them when its cell is loaded.
func TestOnload(t *testing.T) {
	dir := newHome(t)
	key, trust, err := cli.LoadIdentity()
	if err != nil {
		t.Fatal(err)
	}
	laptop, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]identity.Peer{"laptop": {Key: laptop.Public(),
		Roles: []identity.Role{identity.RolePrimary}},
		// the status of the service, in the same home
		"phone": {Key: key.Public(), Roles: []identity.Role{identity.RoleHelper}}} {
		p.Name = name
		if err := trust.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	service, at := porttest.FreeAddress(t), porttest.FreeAddress(t)
	operator := grantPermits(t, service, permit.Identity{Key: key, Trust: trust}, .91)
	clitest.ReplaceFile(t, filepath.Join(dir, "helper.toml"),
		fmt.Sprintf("battery_floor = 5\n[onload]\nallowance = \"permit %s\"\npermit_key = %q\nlisten = %q\n"+
			"allow = [\"127.0.0.0/8\"]\n", service, key.Public(), at))
	startProcess(t, "helper", "--name", "phone")
	status := func() (st *api.OnloadStatus) {
		t.Helper()
		if all, err := queryStatus(t.Context(), statusSockets(""), false); err == nil {
			st = all[0].Onload
		}
		return st
	}
	eventually := func(what string, ok func(*api.OnloadStatus) bool) {
		t.Helper()
		waittest.UntilSuccess(t, func() error {
			if st := status(); st == nil || !ok(st) {
				return fmt.Errorf("not yet: %s; %+v", what, st)
			}
			return nil
		})
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	defer site.Close()
	d := &relay.Dialer{Key: laptop, Helper: identity.Peer{Name: "phone", Key: key.Public()}, Addresses: []string{at}}
	web := &http.Client{Transport: d.Transport()}
	defer web.CloseIdleConnections()

	eventually("the operator's refusal is shown", func(st *api.OnloadStatus) bool {
		return strings.Contains(st.Why, "load of the cell is 91 %") && !st.Open
	})
	if _, err := web.Get(site.URL); !fault.Is(err, fault.Limit) ||
		!strings.Contains(err.Error(), "load of the cell is 91 %") {
		t.Errorf("%v (%s)", err, fault.KindOf(err))
	}
	operator.setLoad(.3)
	eventually("it is open", func(st *api.OnloadStatus) bool { return st.Open && !st.Bounded })
	a, err := web.Get(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(a.Body)
	a.Body.Close()
	if err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
	if st := status(); st == nil || len(st.Tunnels) != 1 || st.Tunnels[0].Device != "laptop" ||
		st.Tunnels[0].Server != site.Listener.Addr().String() || st.Tunnels[0].DownBytes == 0 {
		t.Errorf("%+v", st)
	}
	if _, out, _ := runProgram(t, "status"); !strings.Contains(out,
		"onloading open at "+at+": the operator permits it until") {
		t.Error(out)
	}
	asked := operator.requestCount()
	operator.setLoad(.9)
	eventually("the operator takes the permit back", func(st *api.OnloadStatus) bool {
		return !st.Open && len(st.Tunnels) == 0
	})
	if n := operator.requestCount(); n != asked {
		t.Errorf("the helper asked %d times until its permit was taken back", n-asked)
	}
	if _, err := web.Get(site.URL); !fault.Is(err, fault.Limit) ||
		!strings.Contains(err.Error(), "load of the cell is 90 %") {
		t.Errorf("%v (%s)", err, fault.KindOf(err))
	}
	if code, _, errs := runProgram(t, "revoke", "laptop"); code != cli.ExitOK {
		t.Fatal(errs)
	}
	eventually("its primary is unknown", func(*api.OnloadStatus) bool {
		_, err := web.Get(site.URL)
		return fault.Is(err, fault.UnknownDevice)
	})
}

// TestOnloadSuspended checks that a device with a low battery cuts its connections off, so that they do
// not look complete, and accepts none. Nor does it accept paused primaries.
func TestOnloadSuspended(t *testing.T) {
	dir := newHome(t)
	key, trust, err := cli.LoadIdentity()
	if err != nil {
		t.Fatal(err)
	}
	laptop := mustGenerate(t)
	if err := trust.Add(identity.Peer{Name: "laptop", Key: laptop.Public(),
		Roles: []identity.Role{identity.RolePrimary}}); err != nil {
		t.Fatal(err)
	}
	at := porttest.FreeAddress(t)
	battery := func(percent int) {
		clitest.ReplaceFile(t, filepath.Join(dir, "facts.toml"),
			fmt.Sprintf("battery_percent = %d\ncharging = false\n", percent))
	}
	battery(60)
	clitest.ReplaceFile(t, filepath.Join(dir, "helper.toml"),
		fmt.Sprintf("battery_floor = 20\n[onload]\nallowance = \"unlimited\"\nlisten = %q\nallow = [\"127.0.0.0/8\"]\n", at))
	startProcess(t, "helper", "--name", "phone")
	until := func(what string, ok func(*api.OnloadStatus) bool) {
		t.Helper()
		var st *api.OnloadStatus
		waittest.UntilSuccess(t, func() error {
			if all, err := queryStatus(t.Context(), statusSockets(""), false); err == nil && all[0].Onload != nil {
				if st = all[0].Onload; ok(st) {
					return nil
				}
			}
			return fmt.Errorf("not yet: %s; %+v", what, st)
		})
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		// the body ends with the connection
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\na part")
		_, _ = io.Copy(io.Discard, c)
	}))
	defer site.Close()
	d := &relay.Dialer{Key: laptop, Helper: identity.Peer{Name: "phone", Key: key.Public()}, Addresses: []string{at}}
	web := &http.Client{Transport: d.Transport()}
	defer web.CloseIdleConnections()
	for _, c := range []struct {
		what       string
		stop, goOn func()
		why        string
	}{
		{"the primary is paused", func() { runProgram(t, "pause", "laptop") },
			func() { runProgram(t, "resume", "laptop") }, "paused"},
		{"its battery is low", func() { battery(9) }, func() {}, "suspended"}, // for half a minute at least
	} {
		until("it is open", func(st *api.OnloadStatus) bool { return st.Open })
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, site.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		var a *http.Response
		waittest.UntilSuccess(t, func() error { // until the relay knows of it
			a, err = web.Do(q)
			return err
		})
		if _, out, _ := runProgram(t, "status"); !strings.Contains(out, "for laptop: 1 connection, ") {
			t.Error(out)
		}
		c.stop()
		text, err := io.ReadAll(a.Body)
		a.Body.Close()
		if err == nil || ctx.Err() != nil || string(text) != "a part" {
			t.Errorf("%s: %q, %v", c.what, text, err)
		}
		until(c.what, func(st *api.OnloadStatus) bool { return len(st.Tunnels) == 0 && st.Open == (c.why == "paused") })
		if _, err := web.Get(site.URL); !fault.Is(err, fault.Limit) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v (%s)", c.what, err, fault.KindOf(err))
		}
		c.goOn()
	}
}

// TestOnloadConfig checks that invalid configurations are reported before anything listens.
func TestOnloadConfig(t *testing.T) {
	key := mustGenerate(t).Public().String()
	for text, want := range map[string]string{
		"allowance = \"caps\"":                                                  "needs interface",
		"allowance = \"caps\"\ninterface = \"wwan0\"":                           "plan",
		"allowance = \"50MB\"\nplan = \"10GB\"":                                 "\"caps\"",
		"allowance = \"caps\"\ninterface=\"w\"\nplan = \"10GB\"\nreset_day=32":  "1 to 31",
		"allowance = \"permit h:1\"":                                            "permit_key",
		"allowance = \"50MB\"\npermit_key = \"" + key + "\"":                    "permit_key",
		"allowance = \"permit h:1\"\npermit_key = \"mpb1\"":                     "key",
		"allowance = \"much\"":                                                  "invalid allowance",
		"allowance = \"50MB\"\nlisten = \"192.0.2.1:7604\"":                     "listen",
		"alowance = \"50MB\"":                                                   "did you mean \"allowance\"",
		"allowance = \"50MB\"\nallow = [\"10.0.0.0\"]":                          "allow",
		"[onload.page]\nto = \"http://h/\"":                                     "allowance",
		"allowance = \"50MB\"\n[onload.page]\nto = \"h\"":                       "not an HTTP URL",
		"allowance = \"50MB\"\n[onload.page]\nto = \"http://h/x\"":              "slash",
		"allowance = \"50MB\"\n[onload.page]\nto = \"http://h/\"\nhome = \"w\"": "interface",
	} {
		clitest.ReplaceFile(t, filepath.Join(newHome(t), "helper.toml"), "[onload]\n"+text)
		code, _, errs := runProgram(t, "helper")
		if code != cli.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %s", text, code, errs)
		}
	}
	newHome(t)
	if code, _, errs := runProgram(t, "helper", "--onload=much"); code != cli.ExitUsage ||
		!strings.Contains(errs, "invalid allowance") {
		t.Errorf("code %d, %s", code, errs)
	}
	newHome(t)
	if code, _, errs := runProgram(t, "helper", "--onload"); code != cli.ExitUsage ||
		!strings.Contains(errs, "--onload=200MB") {
		t.Errorf("code %d, %s", code, errs)
	}
}

// TestOnloadTemplate checks that each commented-out line in the packaged file is a valid setting.
func TestOnloadTemplate(t *testing.T) {
	const name = "../../packaging/helper.toml"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var cfg helperConfig
	err = config.Parse(name, regexp.MustCompile(`(?m)^#(\[|[a-z_]+ = )`).ReplaceAll(text, []byte("$1")), &cfg)
	if o := cfg.Onload; err != nil || o.Allowance.Daily == 0 || len(o.Bills) != 5 || o.PermitCell == "" ||
		o.Page.Home == "" || o.Page.To == "" || cfg.HSInterface == "" {
		t.Errorf("%+v, %v", o, err)
	}
}

func mustGenerate(t *testing.T) *identity.Key {
	t.Helper()
	k, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k
}
