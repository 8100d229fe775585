// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Handoffs are the handoffs of this device's mobile links between cells, as far as their cells are
// reported (Facts.Cells).
type Handoffs struct {
	Links []LinkHandoffs `json:"links"` // sorted by interface
}

// LinkHandoffs are the handoffs of a link within the last hour.
type LinkHandoffs struct {
	Interface string `json:"interface"`
	Cell      string `json:"cell,omitempty"` // that serves it; "" if unknown
	// Probability is how likely a handoff is within the next 2 s; 0 if nothing was reported lately.
	// Evidence says, for people, what that rests on.
	Probability float64 `json:"probability"`
	Evidence    string  `json:"evidence,omitempty"`
	Count       int     `json:"handoffs"`
	// Foreseen counts handoffs that had a probability of at least 0.3 in the 2 s before. FalseAlarms
	// counts how often the probability rose to 0.3 and no handoff followed.
	Foreseen    int       `json:"foreseen"`
	FalseAlarms int       `json:"false_alarms"`
	Last        time.Time `json:"last,omitzero"` // the last handoff
}
