// SPDX-License-Identifier: Apache-2.0

//go:build !router

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
)

func topStatus(rate unit.Rate) api.Status {
	return api.Status{Role: "primary", Name: "laptop", UptimeSeconds: 65, MemoryBytes: 20 * unit.MB,
		Devices: []api.Device{{Name: "laptop", Self: true}, {Name: "phone", Online: true},
			{Name: "tablet", Roles: []string{"helper"}}},
		Pipes: []api.Pipe{{Device: "anna", Address: "10.0.0.1:7602", State: api.PipeRetrying,
			Error: "nobody \x1b[2J answers"}},
		Bonds: []api.Bond{{ID: "b1", Peer: "home", Streams: 3, MetaBytes: unit.MB, Subflows: []api.Subflow{
			{ID: 1, Device: "laptop", Kind: api.Direct, State: api.Up, RxRate: 8 * unit.Mbps, PADms: 25,
				BacklogBytes: 64 * unit.KB},
			{ID: 2, Device: "phone", Kind: api.Helped, State: api.Silent, RxRate: rate, TxRate: rate},
			{Device: "laptop/wwan0", State: api.Down, LastError: "no route"},
		}}},
		Helper: &api.HelperStatus{Primary: "anna", Subflows: 2, RelayedBytes: unit.Bytes(rate) / 16},
	}
}

func rowsText(rows []cli.Row) string {
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(strings.TrimRight(r.Text, " ") + "\n")
	}
	return b.String()
}

func TestTopView(t *testing.T) {
	var v topView
	begin := time.Unix(1000, 0)
	for i, rate := range []unit.Rate{0, 0, 8 * unit.Mbps, 16 * unit.Mbps} {
		v.applySnapshot(topSnapshot{begin.Add(time.Duration(i) * topInterval), []api.Status{topStatus(rate)}, nil, nil})
	}
	v.addChangeLine("10:00:00 phone is connected")
	got := rowsText(v.drawTopView(110, 20))
	for _, want := range []string{
		"primary laptop, up 1m5s, 20 MB of memory", "bond b1 with home: 3 streams, 0 datagram flows, 1 MB to schedule",
		"laptop        direct up           8 Mbit/s       0 bit/s      25 ms     64 KB", "TO 32 Mbit/s",
		"▃▃▃▃\n", // 8 of 32, four times
		"phone         helped silent      16 Mbit/s     16 Mbit/s", "    ▅█\n",
		"laptop/wwan0  down: no route", "tablet (helper) is away", "pipe to anna at 10.0.0.1:7602: nobody ?[2J " +
			"answers",
		"anna          relayed, 2          8 Mbit/s", "10:00:00 phone is connected", "q: quit",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	// It fits any size, with the last line at the bottom.
	for width := range 130 {
		for _, height := range []int{0, 1, 2, 5, 9, 40} {
			rows := v.drawTopView(width, height)
			if len(rows) != height {
				t.Fatalf("%d rows on a screen of %d", len(rows), height)
			}
			for _, r := range rows {
				if utf8.RuneCountInString(r.Text) > width {
					t.Fatalf("%q is wider than %d", r.Text, width)
				}
			}
		}
	}
	v.applySnapshot(topSnapshot{begin, nil, errors.New("nobody answers"), nil})
	if got := rowsText(v.drawTopView(80, 24)); !strings.Contains(got, "nobody answers") ||
		strings.Contains(got, "laptop") || len(v.rates) != 0 {
		t.Errorf("after the end:\n%s", got)
	}
}

// TestTopOnload checks the rates of primaries that onload, and the rest of the allowance.
func TestTopOnload(t *testing.T) {
	var v topView
	for i, n := range []unit.Bytes{0, 500_000, 1_500_000} {
		o := &api.OnloadStatus{Listen: ":7604", Open: true, Why: "so much", Bounded: true, DayBytes: 10e6,
			LeftBytes: 8e6, CarriedBytes: 2e6,
			Tunnels: []api.Tunnel{{Device: "laptop", DownBytes: n}, {Device: "anna"}, {Device: "laptop", UpBytes: n}}}
		v.applySnapshot(topSnapshot{time.Unix(1000, 0).Add(time.Duration(i) * topInterval),
			[]api.Status{{Role: "helper", Onload: o}}, nil, nil})
	}
	rows := v.drawTopView(120, 20)
	got := strings.Join(strings.Fields(rowsText(rows)), " ")
	for _, want := range []string{"laptop onloads, 2 32 Mbit/s", "anna onloads, 1 0 bit/s",
		"onloaded today: 2 MB of 10 MB, 8 MB left; 3 connections now"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, rowsText(rows))
		}
	}
	shut := topSnapshot{time.Unix(1002, 0), []api.Status{{Role: "helper",
		Onload: &api.OnloadStatus{Why: "all is used"}}}, nil, nil}
	v.applySnapshot(shut)
	if want := (cli.Row{Text: "onloading closed at : all is used",
		Style: cli.StyleBad}); !slices.Contains(v.drawTopView(120, 20), want) {
		t.Errorf("no %q in\n%s", want.Text, rowsText(v.drawTopView(120, 20)))
	}
}

