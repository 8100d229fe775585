// SPDX-License-Identifier: Apache-2.0

package api

// Facts are the facts of a device, and the body of PUT /v2/facts, by which an app or script reports
// what the system does not provide. They override what mpbond finds itself for ten minutes, or
// until the next report. The answer is 204. Omitted fields are unknown. The file facts.toml has the
// same fields.
type Facts struct {
	BatteryPercent *float64 `json:"battery_percent,omitempty" toml:"battery_percent"` // how full it is
	Charging       *bool    `json:"charging,omitempty" toml:"charging"`               // or plugged in and full
	// °C, of the battery or of the device
	TemperatureC *float64 `json:"temperature_c,omitempty" toml:"temperature_c"`
	// Link is the kind of link to the Internet: wired, wifi, cellular or bluetooth.
	Link          string   `json:"link,omitempty" toml:"link"`
	Metered       *bool    `json:"metered,omitempty" toml:"metered"`               // that link's data costs money
	SignalPercent *float64 `json:"signal_percent,omitempty" toml:"signal_percent"` // of that link
}

// KnownFacts are the known facts of a device: its own, or those that it reported.
type KnownFacts struct {
	Facts
	Interface string `json:"interface,omitempty"` // of the link to the Internet
	// Refuses is why the device carries nothing now by its owner's decision.
	Refuses string `json:"refuses,omitempty"`
}
