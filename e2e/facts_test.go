// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
)

// findDevice returns a device as a role's API reports it.
func (n *network) findDevice(c *client.Client, name string) (d api.Device, err error) {
	list, err := c.Devices(n.Context())
	for _, d := range list {
		if d.Name == name {
			return d, nil
		}
	}
	return d, fmt.Errorf("no device %s in %+v, %w", name, list, err)
}

// TestFacts: the primary knows what a helper knows of its battery and link, from a file and from
// its API.
func TestFacts(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t)
	primary, server, helper := n.NewClient("primary", "primary"), n.NewClient("server", "server"),
		n.NewClient("helper1", "helper")
	file := filepath.Join(n.Dir, "helper1", "facts.toml")
	if err := os.WriteFile(file, []byte("temperature_c = 31.5\nlink = \"cellular\"\nbattery_percent = 11\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	checkRadioEnergy(t, n, primary, helper)
	battery, metered := 55.0, true
	if err := helper.SetFacts(t.Context(), api.Facts{BatteryPercent: &battery, Metered: &metered}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []*client.Client{primary, helper} {
		rig.Eventually(t, func() error {
			d, err := n.findDevice(at, "phone")
			f := d.Facts
			if err != nil || f == nil || f.BatteryPercent == nil || *f.BatteryPercent != 55 || f.TemperatureC == nil ||
				*f.TemperatureC != 31.5 ||
				f.Link != "cellular" || f.Metered == nil || !*f.Metered || f.Interface == "" {
				return fmt.Errorf("facts of the phone are %+v, %v", f, err)
			}
			return nil
		})
	}
	out, err := n.Run("primary", n.Mpbond, "status")
	if err != nil || !strings.Contains(out, "55 %") || !strings.Contains(out, "phone: 31.5 °C, cellular (metered)") {
		t.Errorf("status: %v\n%s", err, out)
	}
	n.checkMetrics("primary", "mpbond_device_battery_ratio", "mpbond_device_temperature_celsius")

	// Below the battery floor the device is suspended at once.
	writeFile(t, filepath.Join(n.Dir, "primary", "policy.toml"), "[device.phone]\nbattery_floor = 60\n")
	n.awaitEvent(primary, "the phone's suspension", func(e api.Event) bool {
		return e.Kind == "device_suspended" && e.Device == "phone"
	})
	rig.Eventually(t, func() error {
		d, err := n.findDevice(primary, "phone")
		if err != nil || d.Subflows != 0 || d.Pipes == 0 || !strings.Contains(d.Suspended, "its battery is at 55 %") {
			return fmt.Errorf("the suspended phone is %+v, %v", d, err)
		}
		return nil
	})
	if out, err := n.Run("primary", n.Mpbond, "status"); err != nil ||
		!strings.Contains(out, "phone: suspended: its battery is at 55 %, suspended below 60 %") {
		t.Errorf("status: %v\n%s", err, out)
	}

	bad := 101.0
	if err := helper.SetFacts(t.Context(), api.Facts{BatteryPercent: &bad}); !fault.Is(err, fault.Usage) {
		t.Errorf("a battery of 101 %%: %v", err)
	}
	if err := server.SetFacts(t.Context(), api.Facts{BatteryPercent: &battery}); !fault.Is(err, fault.Unsupported) {
		t.Errorf("a server's battery: %v", err)
	}
}

// checkRadioEnergy checks that the energy of the phone's radio is estimated at the phone, as usage
// of its link, and at its primary. The pipe is a cable here and uses none.
func checkRadioEnergy(t *testing.T, n *network, primary, helper *client.Client) {
	t.Helper()
	rig.Eventually(t, func() error { // the other subflow may carry some of it
		n.Must("primary", "curl", "-sSf", "--max-time", "30", "-x", "http://127.0.0.1:1080", "-o", "/dev/null",
			fmt.Sprintf("http://web/%d", 2*mb))
		var took [2]api.Device
		for i, at := range []*client.Client{primary, helper} {
			d, err := n.findDevice(at, "phone")
			if err != nil || len(d.Radios) != 1 || d.Radios[0].Kind != "cellular" || d.Radios[0].Link != "hs1" ||
				d.Radios[0].Joules <= 0 {
				return fmt.Errorf("radios of the phone are %+v, %v", d.Radios, err)
			}
			took[i] = d
		}
		u, err := helper.Usage(t.Context())
		by := map[string]unit.Joules{}
		for _, r := range u.Months {
			by[r.Link] += r.RadioJoules
		}
		if len(by) != 2 || by["hs1"] < took[1].Radios[0].Joules || by["pipe1"] != 0 {
			return fmt.Errorf("energy by link %v, at the primary %+v, %v", by, took[0].Radios, err)
		}
		return nil
	})
	if out, err := n.Run("helper1", n.Mpbond, "usage"); err != nil || !strings.Contains(out, "ENERGY TODAY") ||
		!strings.Contains(out, "estimated from bytes") {
		t.Errorf("usage: %v\n%s", err, out)
	}
	if out, err := n.Run("primary", n.Mpbond, "status"); err != nil || !strings.Contains(out, "J by cellular hs1") {
		t.Errorf("status: %v\n%s", err, out)
	}
	n.checkMetrics("primary", "mpbond_device_radio_joules_total")
}
