// SPDX-License-Identifier: Apache-2.0

package api

// Facts are the facts of a device, and the body of PUT /v2/facts, by which an app or script reports
// what the system does not provide. They override what mpbond finds itself for ten minutes, or
// until the next report; a report of cells alone changes only cells. The answer is 204. Omitted
// fields are unknown. The file facts.toml has the same fields.
type Facts struct {
	BatteryPercent *float64 `json:"battery_percent,omitempty" toml:"battery_percent"` // how full it is
	Charging       *bool    `json:"charging,omitempty" toml:"charging"`               // or plugged in and full
	// °C, of the battery or of the device
	TemperatureC *float64 `json:"temperature_c,omitempty" toml:"temperature_c"`
	// Link is the kind of link to the Internet: wired, wifi, cellular or bluetooth.
	Link          string   `json:"link,omitempty" toml:"link"`
	Metered       *bool    `json:"metered,omitempty" toml:"metered"`               // that link's data costs money
	SignalPercent *float64 `json:"signal_percent,omitempty" toml:"signal_percent"` // of that link
	// Cells are the mobile cells that serve links, by the name of their interface; "" is the link to the
	// Internet, whatever its name. Handoffs are forecast from reports that come about once a second; one
	// counts for 2.5 s.
	Cells map[string]ServingCell `json:"cells,omitempty" toml:"cells"`
}

// ServingCell describes the mobile cell that serves a link, as its modem reports it. Omitted fields are
// unknown.
type ServingCell struct {
	// RSRPDBm is the reference signal received power of the cell (3GPP TS 36.214), -156 to -20 dBm, and
	// NeighbourRSRPDBm that of the strongest other cell.
	RSRPDBm          *float64 `json:"rsrp_dbm,omitempty" toml:"rsrp_dbm"`
	NeighbourRSRPDBm *float64 `json:"neighbour_rsrp_dbm,omitempty" toml:"neighbour_rsrp_dbm"`
	Cell             string   `json:"cell,omitempty" toml:"cell"`           // its identity, at most 64 characters
	SpeedKmh         *float64 `json:"speed_kmh,omitempty" toml:"speed_kmh"` // of the device, at most 1000
}

// KnownFacts are the known facts of a device: its own, or those that it reported.
type KnownFacts struct {
	Facts
	Interface string `json:"interface,omitempty"` // of the link to the Internet
	// Refuses is why the device carries nothing now by its owner's decision.
	Refuses string `json:"refuses,omitempty"`
}
