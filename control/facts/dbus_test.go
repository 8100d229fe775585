// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bufio"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// busDaemon starts a message bus and returns its address.
func busDaemon(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("needs dbus-daemon (Debian package dbus-daemon)")
	}
	cmd := exec.Command("dbus-daemon", "--session", "--nofork", "--print-address", "--address=unix:dir="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Skipf("dbus-daemon does not run here: %v", err)
	}
	return strings.TrimSpace(addr)
}

func connect(t *testing.T, addr string) *dbus.Conn {
	t.Helper()
	c, err := dbus.Connect(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// export shows an object with properties, as the service of that name would.
func export(t *testing.T, c *dbus.Conn, path dbus.ObjectPath, iface string, values map[string]any) *prop.Properties {
	t.Helper()
	m := map[string]*prop.Prop{}
	for name, v := range values {
		m[name] = &prop.Prop{Value: v, Emit: prop.EmitTrue}
	}
	p, err := prop.Export(c, path, prop.Map{iface: m})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ownBusName(t *testing.T, c *dbus.Conn, name string) {
	t.Helper()
	if r, err := c.RequestName(name, dbus.NameFlagDoNotQueue); err != nil || r != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(r, err)
	}
}

// modemObjects answers GetManagedObjects as ModemManager does.
type modemObjects struct{}

func (modemObjects) GetManagedObjects() (map[dbus.ObjectPath]map[string]map[string]dbus.Variant, *dbus.Error) {
	return map[dbus.ObjectPath]map[string]map[string]dbus.Variant{"/modem/0": {mm + ".Modem": {
		"SignalQuality": dbus.MakeVariant(quality{64, true}),
		"Bearers":       dbus.MakeVariant([]dbus.ObjectPath{"/bearer/1", "/bearer/2"}),
	}}}, nil
}

// TestBus asks fake services on a real bus.
func TestBus(t *testing.T) {
	addr := busDaemon(t)
	b := newBus(connect(t, addr), 10*time.Millisecond, slog.New(slog.DiscardHandler))
	defer b.Close()
	if f := b.Read(); !f.hasSameFacts(Facts{}) {
		t.Errorf("of nobody: %+v", f)
	}

	s := connect(t, addr)
	battery := export(t, s, display, upower+".Device",
		map[string]any{"Type": uint32(2), "IsPresent": true, "Percentage": 42.4, "State": uint32(2), "Temperature": 0.0})
	ownBusName(t, s, upower)
	if f := b.Read(); !f.hasSameFacts(Facts{Battery: unit.Percent(42), Power: wire.PowerBattery}) {
		t.Errorf("of UPower alone: %+v", f)
	}

	devices := []dbus.ObjectPath{"/device/wifi", "/device/lte", "/device/down", "/device/gone"}
	export(t, s, "/org/freedesktop/NetworkManager", nm, map[string]any{"Metered": uint32(4), "Devices": devices})
	device := func(path dbus.ObjectPath, values map[string]any) {
		export(t, s, path, nm+".Device", values)
	}
	m := prop.Map{nm + ".Device": {}, nm + ".Device.Wireless": {"ActiveAccessPoint": {Value: dbus.ObjectPath("/ap/7")}}}
	for name, v := range map[string]any{"State": uint32(100), "Interface": "wlan0", "IpInterface": "wlan0",
		"DeviceType": uint32(2), "Metered": uint32(3)} {
		m[nm+".Device"][name] = &prop.Prop{Value: v}
	}
	if _, err := prop.Export(s, "/device/wifi", m); err != nil {
		t.Fatal(err)
	}
	export(t, s, "/ap/7", nm+".AccessPoint", map[string]any{"Strength": byte(77)})
	device("/device/lte", map[string]any{"State": uint32(100), "Interface": "cdc-wdm0", "IpInterface": "wwan0",
		"DeviceType": uint32(8), "Metered": uint32(1)})
	device("/device/down", map[string]any{"State": uint32(30), "Interface": "eth0", "IpInterface": "",
		"DeviceType": uint32(1), "Metered": uint32(0)})
	ownBusName(t, s, nm)
	if err := s.Export(modemObjects{}, "/org/freedesktop/ModemManager1",
		"org.freedesktop.DBus.ObjectManager"); err != nil {
		t.Fatal(err)
	}
	export(t, s, "/bearer/1", mm+".Bearer", map[string]any{"Interface": "", "Connected": false})
	export(t, s, "/bearer/2", mm+".Bearer", map[string]any{"Interface": "wwan0", "Connected": true})
	ownBusName(t, s, mm)
	want := Facts{Battery: unit.Percent(42), Power: wire.PowerBattery, Links: map[string]Link{
		"":      {Metered: wire.MeteredNo},
		"wlan0": {Radio: wire.RadioWiFi, Metered: wire.MeteredYes, Signal: unit.Percent(77)},
		"wwan0": {Radio: wire.RadioCellular, Metered: wire.MeteredYes, Signal: unit.Percent(64)},
	}}
	if f := b.Read(); !f.hasSameFacts(want) {
		t.Errorf("of all: %+v, want %+v", f, want)
	}

	// What services say when they begin must not count as the change below. Silence has no event.
	for quiet := false; !quiet; {
		select {
		case <-b.Changed():
		case <-time.After(100 * time.Millisecond):
			quiet = true
		}
	}
	battery.SetMust(upower+".Device", "State", uint32(1))
	select {
	case <-b.Changed():
	case <-time.After(30 * time.Second):
		t.Fatal("a change is not reported")
	}
	if f := b.Read(); f.Power != wire.PowerExternal {
		t.Errorf("when it charges: %+v", f)
	}

	if _, err := s.ReleaseName(nm); err != nil {
		t.Fatal(err)
	}
	want.Power = wire.PowerExternal
	if f := b.Read(); !f.hasSameFacts(want) {
		t.Errorf("while NetworkManager is away: %+v, want %+v", f, want)
	}
	b.linksReadAt = b.linksReadAt.Add(-ReportLifetime)
	delete(want.Links, "wlan0")
	delete(want.Links, "")
	want.Links["wwan0"] = Link{Radio: wire.RadioCellular, Signal: unit.Percent(64)}
	if f := b.Read(); !f.hasSameFacts(want) {
		t.Errorf("after that: %+v, want %+v", f, want)
	}
}

// TestModemSignalIsNoChange: what a modem signals each second makes nobody read all sources again.
func TestModemSignalIsNoChange(t *testing.T) {
	for iface, want := range map[string]bool{mm + ".Modem.Signal": true, mm + ".Modem": false, nm: false} {
		if got := isModemSignal(&dbus.Signal{Body: []any{iface, map[string]dbus.Variant{}}}); got != want {
			t.Errorf("%s: %v", iface, got)
		}
	}
	if isModemSignal(&dbus.Signal{}) {
		t.Error("a signal without a body is one of a modem")
	}
}
