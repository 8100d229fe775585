package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"mpbond/base/unit"
)

func TestPlaces(t *testing.T) {
	var p Places
	now := time.Unix(1e9, 0)
	note := func(place, device string, down unit.Rate, rtt float64) {
		now = now.Add(time.Second)
		p.Note(now, place, device, Seen{Down: down, RTTms: rtt})
	}
	if p.Of("home", "wlan0") != (Seen{}) {
		t.Error("it knows a place where it has not been")
	}
	note("home", "wlan0", 8*unit.Mbps, 50)
	note("home", "wlan0", 0, 0)
	if s := p.Of("home", "wlan0"); s.Down != 8*unit.Mbps || s.RTTms != 50 || s.Up != 0 {
		t.Errorf("%+v", s)
	}
	note("home", "wlan0", 16*unit.Mbps, 40)
	note("home", "wlan0", 4*unit.Mbps, 140)
	if s := p.Of("home", "wlan0"); s.Down != 11*unit.Mbps || s.RTTms < 41 || s.RTTms > 42 {
		t.Errorf("after 8, 16 and 4 Mbit/s at 50, 40 and 140 ms: %+v", s)
	}
	note("home", "phone", unit.Mbps, 70)
	data, err := json.Marshal(p)
	var again Places
	if err != nil || json.Unmarshal(data, &again) != nil {
		t.Fatal(err)
	}
	if again.Trim(); !reflect.DeepEqual(fmt.Sprint(again.Of("home", "phone")), fmt.Sprint(p.Of("home", "phone"))) {
		t.Errorf("written and read: %s", data)
	}
	for i := range 200 {
		note(fmt.Sprint("hotel ", i), "wlan0", unit.Mbps, 1)
		note("home", fmt.Sprint("device ", i), unit.Mbps, 1)
	}
	if len(p.List) != maxPlaces || len(p.List["home"].Devices) != maxDevices || p.Of("hotel 199", "wlan0").Down == 0 || p.Of("home", "device 199").Down == 0 || p.Of("hotel 3", "wlan0").Down != 0 {
		t.Errorf("%d places, %d devices at home", len(p.List), len(p.List["home"].Devices))
	}
	for _, bad := range []string{`{"places":{"a":null}}`, `{"places":{"a":{"devices":null}}}`, `{"places":{"a":{"devices":{"b":{"down_bps":-1}}}}}`,
		`{"places":{"a":{"devices":{"b":{"rtt_ms":-1}}}}}`} {
		var p Places
		if err := json.Unmarshal([]byte(bad), &p); err != nil {
			t.Fatal(err)
		}
		if p.Trim(); p.Of("a", "b") != (Seen{}) {
			t.Errorf("%s is believed", bad)
		}
		p.Note(now, "a", "b", Seen{Down: 1})
	}
}
