// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Sysfs reads batteries and temperatures from Linux's sysfs below Root, "/sys" if empty.
//
// Of several batteries the fullest counts, since the device works as long as one of them does. The
// power source is a battery while any of them discharges. The highest battery temperature counts. A
// battery that is full, or held below full, means "plugged in" only if no supply says otherwise.
// Batteries of peripherals (scope Device) do not count. If no battery has a temperature, the
// hottest thermal zone counts that drivers name after a battery or the device's skin. Zones of
// processor cores jump by 20 degrees and do not show how hot the device feels.
//
// See Documentation/ABI/testing/sysfs-class-power and sysfs-class-thermal in the kernel's source.
type Sysfs struct{ Root string }

// Changed implements Source. Sysfs reports no changes.
func (Sysfs) Changed() <-chan struct{} { return nil }

// Close implements Source.
func (Sysfs) Close() {}

// Read implements Source.
func (s Sysfs) Read() (f Facts) {
	root := s.Root
	if root == "" {
		root = "/sys"
	}
	supplies, _ := filepath.Glob(filepath.Join(root, "class/power_supply/*"))
	online, offline, batteries := false, false, 0
	on := map[wire.Power]bool{} // states of all batteries
	charging := false
	for _, dir := range supplies {
		if readSysfsWord(dir, "scope") == "Device" {
			continue
		}
		switch kind := readSysfsWord(dir, "type"); kind {
		case "Battery":
			if readSysfsWord(dir, "present") == "0" {
				continue
			}
			batteries++
			if n, ok := readNumber(dir, "capacity"); ok {
				f.Battery = max(f.Battery, unit.Percent(n))
			}
			if n, ok := readNumber(dir, "temp"); ok { // in tenths of a degree
				f.Temperature = max(f.Temperature, unit.Celsius(n/10))
			}
			status := readSysfsWord(dir, "status")
			on[powerFromStatus(status)] = true
			charging = charging || status == "Charging"
		case "Mains", "USB", "Wireless":
			if n, ok := readNumber(dir, "online"); ok {
				online, offline = online || n > 0, offline || n == 0
			}
		}
	}
	switch {
	case on[wire.PowerBattery], on[wire.PowerExternal] && offline && !online && !charging:
		f.Power = wire.PowerBattery
	case on[wire.PowerExternal], online && batteries > 0:
		f.Power = wire.PowerExternal
	}
	if f.Temperature == 0 {
		f.Temperature = maxZoneTemperature(root)
	}
	return f
}

// powerFromStatus returns the power source that a battery's status implies. One that is full or
// held below full is plugged in.
func powerFromStatus(status string) wire.Power {
	switch status {
	case "Discharging":
		return wire.PowerBattery
	case "Charging", "Full", "Not charging":
		return wire.PowerExternal
	}
	return wire.PowerUnknown
}

// maxZoneTemperature returns the highest temperature of battery and skin zones.
func maxZoneTemperature(root string) (t unit.Temperature) {
	dirs, _ := filepath.Glob(filepath.Join(root, "class/thermal/thermal_zone*"))
	for _, dir := range dirs {
		kind := strings.ToLower(readSysfsWord(dir, "type"))
		if !strings.Contains(kind, "batt") && !strings.Contains(kind, "skin") {
			continue
		}
		if n, ok := readNumber(dir, "temp"); ok { // in thousandths of a degree
			t = max(t, unit.Celsius(n/1000))
		}
	}
	return t
}

// readSysfsWord returns the contents of a file in dir, "" if it cannot be read.
func readSysfsWord(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// readNumber returns the number in a file in dir.
func readNumber(dir, name string) (float64, bool) {
	n, err := strconv.ParseFloat(readSysfsWord(dir, name), 64)
	return n, err == nil
}
