package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mpbond/policy"
	"mpbond/trace"
)

// TestOwnPolicy: a role without rules for apps takes the tables of a file that it
// shares with a primary, and says so once; a file that cannot be used changes
// nothing and is told of.
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
	o, err := openPolicy(filepath.Join(filepath.Dir(file), "helper.toml"))
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	o.rec = (*trace.Recorder)(nil).Tell("p", func(e trace.Event) { events = append(events, string(e.Kind)) })
	expect := func(when string, monthly policy.Volume, floor, said int) {
		t.Helper()
		r := o.Rules()
		if got, is := r.Device("wwan0").Caps.Monthly, r.Device("phone").BatteryFloor; got != monthly || is != floor {
			t.Errorf("%s: a cap of %v and a floor of %d, want %v and %d", when, got, is, monthly, floor)
		}
		if n := strings.Count(log.String(), "level=INFO msg=\"rules and default are for a primary"); n != said {
			t.Errorf("%s: it is said %d times, want %d:\n%s", when, n, said, &log)
		}
	}
	expect("tables", 10e9, 25, 0)
	write("[[rule]]\nport = [25]\nmode = 'block'\n" + tables)
	o.reload()
	o.reload()
	expect("with a rule", 10e9, 25, 1)
	write("default = 'deny'\n" + strings.Replace(tables, "10GB", "5GB", 1))
	o.reload()
	expect("with a default", 5e9, 25, 2)
	write("[device.wwan0]\nmonthly_cap = 'much'\n")
	o.reload()
	expect("with a mistake", 5e9, 25, 2)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	o.reload()
	o.reload()
	expect("without a file", 0, 0, 2)
	if want := []string{"policy_changed", "policy_changed", "policy_refused", "policy_changed"}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
}
