// SPDX-License-Identifier: Apache-2.0

package policy

import "time"

// Tuning of Uplinks.
const (
	// A metered uplink is used after no free one has worked for downTime: longer than a handover
	// between access points, shorter than users wait.
	downTime = 3 * time.Second
	// A free uplink must have worked for backTime before metered ones are no longer used.
	backTime = 10 * time.Second
)

// Uplink is an interface with a route to the Internet.
type Uplink struct {
	Name    string
	Metered bool // its data costs money
	Open    bool // a subflow over it exists or is wanted
	Up      bool // a subflow over it exists
	Since   time.Time
}

// UplinkChoice is a decision about an Uplink.
type UplinkChoice struct {
	Open   bool
	Reason string
	// IsPassing is set if time alone changes the choice within some seconds.
	IsPassing bool
}

// Uplinks decides for each uplink whether it carries a direct subflow. Free ones always do; the
// scheduler chooses among them. Metered ones do while no free one works. Since is the time of the
// last change of Up, or when the uplink was first seen.
func Uplinks(now time.Time, list []Uplink) []UplinkChoice {
	works, steady, lately := false, false, false
	for _, u := range list {
		if u.Metered {
			continue
		}
		age := now.Sub(u.Since)
		works = works || u.Up
		steady = steady || u.Up && age >= backTime
		lately = lately || !u.Up && age < downTime
	}
	choices := make([]UplinkChoice, len(list))
	for i, u := range list {
		switch {
		case !u.Metered:
			choices[i] = UplinkChoice{Open: true, Reason: "its data is free"}
		case works && (steady || !u.Open):
			choices[i] = UplinkChoice{Reason: "its data costs money, and another one works"}
		case works:
			choices[i] = UplinkChoice{true, "another one works again since a moment ago", true}
		case lately && !u.Open:
			choices[i] = UplinkChoice{false, "another one may work soon", true}
		default:
			choices[i] = UplinkChoice{Open: true, Reason: "no other one works"}
		}
	}
	return choices
}
