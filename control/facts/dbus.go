package facts

import (
	"context"
	"maps"
	"time"

	"github.com/godbus/dbus/v5"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Names on the bus.
const (
	upower   = "org.freedesktop.UPower"
	nm       = "org.freedesktop.NetworkManager"
	mm       = "org.freedesktop.ModemManager1"
	display  = "/org/freedesktop/UPower/devices/DisplayDevice"
	propsGet = "org.freedesktop.DBus.Properties.GetAll"
)

// askTimeout bounds all that one Read asks.
const askTimeout = time.Second

// Bus asks UPower about the battery, and NetworkManager and ModemManager about
// links, on the system's D-Bus, as far as they run: nothing is started for it.
// It hears when one of them says that something has changed, at most once in
// settleTime. While NetworkManager, having answered, does not, as when it is
// updated, its links hold on for Lasts: paid ones are not free meanwhile. Read is for
// one goroutine.
//
// See https://upower.freedesktop.org/docs/, https://networkmanager.dev/docs/api/latest/spec.html
// and https://www.freedesktop.org/software/ModemManager/api/latest/.
type Bus struct {
	conn    *dbus.Conn
	settle  time.Duration
	changed chan struct{}
	done    chan struct{}

	links map[string]Link // as NetworkManager told them last, and when; of Read
	at    time.Time
}

// settleTime is how long news are gathered: a signal's strength sways all the
// time.
const settleTime = 5 * time.Second

// OpenBus connects to the system bus; nil where there is none.
func OpenBus() *Bus {
	conn, err := dbus.ConnectSystemBus()
	if err != nil {
		return nil
	}
	return newBus(conn, settleTime)
}

func newBus(conn *dbus.Conn, settle time.Duration) *Bus {
	b := &Bus{conn: conn, settle: settle, changed: make(chan struct{}, 1), done: make(chan struct{})}
	news := make(chan *dbus.Signal, 64) // godbus drops what does not fit: one is enough
	conn.Signal(news)
	for _, name := range []string{upower, nm, mm} {
		// Who refuses this is asked each Every all the same.
		_ = conn.AddMatchSignal(dbus.WithMatchSender(name), dbus.WithMatchMember("PropertiesChanged"))
	}
	go b.listen(news)
	return b
}

// listen tells of signals until the connection ends.
func (b *Bus) listen(news <-chan *dbus.Signal) {
	defer close(b.done)
	var settled <-chan time.Time
	for {
		select {
		case _, ok := <-news:
			switch {
			case !ok:
				return
			case settled == nil:
				tell(b.changed)
				settled = time.After(b.settle)
			}
		case <-settled:
			settled = nil
			tell(b.changed)
		}
	}
}

// Changed implements Source.
func (b *Bus) Changed() <-chan struct{} { return b.changed }

// Close implements Source.
func (b *Bus) Close() {
	b.conn.Close()
	<-b.done
}

// properties are those of an object, by name.
type properties map[string]dbus.Variant

// get is one of them, the zero T where it is not there or something else.
func get[T any](p properties, name string) T {
	v, _ := p[name].Value().(T)
	return v
}

func (b *Bus) properties(ctx context.Context, dest string, path dbus.ObjectPath, iface string) properties {
	var p properties
	call := b.conn.Object(dest, path).CallWithContext(ctx, propsGet, dbus.FlagNoAutoStart, iface)
	if call.Store(&p) != nil {
		return nil // that one does not run, or has no such object
	}
	return p
}

// Read implements Source.
func (b *Bus) Read() (f Facts) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	b.power(ctx, &f)
	f.Links = map[string]Link{}
	now := time.Now()
	switch {
	case b.networks(ctx, f.Links):
		b.links, b.at = maps.Clone(f.Links), now
	case now.Sub(b.at) < Lasts:
		maps.Copy(f.Links, b.links)
	}
	b.modems(ctx, f.Links)
	return f
}

