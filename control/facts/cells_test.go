// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"

	"mpbond/link/estimate"
)

// modemData is the state of a fake modem.
type modemData struct {
	cells     []map[string]dbus.Variant
	refusal   string // name of the error of GetCellInfo; "": none
	rate      uint32 // interval of signals
	fixed     bool   // it cannot be changed
	lte, nr   map[string]dbus.Variant
	enabled   uint32 // sources of the location
	location  map[uint32]dbus.Variant
	isPrivate bool // the location is refused
	isGone    bool // there is no modem
	isBroken  bool // ModemManager fails

	asked, located int      // calls of GetCellInfo and GetLocation
	setUps         []uint32 // intervals that were set
}

// fakeModem is a modem of ModemManager with one connected bearer.
type fakeModem struct {
	mu   sync.Mutex
	data modemData
}

// changeData changes or reads its state.
func (m *fakeModem) changeData(f func(d *modemData)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.data)
}

func (m *fakeModem) GetManagedObjects() (all managedObjects, failed *dbus.Error) {
	m.changeData(func(d *modemData) {
		all = managedObjects{"/sim/0": {mm + ".Sim": {}}}
		if d.isBroken {
			failed = dbus.NewError(mm+".Error.Core.Failed", []any{"no"})
		}
		if d.isGone {
			return
		}
		all["/modem/0"] = map[string]map[string]dbus.Variant{
			mm + ".Modem":          {"Bearers": dbus.MakeVariant([]dbus.ObjectPath{"/bearer/0"})},
			mm + ".Modem.Location": {"Enabled": dbus.MakeVariant(d.enabled)},
			mm + ".Modem.Signal": {"Rate": dbus.MakeVariant(d.rate), "Lte": dbus.MakeVariant(d.lte),
				"Nr5g": dbus.MakeVariant(d.nr)},
		}
	})
	return all, failed
}

func (m *fakeModem) GetCellInfo() (cells []map[string]dbus.Variant, failed *dbus.Error) {
	m.changeData(func(d *modemData) {
		d.asked++
		if cells = d.cells; d.refusal != "" {
			failed = dbus.NewError(d.refusal, []any{"no"})
		}
	})
	return cells, failed
}

func (m *fakeModem) Setup(rate uint32) (failed *dbus.Error) {
	m.changeData(func(d *modemData) {
		if d.setUps = append(d.setUps, rate); d.fixed {
			failed = dbus.NewError(mm+".Error.Core.Unauthorized", []any{"no"})
		} else {
			d.rate = rate
		}
	})
	return failed
}

func (m *fakeModem) GetLocation() (found map[uint32]dbus.Variant, failed *dbus.Error) {
	m.changeData(func(d *modemData) {
		d.located++
		if found = d.location; d.isPrivate {
			failed = dbus.NewError(mm+".Error.Core.Unauthorized", []any{"no"})
		}
	})
	return found, failed
}

// exportModem starts the service on a bus.
func exportModem(t *testing.T, addr string) *fakeModem {
	t.Helper()
	s, m := connect(t, addr), &fakeModem{}
	for path, ifaces := range map[dbus.ObjectPath][]string{
		"/org/freedesktop/ModemManager1": {"org.freedesktop.DBus.ObjectManager"},
		"/modem/0":                       {mm + ".Modem", mm + ".Modem.Signal", mm + ".Modem.Location"},
	} {
		for _, iface := range ifaces {
			if err := s.Export(m, path, iface); err != nil {
				t.Fatal(err)
			}
		}
	}
	export(t, s, "/bearer/0", mm+".Bearer", map[string]any{"Interface": "wwan0", "Connected": true})
	ownBusName(t, s, mm)
	return m
}

// fakeCell returns a cell as GetCellInfo lists it. A zero is left out.
func fakeCell(kind uint32, serving bool, ci string, rsrp float64, servingKind uint32) map[string]dbus.Variant {
	c := map[string]dbus.Variant{"cell-type": dbus.MakeVariant(kind), "serving": dbus.MakeVariant(serving),
		"operator-id": dbus.MakeVariant("26202"), "ci": dbus.MakeVariant(ci)}
	if rsrp != 0 {
		c["rsrp"] = dbus.MakeVariant(rsrp)
	}
	if servingKind != 0 {
		c["serving-cell-type"] = dbus.MakeVariant(servingKind)
	}
	return c
}

