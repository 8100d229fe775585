// SPDX-License-Identifier: Apache-2.0

package api

import (
	"mpbond/base/fault"
	"time"
)

// Trouble is why something does not work, in parts.
type Trouble struct {
	Kind  fault.Kind  `json:"kind"`            // as in errors
	Cause fault.Cause `json:"cause,omitempty"` // refused, no_answer, no_route or no_name: an address was not reached
	// By is the device that noticed it, "" for this one. At is the address that it called, if any.
	By   string `json:"by,omitempty"`
	At   string `json:"at,omitempty"`
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"` // what may help
}

// Calls counts the connections from other devices to a port of this one, from any caller.
type Calls struct {
	Count uint64    `json:"count"` // since the start of this mpbond
	Last  time.Time `json:"last,omitzero"`
}
