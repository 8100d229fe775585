// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/control/policy"
	"mpbond/core/trace"
)

// TestOwnPolicy checks that a helper applies the device tables of a file that it shares with a
// primary, logs once that it ignores rules, and reports an invalid file.
func TestOwnPolicy(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	file := filepath.Join(t.TempDir(), "policy.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const tables = "[device.wwan0]\nmonthly_cap = '10GB'\n[device.phone]\nbattery_floor = 25\n"
	write(tables)
	var events []string
	r := &role{config: filepath.Join(filepath.Dir(file), "helper.toml")}
	k, err := r.loadDeviceTables((*trace.Recorder)(nil).NotifyChanges("p",
		func(e trace.Event) { events = append(events, string(e.Kind)) }))
	if err != nil {
		t.Fatal(err)
	}
	o := r.policy
	expect := func(when string, monthly policy.Volume, floor, said int) {
		t.Helper()
		r := o.Rules()
		if got, is := r.Device("wwan0").Caps.Monthly, r.Device("phone").BatteryFloor; got != monthly || is != floor {
			t.Errorf("%s: a cap of %v and a floor of %d, want %v and %d", when, got, is, monthly, floor)
		}
		if n := strings.Count(log.String(), "level=INFO msg=\"ignoring rules and default"); n != said {
			t.Errorf("%s: it is said %d times, want %d:\n%s", when, n, said, &log)
		}
	}
	expect("tables", 10e9, 25, 0)
	write("[[rule]]\nport = [25]\nmode = 'block'\n" + tables)
	o.Reload(false)
	o.Reload(false)
	expect("with a rule", 10e9, 25, 1)
	write("default = 'deny'\n" + strings.Replace(tables, "10GB", "5GB", 1))
	o.Reload(false)
	expect("with a default", 5e9, 25, 2)
	write("[device.wwan0]\nmonthly_cap = 'much'\n")
	o.Reload(false)
	expect("with a mistake", 5e9, 25, 2)
	if p, s := k.Get(), o.Status(); p.Refused == nil || p.Refused.Line != 2 || p.Default != "allow" ||
		len(p.Rules) != 0 || len(p.Devices) != 2 || s == nil || !strings.Contains(s.Error, ":2") || s.Tables != 2 ||
		s.Rules != 0 {
		t.Errorf("%+v, %+v", p, s)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	o.Reload(false)
	o.Reload(false)
	expect("without a file", 0, 0, 2)
	if want := []string{"policy_changed", "policy_changed", "policy_changed", "policy_refused",
		"policy_changed"}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}

	// The same changes over the API.
	none, text := "", "[[rule]]\nport = [25]\n[device.phone]\nbattery_floor = 30\nmetered = false\n"+
		"[device.wwan0]\ndaily_cap = '2GB'\nstop_at = '90%'\n"
	if _, err := k.Put(api.PolicyText{Text: "[device.wwan0]\nstop_at = '90%'\n", Version: &none}); !fault.Is(err,
		fault.Config) {
		t.Errorf("a text that cannot be used: %v", err)
	}
	p, err := k.Put(api.PolicyText{Text: text, Version: &none})
	no := false
	want := []api.PolicyDevice{{Name: "phone", Line: 3, Metered: &no, BatteryFloorPercent: 30},
		{Name: "wwan0", Line: 6, DailyCapBytes: 2e9, WarnAtPercent: 80, StopAtPercent: 90}}
	if err != nil || p.Text != text || !reflect.DeepEqual(p.Devices, want) || len(p.Rules) != 0 || p.Loaded == nil {
		t.Errorf("%+v, %v", p, err)
	}
	if data, err := os.ReadFile(file); string(data) != text {
		t.Errorf("the file has %q, %v", data, err)
	}
	if _, err := k.Put(api.PolicyText{Text: "", Version: &none}); !fault.Is(err, fault.Exists) {
		t.Errorf("somebody else's change is overwritten: %v", err)
	}
	bad := "[device.wwan0]\nwarn_at = '90%'\n"
	if _, err := k.Check(api.PolicyCheck{Text: &bad}); !fault.Is(err, fault.Config) {
		t.Errorf("a check of what cannot be used: %v", err)
	}
	if _, err := k.Check(api.PolicyCheck{Text: &text, Flow: &api.PolicyFlow{Host: "a", Port: 1}}); !fault.Is(err,
		fault.Unsupported) || fault.HintOf(err) == "" {
		t.Errorf("a check of a connection: %v", err)
	}
	if a, err := k.Check(api.PolicyCheck{Text: &text}); err != nil || a.Rules != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if got := describeLimits(p.Devices[1]); got != "at most 2 GB a day, warning at 80 %, stop at 90 %" {
		t.Error(got)
	}
}
