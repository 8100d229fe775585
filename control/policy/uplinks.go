package policy

import "time"

// Tuning of Uplinks.
const (
	// downTime is how long no free uplink may work before one that costs money
	// is used: longer than a handover between access points, shorter than what
	// people wait for.
	downTime = 3 * time.Second
	// backTime is how long a free one must have worked before that ends again.
	backTime = 10 * time.Second
)

// Uplink is an interface by which the Internet can be reached.
type Uplink struct {
	Name    string
	Metered bool // its data costs money
	Open    bool // there is, or shall be, a subflow over it
	Up      bool // there is one
	Since   time.Time
}

// UplinkChoice is a decision about an Uplink.
type UplinkChoice struct {
	Open   bool
	Reason string
}

// Uplinks decides, for each uplink, whether it shall carry a direct subflow.
// Free ones always do: the scheduler gives each what it carries best. Metered
// ones do while no free one works. Since is when Up last changed, or when the
// uplink was first seen.
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
			choices[i] = UplinkChoice{true, "its data costs nothing"}
		case works && (steady || !u.Open):
			choices[i] = UplinkChoice{false, "its data costs money, and another one works"}
		case works:
			choices[i] = UplinkChoice{true, "another one works again, but not for long yet"}
		case lately && !u.Open:
			choices[i] = UplinkChoice{false, "another one may work in a moment"}
		default:
			choices[i] = UplinkChoice{true, "no other one works"}
		}
	}
	return choices
}
