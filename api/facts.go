package api

// Facts are of a device, and the body of PUT /v2/facts, by which an app or
// script tells what the system does not: these go before what mpbond finds
// itself, for ten minutes, or until others are told; the answer is 204. What is
// left out is not known. The file facts.toml has the same fields.
type Facts struct {
	BatteryPercent *float64 `json:"battery_percent,omitempty" toml:"battery_percent"` // how full it is
	Charging       *bool    `json:"charging,omitempty" toml:"charging"`               // or plugged in, and full
	TemperatureC   *float64 `json:"temperature_c,omitempty" toml:"temperature_c"`     // °C, of the battery or of the device
	// Link is the kind by which it reaches the Internet: wired, wifi, cellular or
	// bluetooth.
	Link          string   `json:"link,omitempty" toml:"link"`
	Metered       *bool    `json:"metered,omitempty" toml:"metered"`               // that link's data costs money
	SignalPercent *float64 `json:"signal_percent,omitempty" toml:"signal_percent"` // of that link
}

// KnownFacts are what is known of a device: those that it knows of itself, or
// has told.
type KnownFacts struct {
	Facts
	Interface string `json:"interface,omitempty"` // of the link by which it reaches the Internet
	// Refuses says why the device carries nothing at present by its own owner's
	// word.
	Refuses string `json:"refuses,omitempty"`
}