// TestTopShowsLimits checks tiers, caps, batteries and what keeps devices from carrying, with the
// right colours.
func TestTopShowsLimits(t *testing.T) {
	battery, charging, metered := 15.0, false, true
	s := topStatus(unit.Mbps)
	s.Bonds[0].Subflows[0].Metered, s.Bonds[0].Subflows[1].Tier = true, "secondary"
	s.Bonds[0].Subflows[1].Metered = true
	s.Devices = []api.Device{
		{Name: "laptop", Self: true, Facts: &api.KnownFacts{Facts: api.Facts{BatteryPercent: &battery,
			Charging: &charging}}},
		{Name: "phone", Online: true, Tier: "secondary", Suspended: "its battery \x1b is at 15 %",
			Facts: &api.KnownFacts{Facts: api.Facts{Link: "cellular", Metered: &metered}}},
		{Name: "anna", Online: true, Tier: "primary", Facts: &api.KnownFacts{Refuses: "it is hot"}},
		{Name: "home", Online: true},
		{Name: "tin", Paused: true},
	}
	s.Caps = []api.Cap{{Name: "wlan0", State: "fine", Text: "a little is used"},
		{Name: "wwan0", State: "reached", Text: "all is used"}}
	var v topView
	v.applySnapshot(topSnapshot{time.Unix(1000, 0), []api.Status{s}, nil, nil})
	rows := v.drawTopView(120, 30)
	for want, style := range map[string]int{
		"laptop: battery 15 %": cli.StyleDim, "phone: suspended: its battery ? is at 15 %, tier secondary, " +
			"cellular (metered)": cli.StyleBad,
		"anna: carries nothing now: it is hot": cli.StyleBad, "tin: paused": cli.StyleBad,
		"wlan0: a little is used": cli.StyleDim, "wwan0: all is used": cli.StyleBad,
	} {
		if !slices.Contains(rows, cli.Row{Text: want, Style: style}) {
			t.Errorf("no %q of style %d in\n%s", want, style, rowsText(rows))
		}
	}
	got := rowsText(rows)
	for _, want := range []string{"DEVICE STATE TIER DOWN", "laptop direct up metered 8 Mbit/s",
		"phone helped silent secondary, metered 1 Mbit/s", "anna relayed, 2 - 0 bit/s"} {
		if !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\nhome:") {
		t.Errorf("nothing is to be told of home:\n%s", got)
	}
}

func TestTopKeepsLittle(t *testing.T) {
	var v topView
	for i := range 2 * maxRates {
		v.applySnapshot(topSnapshot{time.Unix(int64(i), 0), []api.Status{topStatus(unit.Mbps)}, nil, nil})
		v.addChangeLine("x")
	}
	for key, list := range v.rates {
		if len(list) != maxRates {
			t.Errorf("%s: %d samples", key, len(list))
		}
	}
	if len(v.changes) != maxChanges {
		t.Errorf("%d changes", len(v.changes))
	}
}

