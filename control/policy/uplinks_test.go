// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"
)

func TestUplinks(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	wifi := func(up bool, d time.Duration) Uplink { return Uplink{"wlan0", false, true, up, ago(d)} }
	lte := func(open bool) Uplink { return Uplink{"wwan0", true, open, open, ago(time.Hour)} }
	usb := Uplink{"usb0", false, true, true, ago(time.Second)}
	for _, c := range []struct {
		name    string
		list    []Uplink
		lte     bool
		why     string
		passing bool
	}{
		{"only what costs", []Uplink{lte(false)}, true, "no other one works", false},
		{"WiFi works", []Uplink{wifi(true, time.Minute), lte(false)}, false,
			"its data costs money, and another one works", false},
		{"WiFi has just been found", []Uplink{wifi(false, time.Second), lte(false)}, false,
			"another one may work soon", true},
		{"WiFi does not work", []Uplink{wifi(false, 3*time.Second), lte(false)}, true, "no other one works", false},
		{"and has just failed again", []Uplink{wifi(false, time.Second), lte(true)}, true, "no other one works", false},
		{"WiFi is back", []Uplink{wifi(true, 9*time.Second), lte(true)}, true,
			"another one works again since a moment ago", true},
		{"and stays", []Uplink{wifi(true, 10*time.Second), lte(true)}, false,
			"its data costs money, and another one works", false},
		{"one of two free ones", []Uplink{wifi(false, time.Hour), usb, lte(false)}, false,
			"its data costs money, and another one works", false},
	} {
		got := Uplinks(now, c.list)
		for i, u := range c.list {
			if !u.Metered && !got[i].Open {
				t.Errorf("%s: %s is not used: %s", c.name, u.Name, got[i].Reason)
			}
		}
		if last := got[len(got)-1]; last != (UplinkChoice{c.lte, c.why, c.passing}) {
			t.Errorf("%s: %+v", c.name, last)
		}
	}
	if got := Uplinks(now, nil); len(got) != 0 {
		t.Error(got)
	}
}
