// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/identity"
	mydevice "mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/node/primary"
)

// TestCapsNotKept checks that caps for unknown names and servers are reported as not enforced, with
// one warning for each new policy, and that unsaved counts are reported.
func TestCapsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newPairedHome(t)
		trust, err := identity.OpenTrust(filepath.Join(dir, "trust.toml"))
		if err != nil {
			t.Fatal(err)
		}
		var force atomic.Pointer[policy.Rules]
		use := func(names ...string) {
			t.Helper()
			var text string
			for _, name := range names {
				text += fmt.Sprintf("[device.%s]\nmonthly_cap = \"1GB\"\n", name)
			}
			rules, err := primary.ParsePolicy("policy.toml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			force.Store(rules)
		}
		use("lo", "laptop", "nolink0", "my-helper", "my-server")
		r := &role{name: "primary", trust: trust, usage: mydevice.NewUsage(slog.New(slog.DiscardHandler))}
		r.enforceCaps(func(name string) bool { return name == "laptop" }, force.Load)
		says := func(name string) string {
			for _, c := range r.listRoleCaps() {
				if c.Name == name {
					return c.State + ": " + c.Text
				}
			}
			return ""
		}
		for name, want := range map[string]string{
			"lo": "fine: 0 B of the monthly cap of 1 GB used", "laptop": "fine: 0 B",
			"nolink0":   "not_counted: the monthly cap of 1 GB is not enforced: no link",
			"my-helper": "fine: 0 B of the monthly cap of 1 GB used",
			"my-server": "not_counted: the monthly cap of 1 GB is not enforced: no link",
		} {
			if got := says(name); !strings.HasPrefix(got, want) || strings.Contains(got, "restart") {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		var page bytes.Buffer
		if printStatus(&page, api.Status{Caps: r.listRoleCaps()}); !strings.Contains(page.String(),
			"nolink0: the monthly cap") || strings.Contains(page.String(), "laptop:") {
			t.Errorf("status: %s", &page)
		}

		log := &safeBuffer{}
		was := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
		defer slog.SetDefault(was)
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { r.warnUnenforcedCaps(ctx) })
		warned := func(name string, times int) {
			t.Helper()
			time.Sleep(time.Minute)
			if got := strings.Count(log.String(), "name="+name+" "); got != times {
				t.Errorf("%s: %d warnings, want %d:\n%s", name, got, times, log)
			}
		}
		warned("nolink0", 1)
		warned("my-server", 1)
		warned("my-helper", 0)
		warned("laptop", 0)
		use("laptop", "my-helper", "my-server")
		warned("my-server", 2)
		warned("nolink0", 1)
		end()
		all.Wait()

		if err := r.usage.OpenFile(dir); err == nil {
			t.Fatal("usage is kept in a directory")
		}
		if got := says("laptop"); !strings.HasPrefix(got, "fine: 0 B") ||
			!strings.Contains(got, "; a restart would lose the count: ") {
			t.Errorf("it is kept nowhere: %s", got)
		}
	})
}

// TestCapByHostName checks that a primary without a configured name applies caps for its host name
// and for "primary".
func TestCapByHostName(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip("this machine has no name: ", err)
	}
	dir := newPairedHome(t)
	text := fmt.Sprintf("[device.%q]\nmonthly_cap = '1GB'\n[device.primary]\ndaily_cap = '1GB'\n"+
		"[device.my-helper]\ndaily_cap = '1GB'\n[device.nolink0]\ndaily_cap = '1GB'\n", host)
	if err := os.WriteFile(filepath.Join(dir, "policy.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, log := startRole(t, portlessPrimary...)
	c := client.New(api.SocketPath("primary"))
	defer c.Close()
	u, err := c.Usage(t.Context())
	if err != nil || len(u.Caps) != 4 || u.Name != host {
		t.Fatalf("%+v, %v\n%s", u, err, log)
	}
	for _, c := range u.Caps {
		if want := map[string]string{host: "fine", "primary": "fine", "my-helper": "fine",
			"nolink0": api.CapNotCounted}[c.Name]; c.State != want {
			t.Errorf("%+v, want %s", c, want)
		}
	}
	log.awaitText(t, "cap not enforced")
}

// TestBounded checks what the caps of a name limit in each role.
func TestBounded(t *testing.T) {
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for name, roles := range map[string][]identity.Role{"phone": {identity.RoleHelper},
		"laptop": {identity.RolePrimary}, "home": {identity.RoleServer},
		"both": {identity.RoleHelper, identity.RolePrimary}, "me": {identity.RoleHelper, identity.RolePrimary}} {
		key, err := identity.Generate()
		if err == nil {
			err = trust.Add(identity.Peer{Name: name, Roles: roles, Key: key.Public()})
		}
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = key.Public().ID().String()
	}
	for at, want := range map[string]map[string]policy.Purpose{
		"primary": {"phone": policy.ForPipe, "both": policy.ForPipe},
		"helper":  {"laptop": policy.ForHSPath, "both": policy.ForHSPath},
		"dual":    {"phone": policy.ForPipe, "laptop": policy.ForHSPath, "both": policy.ForHSPath},
	} {
		r := &role{name: at, trust: trust}
		for _, name := range []string{"phone", "laptop", "home", "both", "me", "wwan0"} {
			is := mydevice.CapTarget{Link: name}
			if by := want[name]; by != "" {
				is = mydevice.CapTarget{Peer: ids[name], Purpose: by}
			} else if name == "me" {
				is = mydevice.CapTarget{}
			}
			if got := r.resolveCapTarget(func(name string) bool { return name == "me" }, name); got != is {
				t.Errorf("%s at a %s is %+v, want %+v", name, at, got, is)
			}
		}
	}
}