// TestReadCells reads the cells of a fake modem on a real bus.
func TestReadCells(t *testing.T) {
	addr := busDaemon(t)
	b := newBus(connect(t, addr), time.Millisecond, slog.New(slog.DiscardHandler))
	defer b.Close()
	if all := b.readCells(); len(all) != 0 {
		t.Errorf("without ModemManager: %+v", all)
	}
	m := exportModem(t, addr)
	power := func(p float64) map[string]dbus.Variant {
		return map[string]dbus.Variant{"rsrp": dbus.MakeVariant(p)}
	}
	place := func(text string) map[uint32]dbus.Variant { return map[uint32]dbus.Variant{1: dbus.MakeVariant(text)} }
	const unsupported = mm + ".Error.Core.Unsupported"
	for _, c := range []struct {
		name string
		with modemData
		want estimate.CellSignal // without At; zero: none
		set  []uint32            // intervals of signals, with the one after stopReadingCells
	}{
		{"serving cell and neighbours", modemData{cells: []map[string]dbus.Variant{
			fakeCell(cellLTE, false, "", -110, 0), fakeCell(cellLTE, true, "1A2B", -104, primaryCell),
			fakeCell(cellLTE, false, "", -101.5, 0), fakeCell(cellNR, false, "", -80, 0)}},
			estimate.CellSignal{RSRP: -104, Neighbour: -101.5, Cell: "26202-1A2B"}, nil},
		{"several serving cells", modemData{cells: []map[string]dbus.Variant{
			fakeCell(cellNR, true, "N", -85, 0), fakeCell(cellLTE, true, "S", -90, 2),
			fakeCell(cellLTE, true, "P", -104, primaryCell)}},
			estimate.CellSignal{RSRP: -104, Cell: "26202-P"}, nil},
		{"5G alone", modemData{cells: []map[string]dbus.Variant{fakeCell(cellNR, true, "N", -85, primaryCell),
			fakeCell(cellNR, false, "", -84, 0), fakeCell(cellLTE, false, "", -70, 0)}},
			estimate.CellSignal{RSRP: -85, Neighbour: -84, Cell: "26202-N"}, nil},
		{"a cell without a name", modemData{cells: []map[string]dbus.Variant{fakeCell(cellLTE, true, "", -85, 0)},
			enabled: 1, location: place("262,02,FFFE,1A2B,5C")}, estimate.CellSignal{RSRP: -85, Cell: "26202-1A2B"}, nil},
		{"powers that no modem can measure", modemData{cells: []map[string]dbus.Variant{
			fakeCell(cellLTE, true, "X", -32768, 0), fakeCell(cellLTE, false, "", math.NaN(), 0)}},
			estimate.CellSignal{Cell: "26202-X"}, []uint32{1, 0}},
		{"a GSM cell", modemData{cells: []map[string]dbus.Variant{fakeCell(2, true, "G", -80, 0)}},
			estimate.CellSignal{}, []uint32{1, 0}},
		{"the signal alone", modemData{refusal: unsupported, lte: power(-99), nr: power(-80), enabled: 1,
			location: place("262,02,FFFE,1A2B,5C")}, estimate.CellSignal{RSRP: -99, Cell: "26202-1A2B"}, []uint32{1, 0}},
		{"another program has set it up", modemData{refusal: unsupported, lte: power(-99), rate: 10},
			estimate.CellSignal{RSRP: -99}, []uint32{1, 10}},
		{"as often as wanted", modemData{refusal: unsupported, nr: power(-99), rate: 1},
			estimate.CellSignal{RSRP: -99}, nil},
		{"without the right to set it up", modemData{refusal: unsupported, nr: power(-99), fixed: true},
			estimate.CellSignal{RSRP: -99}, []uint32{1}},
		{"an unknown cell", modemData{refusal: unsupported, lte: power(-99), rate: 1, enabled: 1,
			location: place("262,02,0,00000000,0")}, estimate.CellSignal{RSRP: -99}, nil},
		{"a location that is not enabled", modemData{refusal: unsupported, lte: power(-99), rate: 1, enabled: 2,
			location: place("262,02,FFFE,1A2B,5C")}, estimate.CellSignal{RSRP: -99}, nil},
		{"a location that is refused", modemData{refusal: unsupported, lte: power(-99), rate: 1, enabled: 1,
			isPrivate: true, location: place("262,02,FFFE,1A2B,5C")}, estimate.CellSignal{RSRP: -99}, nil},
	} {
		clear(b.modems)
		m.changeData(func(d *modemData) { *d = c.with })
		for range 3 {
			all := b.readCells()
			got, found := all["wwan0"]
			if since := time.Since(got.At); found && (since < 0 || since > time.Minute) {
				t.Errorf("%s: read at %v", c.name, got.At)
			}
			if got.At = (time.Time{}); got != c.want || found != (c.want != estimate.CellSignal{}) {
				t.Errorf("%s: %+v, want %+v", c.name, all, c.want)
			}
		}
		b.stopReadingCells()
		m.changeData(func(d *modemData) {
			if once := d.refusal != ""; once && d.asked != 1 || !once && d.asked != 3 {
				t.Errorf("%s: cells were asked for %d times", c.name, d.asked)
			}
			if d.isPrivate && d.located != 1 {
				t.Errorf("%s: the location was asked for %d times", c.name, d.located)
			}
			if !slices.Equal(d.setUps, c.set) {
				t.Errorf("%s: signals were set up with %v, want %v", c.name, d.setUps, c.set)
			}
		})
	}
}