// States of UPower's batteries: org.freedesktop.UPower.Device, State.
var upowerStates = map[uint32]wire.Power{1: wire.PowerExternal, 2: wire.PowerBattery, 3: wire.PowerBattery, 4: wire.PowerExternal, 5: wire.PowerExternal, 6: wire.PowerBattery}

// power asks UPower. Its DisplayDevice stands for all batteries.
func (b *Bus) power(ctx context.Context, f *Facts) {
	p := b.properties(ctx, upower, display, upower+".Device")
	const battery, ups = 2, 3 // Type
	if kind := get[uint32](p, "Type"); !get[bool](p, "IsPresent") || kind != battery && kind != ups {
		return
	}
	f.Battery = unit.Percent(get[float64](p, "Percentage"))
	f.Power = upowerStates[get[uint32](p, "State")]
	if t := get[float64](p, "Temperature"); t != 0 { // 0: it cannot tell
		f.Temperature = unit.Celsius(t)
	}
}

// Values of NetworkManager: NMMetered, and NMDeviceType.
var (
	nmMetered = map[uint32]wire.Metered{1: wire.MeteredYes, 2: wire.MeteredNo, 3: wire.MeteredYes, 4: wire.MeteredNo} // 3 and 4 are its guesses
	nmTypes   = map[uint32]wire.Radio{2: wire.RadioWiFi, 5: wire.RadioBluetooth, 8: wire.RadioCellular}
)

// networks asks NetworkManager about each of its devices that is activated. It
// reports whether it answers.
func (b *Bus) networks(ctx context.Context, links map[string]Link) bool {
	manager := b.properties(ctx, nm, "/org/freedesktop/NetworkManager", nm)
	if manager == nil {
		return false
	}
	if m := nmMetered[get[uint32](manager, "Metered")]; m != wire.MeteredUnknown {
		links[""] = Link{Metered: m}
	}
	for _, path := range get[[]dbus.ObjectPath](manager, "Devices") {
		d := b.properties(ctx, nm, path, nm+".Device")
		const activated = 100 // NMDeviceState
		if get[uint32](d, "State") != activated {
			continue
		}
		name := get[string](d, "IpInterface")
		if name == "" {
			name = get[string](d, "Interface")
		}
		if name == "" {
			continue
		}
		l := Link{Radio: nmTypes[get[uint32](d, "DeviceType")], Metered: nmMetered[get[uint32](d, "Metered")]}
		if l.Radio == wire.RadioWiFi {
			w := b.properties(ctx, nm, path, nm+".Device.Wireless")
			if at := get[dbus.ObjectPath](w, "ActiveAccessPoint"); at.IsValid() && at != "/" {
				if strength, ok := b.properties(ctx, nm, at, nm+".AccessPoint")["Strength"]; ok {
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

// quality is ModemManager's SignalQuality: percent, and whether it is recent.
type quality struct {
	Percent uint32
	Recent  bool
}

// modems asks ModemManager for the signal of each modem that carries data.
func (b *Bus) modems(ctx context.Context, links map[string]Link) {
	var objects map[dbus.ObjectPath]map[string]map[string]dbus.Variant
	call := b.conn.Object(mm, "/org/freedesktop/ModemManager1").CallWithContext(ctx, "org.freedesktop.DBus.ObjectManager.GetManagedObjects", dbus.FlagNoAutoStart)
	if call.Store(&objects) != nil {
		return
	}
	for _, o := range objects {
		m := properties(o[mm+".Modem"])
		var q quality
		if v, ok := m["SignalQuality"]; !ok || v.Store(&q) != nil {
			continue
		}
		for _, path := range get[[]dbus.ObjectPath](m, "Bearers") {
			bearer := b.properties(ctx, mm, path, mm+".Bearer")
			if name := get[string](bearer, "Interface"); name != "" && get[bool](bearer, "Connected") {
				links[name] = Link{Radio: wire.RadioCellular, Signal: unit.Percent(float64(q.Percent))}.over(links[name])
			}
		}
	}
}
