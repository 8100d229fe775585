package api

import "time"

// Plots that there are, by name, in the order of a page.
const (
	PlotDevices      = "devices"      // rate by device that carries
	PlotSubflows     = "subflows"     // rate by subflow
	PlotApps         = "apps"         // rate by app; by destination where nobody knows the app
	PlotDestinations = "destinations" // rate by what apps are connected with
	PlotPAD          = "pad"          // predicted delivery time by subflow
)

// Plot is values over time: what a picture of it shows. Devices, subflows,
// apps and destinations have rates, those of bytes that were counted between one look and the
// next.
type Plot struct {
	Name  string `json:"name"`  // devices, subflows, apps, destinations or pad
	Title string `json:"title"` // for people
	Unit  string `json:"unit"`  // bit/s or ms
	// Times of the values, oldest first; never null.
	Times  []time.Time `json:"times"`
	Series []Series    `json:"series"` // never null
}

// Series is one line of a plot.
type Series struct {
	Name string `json:"name"`
	// Values are as many as the plot has times; null while it was not there.
	Values []*float64 `json:"values"`
}
