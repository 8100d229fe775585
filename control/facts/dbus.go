// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/godbus/dbus/v5"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// D-Bus names.
const (
	upower   = "org.freedesktop.UPower"
	nm       = "org.freedesktop.NetworkManager"
	mm       = "org.freedesktop.ModemManager1"
	display  = "/org/freedesktop/UPower/devices/DisplayDevice"
	propsGet = "org.freedesktop.DBus.Properties.GetAll"
)

// askTimeout bounds one Read.
const askTimeout = time.Second

// Bus reads the battery from UPower and the links from NetworkManager and ModemManager over the
// system's D-Bus. It starts none of them. It receives their change signals and reports at most one
// change per settleTime. If NetworkManager has answered before and does not now, as during an
// update, its links stay valid for ReportLifetime: a metered link must not look free meanwhile.
// Read is not safe for concurrent use, but may run beside readCells.
//
// See https://upower.freedesktop.org/docs/, https://networkmanager.dev/docs/api/latest/spec.html
// and https://www.freedesktop.org/software/ModemManager/api/latest/.
type Bus struct {
	conn    *dbus.Conn
	settle  time.Duration
	changed chan struct{}
	done    chan struct{}
	log     *slog.Logger

	links       map[string]Link // NetworkManager's last answer and its time; used by Read
	linksReadAt time.Time

	modems map[dbus.ObjectPath]*modemState // used by readCells and stopReadingCells
}

// settleTime is how long changes are gathered. The signal strength changes all the time.
const settleTime = 5 * time.Second

// OpenBus connects to the system bus. It returns nil if there is none.
func OpenBus(log *slog.Logger) *Bus {
	conn, err := dbus.ConnectSystemBus()
	if err != nil {
		return nil
	}
	return newBus(conn, settleTime, log)
}

func newBus(conn *dbus.Conn, settle time.Duration, log *slog.Logger) *Bus {
	b := &Bus{conn: conn, settle: settle, changed: make(chan struct{}, 1), done: make(chan struct{}),
		log: log, modems: map[dbus.ObjectPath]*modemState{}}
	news := make(chan *dbus.Signal, 64) // godbus drops signals that do not fit; one suffices
	conn.Signal(news)
	for _, name := range []string{upower, nm, mm} {
		// If this fails, the service is still read every ReadInterval.
		_ = conn.AddMatchSignal(dbus.WithMatchSender(name), dbus.WithMatchMember("PropertiesChanged"))
	}
	go b.forwardSignals(news)
	return b
}

// forwardSignals forwards change signals until the connection ends.
func (b *Bus) forwardSignals(news <-chan *dbus.Signal) {
	defer close(b.done)
	var settled <-chan time.Time
	for {
		select {
		case s, ok := <-news:
			switch {
			case !ok:
				return
			case isModemSignal(s): // one a second, which readCells has asked for
			case settled == nil:
				notifyFactsChange(b.changed)
				settled = time.After(b.settle)
			}
		case <-settled:
			settled = nil
			notifyFactsChange(b.changed)
		}
	}
}

// isModemSignal reports whether a signal of D-Bus is about the signal of a modem.
func isModemSignal(s *dbus.Signal) bool {
	return len(s.Body) > 0 && s.Body[0] == any(mm+".Modem.Signal")
}

// Changed implements Source.
func (b *Bus) Changed() <-chan struct{} { return b.changed }

// Close implements Source.
func (b *Bus) Close() {
	b.conn.Close()
	<-b.done
}

// properties are the properties of a D-Bus object, by name.
type properties map[string]dbus.Variant

// dbusProperty returns a property, or zero if it is missing or of another type.
func dbusProperty[T any](p properties, name string) T {
	v, _ := p[name].Value().(T)
	return v
}

// getProperties returns the properties of an object, or nil if it does not exist.
func (b *Bus) getProperties(ctx context.Context, dest string, path dbus.ObjectPath, iface string) properties {
	var p properties
	call := b.conn.Object(dest, path).CallWithContext(ctx, propsGet, dbus.FlagNoAutoStart, iface)
	if call.Store(&p) != nil {
		return nil // the service does not run or has no such object
	}
	return p
}

