package facts

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Sysfs reads batteries and temperatures where Linux shows them, below Root,
// "/sys" if that is empty.
//
// Of several batteries the fullest counts, as the device works as long as one
// does, and it is on battery while one of them discharges; of their temperatures
// the highest. One that is full, or held below full, says that the device is
// plugged in only where no supply says that it is not. Batteries of mice and the like (scope
// Device) do not count. Where no battery tells its temperature, that of the
// hottest thermal zone counts which the kernel's drivers name after a battery or
// the device's skin: those of processor cores leap by 20 degrees and say nothing
// of what a hand feels.
//
// See Documentation/ABI/testing/sysfs-class-power and sysfs-class-thermal in the
// kernel's source.
type Sysfs struct{ Root string }

// Changed implements Source: sysfs does not tell.
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
	on := map[wire.Power]bool{} // what batteries say
	charging := false
	for _, dir := range supplies {
		if readWord(dir, "scope") == "Device" {
			continue
		}
		switch kind := readWord(dir, "type"); kind {
		case "Battery":
			if readWord(dir, "present") == "0" {
				continue
			}
			batteries++
			if n, ok := readNumber(dir, "capacity"); ok {
				f.Battery = max(f.Battery, unit.Percent(n))
			}
			if n, ok := readNumber(dir, "temp"); ok { // tenths of a degree
				f.Temperature = max(f.Temperature, unit.Celsius(n/10))
			}
			status := readWord(dir, "status")
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

// powerFromStatus is what a battery's status tells. One that is full or held below full
// is plugged in.
func powerFromStatus(status string) wire.Power {
	switch status {
	case "Discharging":
		return wire.PowerBattery
	case "Charging", "Full", "Not charging":
		return wire.PowerExternal
	}
	return wire.PowerUnknown
}

// maxZoneTemperature is the highest temperature of thermal zones that matter.
func maxZoneTemperature(root string) (t unit.Temperature) {
	dirs, _ := filepath.Glob(filepath.Join(root, "class/thermal/thermal_zone*"))
	for _, dir := range dirs {
		kind := strings.ToLower(readWord(dir, "type"))
		if !strings.Contains(kind, "batt") && !strings.Contains(kind, "skin") {
			continue
		}
		if n, ok := readNumber(dir, "temp"); ok { // thousandths of a degree
			t = max(t, unit.Celsius(n/1000))
		}
	}
	return t
}

// readWord is what a file in dir says, "" if it cannot be read.
func readWord(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func readNumber(dir, name string) (float64, bool) {
	n, err := strconv.ParseFloat(readWord(dir, name), 64)
	return n, err == nil
}