func TestSpark(t *testing.T) {
	for _, c := range []struct {
		values []unit.Rate
		width  int
		top    unit.Rate
		want   string
	}{
		{nil, 3, 0, "   "},
		{[]unit.Rate{0, 1, 8}, 3, 8, " ▂█"},
		{[]unit.Rate{1, 1000}, 4, 1000, "  ▁█"},
		{[]unit.Rate{5, 1, 2, 3, 4}, 2, 4, "▇█"},
		{[]unit.Rate{5}, 1, 0, " "},
	} {
		if got := drawSparkline(c.values, c.width, c.top); got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
}

// TestTop checks that the loop shows an mpbond on a screen in memory and ends with each of its
// keys.
func TestTop(t *testing.T) {
	newHome(t)
	serveStatus(t, func(bool) api.Status { return topStatus(unit.Mbps) })
	for _, key := range []struct {
		key tcell.Key
		r   rune
	}{{tcell.KeyRune, 'q'}, {tcell.KeyEscape, 0}, {tcell.KeyCtrlC, 0}} {
		screen := tcell.NewSimulationScreen("UTF-8")
		if err := screen.Init(); err != nil {
			t.Fatal(err)
		}
		screen.SetSize(100, 24)
		ended := make(chan error)
		go func() { ended <- runTopScreen(t.Context(), screen, []string{api.SocketPath("primary")}) }()
		clitest.AwaitText(t, screen, "primary laptop", "helped silent", "tablet (helper) is away",
			"  curl            2 ")
		screen.SetSize(60, 10)
		clitest.AwaitText(t, screen, "q: quit")
		screen.InjectKey(tcell.KeyRune, 'x', 0) // says nothing
		screen.InjectKey(key.key, key.r, 0)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	screen := tcell.NewSimulationScreen("UTF-8")
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := runTopScreen(ctx, screen, []string{api.SocketPath("primary")}); err != nil {
		t.Error(err)
	}
}

func TestTopNeedsATerminal(t *testing.T) {
	newHome(t)
	code, _, errs := runProgram(t, "top")
	if code != cli.ExitUsage || !strings.Contains(errs, "status --watch") {
		t.Errorf("code %d: %s", code, errs)
	}
}

// TestTopApps checks that rates of apps are over the last second and all their connections, the
// busiest first, and that further apps are counted.
func TestTopApps(t *testing.T) {
	var v topView
	begin := time.Unix(1000, 0)
	for i := range 5 {
		n := unit.Bytes(i) * 62_500 // 1 Mbit/s
		apps := map[string]appTraffic{"b/1": {"curl", 4 * n, 0}, "b/2": {"curl", 3 * n, n},
			"b/udp 1": {"firefox", 0, n}}
		if i == 4 { // one begins, and another one has ended
			apps["b/3"] = appTraffic{"from 192.168.1.9", 125_000, 0}
			delete(apps, "b/udp 1")
			for k := range maxShownApps {
				apps[fmt.Sprint("idle ", k)] = appTraffic{fmt.Sprint("idle", k), 5, 5}
			}
		}
		v.applySnapshot(topSnapshot{begin.Add(time.Duration(i) * topInterval), nil, nil, apps})
		if i == 3 {
			if got := rowsText(v.drawTopView(90, 30)); !strings.Contains(got,
				"  firefox            1       0 bit/s      1 Mbit/s") {
				t.Errorf("no firefox in\n%s", got)
			}
		}
	}
	got := rowsText(v.drawTopView(110, 30))
	for _, want := range []string{
		"  APP               CONNECTIONS          DOWN            UP  LAST", "  curl                        2     " +
			" 7 Mbit/s      1 Mbit/s  ", "███\n",
		"  from 192.168.1.9            1      1 Mbit/s       0 bit/s  ", "  and 2 more with less\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "firefox") || strings.Index(got, "curl") > strings.Index(got, "from 192") {
		t.Errorf("what has ended is there, or the busiest is not first:\n%s", got)
	}
	for width := range 130 {
		for _, height := range []int{0, 1, 2, 5, 9, 40} {
			rows := v.drawTopView(width, height)
			if len(rows) != height {
				t.Fatalf("%d rows of %d", len(rows), height)
			}
			for _, r := range rows {
				if utf8.RuneCountInString(r.Text) > width {
					t.Fatalf("%q is wider than %d", r.Text, width)
				}
			}
		}
	}
	v.applySnapshot(topSnapshot{begin.Add(5 * topInterval), nil, nil, nil})
	if got := rowsText(v.drawTopView(110, 30)); strings.Contains(got, "APP") {
		t.Errorf("no apps, and:\n%s", got)
	}
}
