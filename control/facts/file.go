// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"time"

	"mpbond/api"
	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// File is a TOML file that another program writes, such as a script on a device with no other
// source. Its keys are the JSON names of api.Facts. A missing file has no facts. If the file cannot
// be read, the last facts stay.
type File struct {
	Path    string
	Changes <-chan struct{} // gets a value when the file may have changed
	Stop    func()          // ends Changes
	Log     *slog.Logger

	last      Facts
	lastError string // the last error
	// lastChange is the file's time of modification, changedAt the one that counts.
	lastChange, changedAt time.Time
}

// Changed implements Source.
func (f *File) Changed() <-chan struct{} { return f.Changes }

// Close implements Source.
func (f *File) Close() {
	if f.Stop != nil {
		f.Stop()
	}
}

// Read implements Source.
func (f *File) Read() Facts {
	var stated api.Facts
	err := config.Load(f.Path, &stated)
	if fault.Is(err, fault.NotFound) {
		f.last, f.lastError = Facts{}, ""
		return f.last
	}
	var now Facts
	if err == nil {
		now, err = FromAPI(stated, f.modifiedAt())
	}
	if err == nil {
		f.last, f.lastError = now, ""
	} else if err.Error() != f.lastError {
		f.lastError = err.Error()
		f.Log.Warn("cannot read facts, keeping the last ones", "file", f.Path, "err", err, "hint",
			fault.HintOf(err))
	}
	return f.last
}

// modifiedAt returns when the file was last changed: what it states was true then. By a clock that was
// wrong that may be later than now; then it is when it was first read.
func (f *File) modifiedAt() time.Time {
	info, err := userfile.Stat(f.Path)
	if err != nil {
		return time.Time{}
	}
	if changed := info.ModTime(); changed != f.lastChange {
		f.lastChange, f.changedAt = changed, changed
		if now := time.Now(); changed.After(now) {
			f.changedAt = now
		}
	}
	return f.changedAt
}

// radioByName maps the API's names of link kinds.
var radioByName = map[string]wire.Radio{"wired": wire.RadioNone, "wifi": wire.RadioWiFi,
	"cellular": wire.RadioCellular, "bluetooth": wire.RadioBluetooth}

// FromAPI converts facts from the API or a file, which were reported at a time. Errors are faults.
func FromAPI(a api.Facts, at time.Time) (f Facts, err error) {
	bad := func(err error, hint string) (Facts, error) { return Facts{}, fault.New(fault.Usage, err, hint) }
	percent := func(name string, v *float64, to *unit.Level) error {
		switch {
		case v == nil:
			return nil
		case *v >= 0 && *v <= 100:
			*to = unit.Percent(*v)
			return nil
		}
		return fmt.Errorf("%s is %v", name, *v)
	}
	var l Link
	if err := percent("battery_percent", a.BatteryPercent, &f.Battery); err != nil {
		return bad(err, "give a number from 0 to 100")
	}
	if err := percent("signal_percent", a.SignalPercent, &l.Signal); err != nil {
		return bad(err, "give a number from 0 to 100")
	}
	if a.TemperatureC != nil {
		if f.Temperature = unit.Celsius(*a.TemperatureC); f.Temperature == 0 {
			return bad(fmt.Errorf("temperature_c is %v", *a.TemperatureC), "give °C from -100 to 200")
		}
	}
	if a.Charging != nil {
		if f.Power = wire.PowerBattery; *a.Charging {
			f.Power = wire.PowerExternal
		}
	}
	if a.Metered != nil {
		if l.Metered = wire.MeteredNo; *a.Metered {
			l.Metered = wire.MeteredYes
		}
	}
	if a.Link != "" {
		radio, ok := radioByName[a.Link]
		if !ok {
			return bad(fmt.Errorf("link is %.40q", a.Link), "use wired, wifi, cellular or bluetooth")
		}
		l.Radio = radio
	}
	if l != (Link{}) || len(a.Cells) > 0 {
		f.Links = map[string]Link{"": l}
	}
	if len(a.Cells) > maxCells {
		return bad(fmt.Errorf("cells has %d interfaces", len(a.Cells)), fmt.Sprintf("give at most %d", maxCells))
	}
	for name, c := range a.Cells {
		l := f.Links[name]
		if l.Cell, err = cellFromAPI(c, at); err != nil {
			return bad(fmt.Errorf("cells.%.40q: %w", name, err), "leave out what is unknown")
		}
		f.Links[name] = l
	}
	return f, nil
}

// Bounds of reports about cells.
const (
	maxCells    = 16
	maxCellName = 64
	maxSpeedKmh = 1000
)

// cellFromAPI converts a report about a cell, which came at a time.
func cellFromAPI(c api.ServingCell, at time.Time) (s estimate.CellSignal, err error) {
	s = estimate.CellSignal{At: at, Cell: c.Cell}
	for _, x := range []struct {
		name string
		from *float64
		to   *float64
	}{{"rsrp_dbm", c.RSRPDBm, &s.RSRP}, {"neighbour_rsrp_dbm", c.NeighbourRSRPDBm, &s.Neighbour}} {
		switch {
		case x.from == nil:
		case estimate.IsRSRP(*x.from):
			*x.to = *x.from
		default:
			return s, fmt.Errorf("%s is %v, not a power in dBm from -156 to -20", x.name, *x.from)
		}
	}
	if len(c.Cell) > maxCellName {
		return s, fmt.Errorf("cell has %d characters, more than %d", len(c.Cell), maxCellName)
	}
	if v := c.SpeedKmh; v != nil {
		if math.IsNaN(*v) || *v < 0 || *v > maxSpeedKmh {
			return s, fmt.Errorf("speed_kmh is %v, not a speed from 0 to %d", *v, maxSpeedKmh)
		}
		s.SpeedKmh = *v
	}
	return s, nil
}

// ToAPI converts facts for the API; nil if none is known.
func ToAPI(f wire.Facts) *api.KnownFacts {
	a := api.KnownFacts{Interface: f.Link, Refuses: f.RefusalReason}
	if f.Battery.Known() {
		v := float64(f.Battery.Percent())
		a.BatteryPercent = &v
	}
	if f.Power != wire.PowerUnknown {
		v := f.Power == wire.PowerExternal
		a.Charging = &v
	}
	if f.Temperature != 0 {
		v := f.Temperature.Celsius()
		a.TemperatureC = &v
	}
	if f.Metered != wire.MeteredUnknown {
		v := f.Metered == wire.MeteredYes
		a.Metered = &v
	}
	if f.Signal.Known() {
		v := float64(f.Signal.Percent())
		a.SignalPercent = &v
	}
	for name, r := range radioByName {
		if r == f.Radio && r != wire.RadioNone {
			a.Link = name
		}
	}
	if reflect.DeepEqual(a, api.KnownFacts{Interface: a.Interface}) {
		return nil
	}
	return &a
}
