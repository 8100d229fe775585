// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/identity"
	mydevice "mpbond/control/device"
	"mpbond/control/policy"
)

// TestUsed checks that rows of the file become days and months, with the present names of devices.
func TestUsed(t *testing.T) {
	dir := t.TempDir()
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	trust, err := identity.OpenTrust(filepath.Join(dir, "trust.toml"))
	if err == nil {
		err = trust.Add(identity.Peer{Name: "laptop", Roles: []identity.Role{identity.RolePrimary}, Key: key.Public()})
	}
	if err != nil {
		t.Fatal(err)
	}
	id := key.Public().ID().String()
	file := strings.ReplaceAll(`{"day":"2096-10-31","link":"wwan0","purpose":"hs-path","peer":"ID","down":1,"up":2}
{"day":"2096-11-01","link":"wwan0","purpose":"hs-path","peer":"ID","down":10,"up":20}
{"day":"2096-11-30","link":"wwan0","purpose":"hs-path","peer":"ID","down":100,"up":200}
{"day":"2096-11-30","link":"wlan0","purpose":"pipe","peer":"gone","down":7,"up":8}
`, "ID", id)
	path := filepath.Join(dir, "usage.jsonl")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &role{name: "helper", trust: trust, usage: mydevice.NewUsage(slog.Default())}
	if err := r.usage.OpenFile(path); err != nil {
		t.Fatal(err)
	}
	defer r.usage.Close()
	u := r.usageReport("phone")
	if len(u.Days) != 4 || u.Days[0] != (api.UsageEntry{From: "2096-10-31", Until: "2096-11-01", Link: "wwan0",
		Purpose: "hs-path", Device: "laptop", DeviceID: id, DownBytes: 1, UpBytes: 2}) {
		t.Errorf("%+v", u.Days)
	}
	want := []api.UsageEntry{
		{From: "2096-10-01", Until: "2096-11-01", Link: "wwan0", Purpose: "hs-path", Device: "laptop", DeviceID: id,
			DownBytes: 1, UpBytes: 2},
		{From: "2096-11-01", Until: "2096-12-01", Link: "wlan0", Purpose: "pipe", DeviceID: "gone", DownBytes: 7,
			UpBytes: 8},
		{From: "2096-11-01", Until: "2096-12-01", Link: "wwan0", Purpose: "hs-path", Device: "laptop", DeviceID: id,
			DownBytes: 110, UpBytes: 220},
	}
	got, _ := json.Marshal(u.Months)
	if w, _ := json.Marshal(want); !bytes.Equal(got, w) {
		t.Errorf("%s\nwant %s", got, w)
	}
	now := time.Date(2096, 11, 30, 12, 0, 0, 0, time.Local)
	for _, c := range []struct {
		days bool
		at   time.Time
		want string
	}{
		{false, now, `helper phone
LINK   FOR      DEVICE  TODAY DOWN  UP   THIS MONTH DOWN  UP   SINCE
wlan0  pipe             7 B          8 B   7 B               8 B   2096-11-01
wwan0  hs-path  laptop  100 B        200 B 110 B             220 B 2096-11-01
`},
		{true, now, `helper phone
DAY         LINK   FOR      DEVICE  DOWN  UP
2096-10-31  wwan0  hs-path  laptop  1 B    2 B
2096-11-01  wwan0  hs-path  laptop  10 B   20 B
2096-11-30  wlan0  pipe             7 B    8 B
2096-11-30  wwan0  hs-path  laptop  100 B  200 B
`},
	} {
		var page bytes.Buffer
		printUsageReport(&page, u, c.days, c.at)
		if collapseSpaces(page.String()) != collapseSpaces(c.want) {
			t.Errorf("days %v:\n%s\nwant\n%s", c.days, &page, c.want)
		}
	}
	r.caps = mydevice.NewCaps(r.usage, func(name string) mydevice.CapTarget {
		if name == "phone" {
			return mydevice.CapTarget{}
		}
		return mydevice.CapTarget{Link: name}
	}, func() map[string]policy.Caps {
		return map[string]policy.Caps{"phone": {Monthly: 1e9, ResetDay: 15}, "wlan0": {Monthly: 1e9}}
	}, nil)
	var from []string
	for _, m := range r.usageReport("phone").Months {
		from = append(from, m.Link+" "+m.From)
	}
	if got, want := strings.Join(from, ", "), "wwan0 2096-10-15, wlan0 2096-11-01, wwan0 2096-11-15"; got != want {
		t.Errorf("by a cap of all links: months %s, want %s", got, want)
	}
	checkEnergyShown(t, now)
	var page bytes.Buffer
	if printUsageReport(&page, api.Usage{NotSaved: "no room"}, false, now); !strings.Contains(page.String(), "no room") ||
		!strings.Contains(page.String(), "nothing") {
		t.Errorf("%s", &page)
	}
}

// checkEnergyShown checks that energies are shown, with a note, if there is an estimate, by day and
// month.
func checkEnergyShown(t *testing.T, now time.Time) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	if err := os.WriteFile(path, []byte(`{"day":"2096-11-29","link":"wwan0","purpose":"hs-path",`+
		`"down":1,"up":2,"joules":1500.00049}
{"day":"2096-11-30","link":"eth0","purpose":"pipe","down":7,"up":8}
{"day":"2096-11-30","link":"wwan0","purpose":"hs-path","down":1,"up":2,"joules":12.6}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	r := &role{name: "helper", trust: trust, usage: mydevice.NewUsage(slog.Default())}
	if err := r.usage.OpenFile(path); err != nil {
		t.Fatal(err)
	}
	defer r.usage.Close()
	u := r.usageReport("phone")
	if len(u.Months) != 2 || u.Months[0].RadioJoules != 0 || u.Months[1].RadioJoules != 1512.6 {
		t.Errorf("months %+v", u.Months)
	}
	const note = "energy of radios, estimated from bytes and published measurements; - for links without a known " +
		"radio\n"
	for days, want := range map[bool]string{
		false: "helper phone\nLINK FOR DEVICE TODAY DOWN UP THIS MONTH DOWN UP SINCE ENERGY TODAY THIS MONTH\n" +
			"eth0 pipe 7 B 8 B 7 B 8 B 2096-11-01 - -\nwwan0 hs-path 1 B 2 B 2 B 4 B 2096-11-01 12.6 J 1.51 kJ\n" + note,
		true: "helper phone\nDAY LINK FOR DEVICE DOWN UP ENERGY\n2096-11-29 wwan0 hs-path 1 B 2 B 1.5 kJ\n" +
			"2096-11-30 eth0 pipe 7 B 8 B -\n" +
			"2096-11-30 wwan0 hs-path 1 B 2 B 12.6 J\n" + note,
	} {
		var page bytes.Buffer
		if printUsageReport(&page, u, days, now); collapseSpaces(page.String()) != collapseSpaces(want) {
			t.Errorf("days %v:\n%s\nwant\n%s", days, &page, want)
		}
	}
}

// collapseSpaces replaces runs of spaces by one.
func collapseSpaces(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}
