// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestLocations checks what is learnt at locations, the bounds, and that files are read.
func TestLocations(t *testing.T) {
	var p Locations
	now := time.Unix(1e9, 0)
	note := func(location, device string, down unit.Rate, rtt float64) {
		now = now.Add(time.Second)
		p.Record(now, location, device, SubflowRecord{Down: down, RTTms: rtt})
	}
	if p.Lookup("home", "wlan0") != (SubflowRecord{}) {
		t.Error("it knows a location where it has not been")
	}
	note("home", "wlan0", 8*unit.Mbps, 50)
	note("home", "wlan0", 0, 0)
	if s := p.Lookup("home", "wlan0"); s.Down != 8*unit.Mbps || s.RTTms != 50 || s.Up != 0 {
		t.Errorf("%+v", s)
	}
	note("home", "wlan0", 16*unit.Mbps, 40)
	note("home", "wlan0", 4*unit.Mbps, 140)
	if s := p.Lookup("home", "wlan0"); s.Down != 11*unit.Mbps || s.RTTms < 41 || s.RTTms > 42 {
		t.Errorf("after 8, 16 and 4 Mbit/s at 50, 40 and 140 ms: %+v", s)
	}
	note("home", "phone", unit.Mbps, 70)
	data, err := json.Marshal(p)
	var again Locations
	if err != nil || json.Unmarshal(data, &again) != nil {
		t.Fatal(err)
	}
	if again.Trim(); !reflect.DeepEqual(fmt.Sprint(again.Lookup("home", "phone")), fmt.Sprint(p.Lookup("home", "phone"))) {
		t.Errorf("written and read: %s", data)
	}
	for i := range 200 {
		note(fmt.Sprint("hotel ", i), "wlan0", unit.Mbps, 1)
		note("home", fmt.Sprint("device ", i), unit.Mbps, 1)
	}
	if len(p.List) != maxLocations || len(p.List["home"].Devices) != maxDevices ||
		p.Lookup("hotel 199", "wlan0").Down == 0 || p.Lookup("home", "device 199").Down == 0 ||
		p.Lookup("hotel 3", "wlan0").Down != 0 {
		t.Errorf("%d locations, %d devices at home", len(p.List), len(p.List["home"].Devices))
	}
	for _, former := range []bool{false, true} {
		text := `{"locations":{"a":{"devices":{"b":{"rtt_ms":7}}}}}`
		if former {
			text = strings.Replace(text, "locations", "places", 1)
		}
		var p Locations
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		if p.Trim(); p.Lookup("a", "b").RTTms != 7 || p.OldList != nil {
			t.Errorf("%s: %+v", text, p)
		}
	}
	for _, bad := range []string{`{"places":{"a":null}}`, `{"locations":{"a":{"devices":null}}}`,
		`{"locations":{"a":{"devices":{"b":{"down_bps":-1}}}}}`,
		`{"places":{"a":{"devices":{"b":{"rtt_ms":-1}}}}}`} {
		var p Locations
		if err := json.Unmarshal([]byte(bad), &p); err != nil {
			t.Fatal(err)
		}
		if p.Trim(); p.Lookup("a", "b") != (SubflowRecord{}) {
			t.Errorf("%s is accepted", bad)
		}
		p.Record(now, "a", "b", SubflowRecord{Down: 1})
	}
}
