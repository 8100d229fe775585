// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"mpbond/base/unit"
)

// Fleet is the fleet of a server or primary.
type Fleet struct {
	Name string `json:"name"` // "" if it is not known yet
	Key  string `json:"key"`  // of the fleet; "" if it is not known yet
	// Server is the name of this server or, at a primary, of the server that the bond uses.
	Server string `json:"server"`
	// Expires is when the list of servers expires.
	Expires time.Time     `json:"expires,omitzero"`
	Servers []FleetServer `json:"servers"` // never null; that are on the list or run
	Problem string        `json:"problem,omitempty"`

	// At a server only. Engine is where the fleet keeps its records; EngineLost says that it does not answer.
	// AgeSeconds is how old the server's knowledge of the devices is, −1 if it knows nothing yet. Waiting counts
	// the reports that the engine has not taken.
	Engine     string  `json:"engine,omitempty"`
	EngineLost bool    `json:"engine_lost,omitempty"`
	AgeSeconds float64 `json:"age_seconds,omitempty"`
	Devices    int     `json:"devices,omitempty"`
	Draining   bool    `json:"draining,omitempty"`
	Waiting    int     `json:"waiting,omitempty"`
}

// FleetServer is a server of a fleet. What it carries is known at servers only.
type FleetServer struct {
	Name      string   `json:"name"`
	Region    string   `json:"region,omitempty"`
	ID        string   `json:"id"`
	Addresses []string `json:"addresses"`
	Listed    bool     `json:"listed"` // primaries may use it
	// Running says whether it has reported within ten seconds; null at primaries, which do not know.
	Running     *bool      `json:"running,omitempty"`
	Draining    bool       `json:"draining,omitempty"`
	Full        bool       `json:"full,omitempty"` // it has no room for more devices
	Version     string     `json:"version,omitempty"`
	Bonds       int        `json:"bonds,omitempty"`
	Streams     int        `json:"streams,omitempty"`
	RateBps     unit.Rate  `json:"rate_bps,omitempty"`
	CPU         float64    `json:"cpu,omitempty"` // share of the machine's processors, 0 to 1
	MemoryBytes unit.Bytes `json:"memory_bytes,omitempty"`
}
