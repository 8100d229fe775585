// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Names of plots, in the order of the page.
const (
	PlotDevices      = "devices"      // rate by device that carries
	PlotSubflows     = "subflows"     // rate by subflow
	PlotApps         = "apps"         // rate by app; by destination if the app is unknown
	PlotDestinations = "destinations" // rate by destination of apps
	PlotPAD          = "pad"          // predicted delivery time by subflow
)

// Plot is a series of values over time. Rates are those of the bytes counted between two samples.
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
	// Values has one value for each time of the plot; null while there was none.
	Values []*float64 `json:"values"`
}
