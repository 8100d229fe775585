// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"log/slog"

	"go.uber.org/goleak"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write makes a tree of files below dir, from lines "path: content".
func write(t *testing.T, dir, tree string) {
	t.Helper()
	for line := range strings.Lines(tree) {
		name, content, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSysfs(t *testing.T) {
	for name, c := range map[string]struct {
		tree string
		want Facts
	}{
		"nothing": {"", Facts{}},
		"a laptop on its battery": {`
			class/power_supply/AC/type: Mains
			class/power_supply/AC/online: 0
			class/power_supply/BAT0/type: Battery
			class/power_supply/BAT0/present: 1
			class/power_supply/BAT0/capacity: 43
			class/power_supply/BAT0/status: Discharging
			class/thermal/thermal_zone0/type: x86_pkg_temp
			class/thermal/thermal_zone0/temp: 81000`, Facts{Battery: unit.Percent(43), Power: wire.PowerBattery}},
		"a phone that charges": {`
			class/power_supply/battery/type: Battery
			class/power_supply/battery/capacity: 7
			class/power_supply/battery/status: Charging
			class/power_supply/battery/temp: 384
			class/thermal/thermal_zone3/type: skin-therm
			class/thermal/thermal_zone3/temp: 45000`,
			Facts{Battery: unit.Percent(7), Power: wire.PowerExternal, Temperature: unit.Celsius(38.4)}},
		"two batteries, and a mouse": {`
			class/power_supply/BAT0/type: Battery
			class/power_supply/BAT0/capacity: 5
			class/power_supply/BAT0/status: Unknown
			class/power_supply/BAT1/type: Battery
			class/power_supply/BAT1/capacity: 60
			class/power_supply/BAT1/status: Discharging
			class/power_supply/hid-mouse/type: Battery
			class/power_supply/hid-mouse/scope: Device
			class/power_supply/hid-mouse/capacity: 99
			class/power_supply/hid-mouse/status: Full`, Facts{Battery: unit.Percent(60), Power: wire.PowerBattery}},
		"two batteries, of which one rests": {`
			class/power_supply/AC/type: Mains
			class/power_supply/AC/online: 0
			class/power_supply/BAT0/type: Battery
			class/power_supply/BAT0/capacity: 80
			class/power_supply/BAT0/status: Not charging
			class/power_supply/BAT1/type: Battery
			class/power_supply/BAT1/capacity: 60
			class/power_supply/BAT1/status: Discharging`, Facts{Battery: unit.Percent(80), Power: wire.PowerBattery}},
		"full, and just unplugged": {`
			class/power_supply/AC/type: Mains
			class/power_supply/AC/online: 0
			class/power_supply/BAT0/type: Battery
			class/power_supply/BAT0/capacity: 100
			class/power_supply/BAT0/status: Full`, Facts{Battery: unit.Percent(100), Power: wire.PowerBattery}},
		"full, at one of two sockets": {`
			class/power_supply/AC/type: Mains
			class/power_supply/AC/online: 0
			class/power_supply/ucsi/type: USB
			class/power_supply/ucsi/online: 1
			class/power_supply/BAT0/type: Battery
			class/power_supply/BAT0/capacity: 100
			class/power_supply/BAT0/status: Full`, Facts{Battery: unit.Percent(100), Power: wire.PowerExternal}},
		"one that tells no status, plugged in, warm skin": {`
			class/power_supply/USB/type: USB
			class/power_supply/USB/online: 1
			class/power_supply/b/type: Battery
			class/power_supply/b/capacity: 100
			class/thermal/thermal_zone0/type: skin
			class/thermal/thermal_zone0/temp: 33500`,
			Facts{Battery: unit.Percent(100), Power: wire.PowerExternal, Temperature: unit.Celsius(33.5)}},
		"a bay without a battery, and nonsense": {`
			class/power_supply/AC/type: Mains
			class/power_supply/AC/online: 1
			class/power_supply/BAT1/type: Battery
			class/power_supply/BAT1/present: 0
			class/power_supply/BAT1/capacity: 0
			class/power_supply/BAT2/type: Battery
			class/power_supply/BAT2/capacity: many`, Facts{Power: wire.PowerExternal}},
	} {
		dir := t.TempDir()
		write(t, dir, c.tree)
		if got := (Sysfs{dir}).Read(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// fake is a source of a test.
type fake struct {
	facts   chan Facts // what the next reads return; the last one stays
	last    Facts
	changed chan struct{}
	reads   atomic.Int32
	closed  bool
}

func (f *fake) Read() Facts {
	f.reads.Add(1)
	select {
	case f.last = <-f.facts:
	default:
	}
	return f.last
}
func (f *fake) Changed() <-chan struct{} { return f.changed }
func (f *fake) Close()                   { f.closed = true }

// TestKeeper: the first source that knows a fact counts, and reported facts precede all for ten
// minutes. Each change notifies once.
func TestKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fake{facts: make(chan Facts, 1), changed: make(chan struct{})}, &fake{facts: make(chan Facts, 1)}
		k := New(a, b)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var seen []Facts
		k.OnChange(func(f Facts) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, f)
		})
		done := make(chan struct{})
		go func() { k.Run(ctx, nil, nil); close(done) }()
		want := func(f Facts) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := k.Facts(); !got.hasSameFacts(f) || !seen[len(seen)-1].hasSameFacts(f) {
				t.Fatalf("%+v is known, %+v was reported, not %+v", got, seen[len(seen)-1], f)
			}
		}
		want(Facts{})
		a.facts <- Facts{Battery: unit.Percent(50), Links: map[string]Link{"wlan0": {Signal: unit.Percent(70)}}}
		b.facts <- Facts{Battery: unit.Percent(40), Power: wire.PowerBattery,
			Links: map[string]Link{"wlan0": {Metered: wire.MeteredYes}, "eth0": {}}}
		want(Facts{})
		found := Facts{Battery: unit.Percent(50), Power: wire.PowerBattery,
			Links: map[string]Link{"wlan0": {Signal: unit.Percent(70), Metered: wire.MeteredYes}, "eth0": {}}}
		a.changed <- struct{}{}
		want(found)

		k.Report(Facts{Battery: unit.Percent(10), Links: map[string]Link{"": {Metered: wire.MeteredNo}}})
		reported := found
		reported.Battery, reported.Links = unit.Percent(10), map[string]Link{"": {Metered: wire.MeteredNo},
			"wlan0": found.Links["wlan0"], "eth0": {}}
		want(reported)
		if f := reported.ForLink("wlan0"); f.Metered != wire.MeteredYes || f.Battery.Percent() != 10 ||
			f.Signal.Percent() != 70 {
			t.Errorf("of wlan0: %+v", f)
		}
		if f := reported.ForLink("eth0"); f.Metered != wire.MeteredNo || f.Link != "eth0" {
			t.Errorf("of eth0: %+v", f)
		}
		time.Sleep(ReportLifetime - time.Second)
		want(reported)
		time.Sleep(time.Second + ReadInterval)
		want(found)
		if len(seen) != 4 {
			t.Errorf("%d changes were reported", len(seen))
		}
		if n := a.reads.Load(); n < 20 || n > 30 {
			t.Errorf("read %d times in %v", n, ReportLifetime)
		}
		cancel()
		<-done
		if !a.closed || !b.closed {
			t.Error("a source is left open")
		}
	})
}