// Read implements Source.
func (b *Bus) Read() (f Facts) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	b.readUPowerBattery(ctx, &f)
	f.Links = map[string]Link{}
	now := time.Now()
	switch {
	case b.readNetworks(ctx, f.Links):
		b.links, b.linksReadAt = maps.Clone(f.Links), now
	case now.Sub(b.linksReadAt) < ReportLifetime:
		maps.Copy(f.Links, b.links)
	}
	b.readModems(ctx, f.Links)
	return f
}

// States of UPower's batteries (org.freedesktop.UPower.Device, State).
var upowerStates = map[uint32]wire.Power{1: wire.PowerExternal, 2: wire.PowerBattery, 3: wire.PowerBattery,
	4: wire.PowerExternal, 5: wire.PowerExternal, 6: wire.PowerBattery}

// readUPowerBattery reads the battery from UPower. Its DisplayDevice stands for all batteries.
func (b *Bus) readUPowerBattery(ctx context.Context, f *Facts) {
	p := b.getProperties(ctx, upower, display, upower+".Device")
	const battery, ups = 2, 3 // values of Type
	if kind := dbusProperty[uint32](p, "Type"); !dbusProperty[bool](p, "IsPresent") || kind != battery && kind != ups {
		return
	}
	f.Battery = unit.Percent(dbusProperty[float64](p, "Percentage"))
	f.Power = upowerStates[dbusProperty[uint32](p, "State")]
	if t := dbusProperty[float64](p, "Temperature"); t != 0 { // 0: unknown
		f.Temperature = unit.Celsius(t)
	}
}

// Values of NetworkManager's NMMetered and NMDeviceType.
var (
	// 3 and 4 are guesses
	nmMetered = map[uint32]wire.Metered{1: wire.MeteredYes, 2: wire.MeteredNo, 3: wire.MeteredYes, 4: wire.MeteredNo}
	nmTypes   = map[uint32]wire.Radio{2: wire.RadioWiFi, 5: wire.RadioBluetooth, 8: wire.RadioCellular}
)

// readNetworks reads the activated devices of NetworkManager. It reports whether NetworkManager
// answers.
func (b *Bus) readNetworks(ctx context.Context, links map[string]Link) bool {
	manager := b.getProperties(ctx, nm, "/org/freedesktop/NetworkManager", nm)
	if manager == nil {
		return false
	}
	if m := nmMetered[dbusProperty[uint32](manager, "Metered")]; m != wire.MeteredUnknown {
		links[""] = Link{Metered: m}
	}
	for _, path := range dbusProperty[[]dbus.ObjectPath](manager, "Devices") {
		d := b.getProperties(ctx, nm, path, nm+".Device")
		const activated = 100 // value of NMDeviceState
		if dbusProperty[uint32](d, "State") != activated {
			continue
		}
		name := dbusProperty[string](d, "IpInterface")
		if name == "" {
			name = dbusProperty[string](d, "Interface")
		}
		if name == "" {
			continue
		}
		l := Link{Radio: nmTypes[dbusProperty[uint32](d, "DeviceType")], Metered: nmMetered[dbusProperty[uint32](d,
			"Metered")]}
		if l.Radio == wire.RadioWiFi {
			w := b.getProperties(ctx, nm, path, nm+".Device.Wireless")
			if at := dbusProperty[dbus.ObjectPath](w, "ActiveAccessPoint"); at.IsValid() && at != "/" {
				if strength, ok := b.getProperties(ctx, nm, at, nm+".AccessPoint")["Strength"]; ok {
					if n, ok := strength.Value().(byte); ok {
						l.Signal = unit.Percent(float64(n))
					}
				}
			}
		}
		links[name] = l
	}
	return true
}

// quality is ModemManager's SignalQuality.
type quality struct {
	Percent uint32
	Recent  bool
}

// readModems reads the signal of each connected modem from ModemManager.
func (b *Bus) readModems(ctx context.Context, links map[string]Link) {
	objects, _ := b.getModems(ctx) // none if it does not run
	for _, o := range objects {
		m := properties(o[mm+".Modem"])
		var q quality
		if v, ok := m["SignalQuality"]; !ok || v.Store(&q) != nil {
			continue
		}
		for _, name := range b.connectedInterfaces(ctx, m) {
			links[name] = Link{Radio: wire.RadioCellular, Signal: unit.Percent(float64(q.Percent))}.fillLinkFrom(links[name])
		}
	}
}
