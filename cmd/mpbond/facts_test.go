// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/control/facts"
	"mpbond/link/wire"
)

// TestRadioOf checks that the name of a link takes precedence over reported facts, which apply only
// to links to the Internet.
func TestRadioOf(t *testing.T) {
	f := facts.Facts{Links: map[string]facts.Link{"": {Radio: wire.RadioCellular}, "usb7": {Radio: wire.RadioWiFi}}}
	for _, c := range []struct {
		link     string
		internet bool
		want     wire.Radio
	}{
		{"wlan7", true, wire.RadioWiFi}, {"usb7", true, wire.RadioWiFi}, {"usb7", false, wire.RadioWiFi},
		{"hs7", true, wire.RadioCellular}, {"hs7", false, wire.RadioNone},
	} {
		if got := linkRadioKind(f, c.link, c.internet); got != c.want {
			t.Errorf("%s, by the Internet %v: %v, want %v", c.link, c.internet, got, c.want)
		}
	}
}

// TestStatusOfRadios checks that the status contains the energy of radios.
func TestStatusOfRadios(t *testing.T) {
	heat := 31.5
	var page bytes.Buffer
	printDevices(&page, api.Status{Devices: []api.Device{
		{Name: "laptop", Self: true, Radios: []api.Radio{{Link: "wlan0", Kind: "WiFi"},
			{Link: "wwan0", Kind: "cellular", Joules: 12.6}}},
		{Name: "phone", Suspended: "it is hot", Facts: &api.KnownFacts{Facts: api.Facts{TemperatureC: &heat}},
			Radios: []api.Radio{{Kind: "cellular", Joules: 2345}}},
		{Name: "box"},
	}})
	for _, want := range []string{"laptop: about 12.6 J by cellular wwan0\n",
		"phone: suspended: it is hot, 31.5 °C, about 2.35 kJ by cellular\n"} {
		if !strings.Contains(page.String(), want) || strings.Contains(page.String(), "box:") {
			t.Errorf("no %q in\n%s", want, &page)
		}
	}
}
