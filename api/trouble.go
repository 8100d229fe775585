package api

import (
	"mpbond/base/fault"
	"time"
)

// Trouble is why something does not work, in parts.
type Trouble struct {
	Kind  fault.Kind  `json:"kind"`            // as in errors
	Cause fault.Cause `json:"cause,omitempty"` // refused, no_answer, no_route or no_name: an address was not reached
	// By is the device that found it out, "" for this one, and At the address that it
	// called, if it is about one.
	By   string `json:"by,omitempty"`
	At   string `json:"at,omitempty"`
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"` // what may help
}

// Calls are connections from other devices that reached a port of this one, whoever made
// them.
type Calls struct {
	Count uint64    `json:"count"` // since this mpbond began
	Last  time.Time `json:"last,omitzero"`
}