// TestFile: an unreadable file keeps its last facts, a missing one has none.
func TestFile(t *testing.T) {
	var log strings.Builder
	f := &File{Path: filepath.Join(t.TempDir(), "facts.toml"), Log: slog.New(slog.NewTextHandler(&log, nil))}
	if got := f.Read(); !got.hasSameFacts(Facts{}) {
		t.Errorf("no file: %+v", got)
	}
	good := Facts{Battery: unit.Percent(55), Power: wire.PowerBattery, Temperature: unit.Celsius(31.5),
		Links: map[string]Link{"": {Radio: wire.RadioCellular, Metered: wire.MeteredYes, Signal: unit.Percent(80)}}}
	for _, c := range []struct {
		text   string
		want   Facts
		warned string
	}{
		{"battery_percent = 55\ncharging = false\ntemperature_c = 31.5\nlink = \"cellular\"\nmetered = true\n" +
			"signal_percent = 80\n", good, ""},
		{"batery_percent = 5\n", good, "battery_percent"},
		{"battery_percent = 101\n", good, "0 to 100"},
		{"temperature_c = nan\n", good, "temperature_c"},
		{"link = \"pigeon\"\n", good, "wifi"},
		{"", Facts{}, ""},
	} {
		log.Reset()
		if err := os.WriteFile(f.Path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := f.Read(); !got.hasSameFacts(c.want) {
			t.Errorf("%q: %+v", c.text, got)
		}
		if f.Read(); strings.Count(log.String(), "\n") > 1 || (log.Len() > 0) != (c.warned != "") ||
			!strings.Contains(log.String(), c.warned) {
			t.Errorf("%q: logged %q", c.text, &log)
		}
	}
}

// TestAPI: facts pass through the API unchanged.
func TestAPI(t *testing.T) {
	yes, no, n := true, false, 55.0
	for _, a := range []api.Facts{
		{BatteryPercent: &n, Charging: &yes, TemperatureC: &n, Link: "wifi", Metered: &no, SignalPercent: &n},
		{Charging: &no, Metered: &yes},
	} {
		f, err := FromAPI(a, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if got := ToAPI(f.ForLink("")); !reflect.DeepEqual(*got, api.KnownFacts{Facts: a}) {
			t.Errorf("%+v becomes %+v", a, got)
		}
	}
	if got := ToAPI(wire.Facts{Link: "eth0"}); got != nil {
		t.Errorf("nothing becomes %+v", got)
	}
	below := -1.0
	if _, err := FromAPI(api.Facts{SignalPercent: &below}, time.Now()); !fault.Is(err, fault.Usage) {
		t.Errorf("a signal of -1 %%: %v", err)
	}
}

// TestCells: cells pass from the API to the links that they are about; what no modem can report is an
// error with a hint and changes nothing.
func TestCells(t *testing.T) {
	at := time.Unix(1e9, 0)
	rsrp, neighbour, speed, battery := -101.5, -97.0, 300.0, 50.0
	f, err := FromAPI(api.Facts{BatteryPercent: &battery, Link: "cellular", Cells: map[string]api.ServingCell{
		"": {Cell: "x"}, "wwan0": {RSRPDBm: &rsrp, NeighbourRSRPDBm: &neighbour, Cell: "26202-7", SpeedKmh: &speed}}}, at)
	if err != nil {
		t.Fatal(err)
	}
	for link, want := range map[string]estimate.CellSignal{"wwan0": {At: at, RSRP: rsrp, Neighbour: neighbour,
		Cell: "26202-7", SpeedKmh: speed}, "wwan1": {}, "": {At: at, Cell: "x"}} {
		if got := f.Links[link].Cell; got != want {
			t.Errorf("%q: %+v", link, got)
		}
	}
	newer := Link{Cell: estimate.CellSignal{At: at.Add(time.Second)}}
	if got := f.Links["wwan0"].fillLinkFrom(newer); got.Cell != newer.Cell {
		t.Errorf("an older report counts: %+v", got)
	}
	for name, c := range map[string]api.ServingCell{
		"rsrp_dbm is -32768": {RSRPDBm: new(-32768.0)}, "rsrp_dbm is 0": {RSRPDBm: new(0.0)},
		"neighbour_rsrp_dbm is NaN": {NeighbourRSRPDBm: new(math.NaN())}, "speed_kmh is -1": {SpeedKmh: new(-1.0)},
		"speed_kmh is NaN": {SpeedKmh: new(math.NaN())}, "speed_kmh is 1e+06": {SpeedKmh: new(1e6)},
		"65 characters": {Cell: strings.Repeat("7", 65)},
	} {
		_, err := FromAPI(api.Facts{Cells: map[string]api.ServingCell{"wwan0": c}}, at)
		if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "cells.\"wwan0\": ") ||
			!strings.Contains(err.Error(), name) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := map[string]api.ServingCell{}
	for i := range 17 {
		many[fmt.Sprint(i)] = api.ServingCell{}
	}
	if _, err := FromAPI(api.Facts{Cells: many}, at); !fault.Is(err, fault.Usage) {
		t.Errorf("17 interfaces: %v", err)
	}
}

// TestCellsInFile: a file states cells as of its last change.
func TestCellsInFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "facts.toml")
	if err := os.WriteFile(path, []byte("[cells.wwan0]\nrsrp_dbm = -99\ncell = \"7\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1e9, 0)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	f := &File{Path: path, Log: slog.New(slog.DiscardHandler)}
	if got, want := f.Read().Links["wwan0"].Cell, (estimate.CellSignal{At: at, RSRP: -99, Cell: "7"}); got != want {
		t.Errorf("%+v", got)
	}
	future := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, future, future); err != nil {
		t.Fatal(err)
	}
	first := f.Read().Links["wwan0"].Cell.At
	if again := f.Read().Links["wwan0"].Cell.At; first.After(time.Now()) || again != first {
		t.Errorf("a report in the future counts from %v, read again from %v", first, again)
	}
}

// TestReportsOfCells: reports of cells and of other facts, by two programs, do not replace each other.
func TestReportsOfCells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := New()
		cell := func(name string) estimate.CellSignal { return estimate.CellSignal{At: time.Now(), Cell: name} }
		expect := func(what string, battery unit.Level, cells map[string]string) {
			t.Helper()
			f := k.Facts()
			if f.Battery != battery {
				t.Errorf("%s: battery %v", what, f.Battery)
			}
			for link, want := range cells {
				if got := f.Links[link].Cell.Cell; got != want {
					t.Errorf("%s: cell %q of %q, want %q", what, got, link, want)
				}
			}
		}
		k.Report(Facts{Battery: unit.Percent(40), Links: map[string]Link{"": {Radio: wire.RadioCellular}}})
		k.Report(Facts{Links: map[string]Link{"m": {Cell: cell("a")}, "": {}}})
		time.Sleep(time.Second)
		k.Report(Facts{Links: map[string]Link{"u": {Cell: cell("b")}}})
		expect("two links", unit.Percent(40), map[string]string{"m": "a", "u": "b"})
		if k.Facts().Links[""].Radio != wire.RadioCellular {
			t.Error("a report of cells replaces the kind of link")
		}
		time.Sleep(time.Second)
		k.Report(Facts{Links: map[string]Link{"u": {Cell: cell("c")}}})
		k.Report(Facts{Battery: unit.Percent(39)})
		expect("another cell, and another level", unit.Percent(39), map[string]string{"m": "a", "u": "c"})
		k.Report(Facts{})
		expect("nothing is known", unit.Level(0), map[string]string{"u": "c"})
		time.Sleep(ReportLifetime + time.Second)
		k.Report(Facts{Links: map[string]Link{"v": {Cell: cell("d")}}})
		expect("ten minutes later", unit.Level(0), map[string]string{"m": "", "u": "", "v": "d"})
	})
}
