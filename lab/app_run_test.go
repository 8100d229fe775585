// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/app"
)

// twoOwnLinks returns a network whose primary has two links to the server.
func twoOwnLinks(t *testing.T) *Topology {
	t.Helper()
	top, err := ParseTopology([]byte(`
[node.primary]
routes = ["default via wlan0"]
[node.server]
forward = true
[node.web]
routes = ["default via core"]
[link.core]
ends = ["server", "web"]
[link.wlan0]
ends = ["primary", "server"]
rate = "10Mbit/s"
delay = "10ms"
[link.wwan0]
ends = ["primary", "server"]
rate = "10Mbit/s"
delay = "20ms"
`), ".")
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// TestApps plays scripts over one link or the other, and over both: with TLS from several hosts,
// and with uploads and exchanges.
func TestApps(t *testing.T) {
	t.Parallel()
	needPrograms(t, "curl", "nginx", "ip", "mptcpize")
	if _, err := os.Stat("/proc/sys/net/mptcp/enabled"); err != nil {
		t.Skip("needs a kernel with MPTCP")
	}
	page := app.Script{App: "page", Connections: 2, TLS: true, Requests: []app.Request{{Down: 20_000},
		{Down: 100_000, Stage: 1}, {Down: 150_000, Host: 1, Stage: 1}, {Down: 1, Host: 2, Stage: 2}}}
	chat := app.Script{App: "chat", Connections: 1, Requests: []app.Request{{Up: 2000, Down: 3000},
		{Up: 2000, Down: 3000, Host: 1, Stage: 1}, {Up: 300_000, Stage: 2}}}
	for _, script := range []app.Script{page, chat} {
		p := RunSpec{Topology: twoOwnLinks(t), Reps: 1, KeepDisturbed: true,
			Schemes: []string{"single:if=wlan0", "single:if=wwan0", "mptcp:own:first=wlan0", "mptcp:own:first=wwan0"},
			App:     func(int) app.Script { return script }}
		made := 0
		err := Run(t.Context(), p, func(r Result) {
			made++
			if r.Error != "" || r.App == nil {
				t.Errorf("%s, %s: %s", script.App, r.Scheme, r.Error)
				return
			}
			first, other := "wlan0", "wwan0"
			if r.Scheme == "single:if=wwan0" || r.Scheme == "mptcp:own:first=wwan0" {
				first, other = other, first
			}
			isSingle := strings.HasPrefix(r.Scheme, "single")
			if r.Links[first] == 0 || isSingle && r.Links[other] > 20*unit.KB {
				t.Errorf("%s, %s: %v", script.App, r.Scheme, r.Links)
			}
			if n, counted := r.Notes["mptcp_connections"]; counted && script.App == chat.App && n != int64(3) {
				t.Errorf("%s, %s: %v connections, want one to each host and one to the sink", script.App, r.Scheme, n)
			}
			if up, down := script.Bytes(); r.Bytes != up+down || r.Seconds <= 0 || r.App.LoadTime() > r.Seconds {
				t.Errorf("%s, %s: %+v", script.App, r.Scheme, r)
			}
		})
		if err != nil || made != len(p.Schemes) {
			t.Errorf("%s: %d of %d transfers: %v", script.App, made, len(p.Schemes), err)
		}
	}
}

// TestAppSpecs checks which specs with scripts are refused.
func TestAppSpecs(t *testing.T) {
	script := app.Spotify()
	good := RunSpec{Topology: twoOwnLinks(t), Reps: 1, Schemes: []string{"single"},
		App: func(int) app.Script { return script }}
	if _, err := good.parseSession(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*RunSpec){
		"a size":           func(p *RunSpec) { p.Size = unit.MB },
		"items":            func(p *RunSpec) { p.Items = []unit.Bytes{1} },
		"a length":         func(p *RunSpec) { p.Length = 1 },
		"a scheme without": func(p *RunSpec) { p.Schemes = []string{"combine"} },
		"an empty script":  func(p *RunSpec) { p.App = func(int) app.Script { return app.Script{} } },
	} {
		p := good
		spoil(&p)
		if _, err := p.parseSession(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestTailOfWokenRadios checks for which radios a transfer waits until they sleep.
func TestTailOfWokenRadios(t *testing.T) {
	top := twoOwnLinks(t)
	top.Link["wwan0"].Tail = "3s"
	b := &Bench{Lab: &Lab{Topology: top}}
	stats := func(wlan, wwan int) Stats {
		s := Stats{Links: []LinkStats{{Name: "wlan0"}, {Name: "wwan0"}}}
		s.Links[0].Lines[0].Count.Delivered.Packets = int64(wlan)
		s.Links[1].Lines[1].Count.Delivered.Packets = int64(wwan)
		return s
	}
	for _, c := range []struct {
		name         string
		since, until Stats
		want         time.Duration
	}{
		{"nothing was carried", stats(5, 5), stats(5, 5), 0},
		{"a link without a radio carried something", stats(5, 5), stats(9, 5), 0},
		{"the radio woke", stats(5, 5), stats(5, 6), 3*time.Second + radioSlack},
	} {
		if got := b.tailOfWokenRadios(c.since, c.until); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
