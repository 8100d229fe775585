// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"mpbond/control/facts"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// factsOfCell returns facts about the cell of an interface.
func factsOfCell(iface string, s estimate.CellSignal) facts.Facts {
	return facts.Facts{Links: map[string]facts.Link{iface: {Cell: s}}}
}

// TestHandoffWatch follows a link through handoffs that are foreseen and not, and through alarms.
func TestHandoffWatch(t *testing.T) {
	w := &handoffWatch{isMobile: func(iface string) bool { return iface == "wwan0" },
		log: slog.New(slog.DiscardHandler), links: map[string]*watchedLink{}}
	now := time.Unix(1e9, 0)
	report := func(neighbour float64, cell string) (probability float64, handedOff bool) {
		t.Helper()
		now = now.Add(time.Second)
		h := w.takeFacts(factsOfCell("wwan0", estimate.CellSignal{At: now, RSRP: -100, Neighbour: neighbour, Cell: cell,
			SpeedKmh: 300}), nil, now)
		if len(h) != 1 || !h["wwan0"].Until.Equal(now.Add(estimate.SignalLifetime)) {
			t.Fatalf("%+v", h)
		}
		return h["wwan0"].Probability, h["wwan0"].HandedOff
	}
	const weak, strong = -120, -90 // of the neighbour
	expect := func(what string, handoffs, foreseen, alarms int) {
		t.Helper()
		l := w.listHandoffs(now).Links
		if len(l) != 1 || l[0].Interface != "wwan0" || l[0].Count != handoffs || l[0].Foreseen != foreseen ||
			l[0].FalseAlarms != alarms {
			t.Errorf("%s: %+v", what, l)
		}
	}
	report(weak, "a")
	expect("the first report", 0, 0, 0)
	if p, _ := report(strong, "a"); p < alarmProbability {
		t.Errorf("a strong neighbour: %v", p)
	}
	if _, handedOff := report(weak, "b"); !handedOff {
		t.Error("the handoff is missed")
	}
	expect("a foreseen handoff", 1, 1, 0)
	report(weak, "c")
	expect("another one", 2, 1, 0)
	report(strong, "c")
	for range 5 {
		report(weak, "c")
	}
	expect("a false alarm", 2, 1, 1)
	last := w.listHandoffs(now).Links[0].Last
	if now.Sub(last) != 6*time.Second {
		t.Errorf("the last handoff was %v ago", now.Sub(last))
	}

	// The same report again, and one of another interface.
	f := factsOfCell("wwan0", estimate.CellSignal{At: now, RSRP: -100, Cell: "d"})
	if h := w.takeFacts(f, []string{"wwan0", "wlan0"}, now); len(h) != 0 {
		t.Errorf("old reports: %+v", h)
	}
	report(strong, "f")
	now = now.Add(time.Second)
	report(weak, "f")
	report(weak, "g")
	expect("a handoff 3 s after an alarm", 4, 1, 2)
	report(strong, "g")
	now = now.Add(1200 * time.Millisecond)
	report(weak, "h") // 2.2 s later
	expect("a handoff between two reports", 5, 2, 2)
	report(strong, "h")
	for range 5 {
		report(weak, "")
	}
	expect("the cell is no longer named", 5, 2, 2)
	report(strong, "h")
	now = now.Add(time.Minute)
	report(weak, "h")
	expect("nothing is reported after an alarm", 5, 2, 2)
	if _, handedOff := report(strong, "i"); !handedOff {
		t.Error("the handoff after a pause is missed")
	}
	now = now.Add(10 * time.Second)
	if _, handedOff := report(weak, "j"); handedOff {
		t.Error("a handoff at an unknown time within ten seconds is passed on")
	}
	now = now.Add(-time.Hour) // the clock is set back
	report(weak, "h")
	expect("the clock is set back", 0, 0, 0)
	for i := range 3 * maxHandoffs { // a modem that names another cell each time
		report(strong, fmt.Sprint(i))
	}
	if l := w.links["wwan0"]; len(l.handoffs) > maxHandoffs || len(l.falseAlarms) > maxHandoffs {
		t.Errorf("%d handoffs and %d alarms are kept", len(l.handoffs), len(l.falseAlarms))
	}
	now = now.Add(handoffMemory + time.Second)
	if l := w.listHandoffs(now).Links; len(l) != 0 {
		t.Errorf("after an hour without reports: %+v", l)
	}
}

// TestReportsOfTheInternetLink: a report about the link to the Internet, whatever its name, is about the
// interfaces of modems, or about the only one. A named report is about that one alone.
func TestReportsOfTheInternetLink(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		own  []string
		want []string
	}{{nil, nil}, {[]string{"eth0"}, []string{"eth0"}}, {[]string{"wlan0", "wwan0"}, []string{"wwan0"}},
		{[]string{"wlan0", "eth0"}, nil}, {[]string{"wwan0", "wwan1"}, nil},
		{[]string{"usb0", "eth0"}, []string{"usb0"}}} {
		w := &handoffWatch{isMobile: isMobileInterface, log: slog.New(slog.DiscardHandler),
			links: map[string]*watchedLink{}}
		f := factsOfCell("", estimate.CellSignal{At: now, RSRP: -100})
		f.Links["usb0"] = facts.Link{Radio: wire.RadioCellular}
		h := w.takeFacts(f, c.own, now)
		if got := slices.Sorted(maps.Keys(h)); !slices.Equal(got, c.want) {
			t.Errorf("own subflows over %v: a report about %v, want %v", c.own, got, c.want)
		}
	}
	w := &handoffWatch{isMobile: isMobileInterface, log: slog.New(slog.DiscardHandler), links: map[string]*watchedLink{}}
	f := factsOfCell("wwan0", estimate.CellSignal{At: now, Cell: "a"})
	f.Links[""] = facts.Link{Cell: estimate.CellSignal{At: now.Add(time.Millisecond), Cell: "b"}}
	if w.takeFacts(f, []string{"wwan0", "wlan0"}, now.Add(time.Second)); w.links["wwan0"].last.Cell != "a" {
		t.Errorf("the named report does not count: %+v", w.links["wwan0"].last)
	}
}

// TestHasMobileLink: an interface is that of a modem by its name, or by what is reported of it.
func TestHasMobileLink(t *testing.T) {
	w := &handoffWatch{isMobile: func(iface string) bool { return iface == "wwan0" }}
	reported := facts.Facts{Links: map[string]facts.Link{"usb0": {Radio: wire.RadioCellular}, "eth0": {}}}
	for _, c := range []struct {
		own  []string
		want bool
	}{{nil, false}, {[]string{"eth0"}, false}, {[]string{"eth0", "wwan0"}, true}, {[]string{"usb0"}, true}} {
		if got := w.hasMobileLink(reported, c.own); got != c.want {
			t.Errorf("%v: %v", c.own, got)
		}
	}
}