// TestReadCellsAgain checks what is remembered of a modem.
func TestReadCellsAgain(t *testing.T) {
	addr := busDaemon(t)
	b := newBus(connect(t, addr), time.Millisecond, slog.New(slog.DiscardHandler))
	defer b.Close()
	m := exportModem(t, addr)
	asked := func() (n int) { m.changeData(func(d *modemData) { n = d.asked }); return n }
	setUps := func() (all []uint32) { m.changeData(func(d *modemData) { all = slices.Clone(d.setUps) }); return all }

	m.changeData(func(d *modemData) { // that passes
		d.refusal, d.enabled = mm+".Error.Core.InProgress", 1
		d.location = map[uint32]dbus.Variant{1: dbus.MakeVariant("262,02,FFFE,1A2B,5C")}
	})
	for range 2 {
		if all := b.readCells(); len(all) != 0 {
			t.Errorf("the cell has another name until the modem lists cells again: %+v", all)
		}
	}
	if asked() != 2 || !slices.Equal(setUps(), []uint32{1}) {
		t.Errorf("asked %d times, set up with %v", asked(), setUps())
	}
	m.changeData(func(d *modemData) { d.isBroken = true }) // it is asked later, with what is known
	if all := b.readCells(); len(all) != 0 || len(b.modems) != 1 {
		t.Errorf("ModemManager fails: %+v, %+v", all, b.modems)
	}
	m.changeData(func(d *modemData) { d.isBroken, d.rate = false, 0 }) // it has begun again
	b.readCells()
	b.stopReadingCells()
	b.stopReadingCells()
	if want := []uint32{1, 1, 0}; !slices.Equal(setUps(), want) {
		t.Errorf("set up with %v, want %v", setUps(), want)
	}
	m.changeData(func(d *modemData) { d.refusal = mm + ".Error.Core.Unsupported" })
	before := asked()
	for range 3 {
		b.readCells()
		b.stopReadingCells()
	}
	if n := asked() - before; n != 1 {
		t.Errorf("asked %d times for what it refuses", n)
	}
	m.changeData(func(d *modemData) { d.isGone = true })
	if all := b.readCells(); len(all) != 0 || len(b.modems) != 0 {
		t.Errorf("a modem that is gone: %+v, %+v", all, b.modems)
	}
}

// fakeReader is a source with cells.
type fakeReader struct {
	reads int
	log   []string
}

func (*fakeReader) Read() Facts              { return Facts{} }
func (*fakeReader) Changed() <-chan struct{} { return nil }
func (r *fakeReader) Close()                 { r.log = append(r.log, "close") }
func (r *fakeReader) stopReadingCells()      { r.log = append(r.log, fmt.Sprintf("stop after %d", r.reads)) }
func (r *fakeReader) readCells() map[string]estimate.CellSignal {
	r.reads++
	return map[string]estimate.CellSignal{"wwan0": {At: time.Now(), RSRP: -100}}
}

// TestWatchCells checks that modems are asked once a second while that is wanted, and not otherwise.
func TestWatchCells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeReader{}
		k := New(r)
		var wanted atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { k.Run(ctx, nil, wanted.Load); close(ended) }()
		pass := func(seconds int) {
			time.Sleep(time.Duration(seconds)*time.Second + 10*time.Millisecond)
			synctest.Wait()
		}
		if pass(60); r.reads != 0 || len(r.log) != 0 {
			t.Errorf("unwanted: %d reads, %q", r.reads, r.log)
		}
		wanted.Store(true)
		if pass(10); r.reads != 10 || k.Facts().Links["wwan0"].Cell.RSRP != -100 {
			t.Errorf("wanted for 10 s: %d reads, %+v", r.reads, k.Facts())
		}
		wanted.Store(false)
		if pass(30); r.reads != 10 || len(r.log) != 0 {
			t.Errorf("unwanted again: %d reads, %q", r.reads, r.log)
		}
		wanted.Store(true)
		pass(2)
		wanted.Store(false)
		pass(90)
		wanted.Store(true)
		pass(2)
		cancel()
		<-ended
		if want := []string{"stop after 12", "stop after 14", "close"}; !slices.Equal(r.log, want) {
			t.Errorf("%q, want %q", r.log, want)
		}
	})
}

// TestModemCellsYield: while another program reports a link's cell, the modem's own report does not count.
func TestModemCellsYield(t *testing.T) {
	for _, name := range []string{"wwan0", ""} {
		synctest.Test(t, func(t *testing.T) {
			k := New()
			read := func() {
				k.reportModemCells(map[string]estimate.CellSignal{"wwan0": {At: time.Now(), RSRP: -100}})
			}
			rsrp := func() float64 { return k.Facts().Links["wwan0"].Cell.RSRP }
			for range 2 {
				read()
				time.Sleep(time.Second)
			}
			if rsrp() != -100 {
				t.Errorf("by the modem: %v", rsrp())
			}
			for range 5 {
				k.Report(Facts{Links: map[string]Link{name: {Cell: estimate.CellSignal{At: time.Now(), RSRP: -80}}}})
				time.Sleep(time.Second)
				at := k.Facts().Links["wwan0"].Cell.At
				if read(); !k.Facts().Links["wwan0"].Cell.At.Equal(at) {
					t.Error("the modem's report counts beside another one")
				}
			}
			time.Sleep(estimate.SignalLifetime)
			if read(); rsrp() != -100 {
				t.Errorf("when the program has ended: %v", rsrp())
			}
		})
	}
}
