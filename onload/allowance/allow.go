// Package allowance decides how much a helper may carry for onloading: its allowance. It
// stands before onload/relay, which carries nothing without one, and knows nothing of
// sockets, files or clocks: others tell it what was used, what a service has answered,
// and what time it is.
//
//	allow.go   what an owner may choose, and what comes of it
//	track.go   caps: what a plan usually leaves over
//	holder.go  permits: the helper's side
//	issuer.go  permits: the operator's side
package allowance

import (
	"encoding"
	"errors"
	"fmt"
	"strings"

	"mpbond/base/unit"
	"mpbond/control/policy"
)

// Choice is how an allowance comes about, as the owner writes it: "50MB" a day, "caps",
// "permit HOST:PORT", or "unlimited". The zero Choice allows nothing.
type Choice struct {
	Daily     policy.Volume // fixed
	Caps      bool          // by what the plan usually leaves over
	Permit    string        // address of the operator's service
	Unlimited bool          // the line costs nothing by volume
}

var _ encoding.TextUnmarshaler = (*Choice)(nil)

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Choice) UnmarshalText(t []byte) error {
	text := strings.TrimSpace(string(t))
	*c = Choice{}
	if at, ok := strings.CutPrefix(text, "permit"); ok {
		if c.Permit = strings.TrimSpace(at); c.Permit == "" || at == c.Permit || strings.ContainsAny(c.Permit, " \t") {
			return fmt.Errorf("%q names no service: write it like \"permit permits.example.org:7605\"", t)
		}
		return nil
	}
	switch text {
	case "caps":
		c.Caps = true
		return nil
	case "unlimited":
		c.Unlimited = true
		return nil
	}
	if c.Daily.UnmarshalText(t) != nil {
		return fmt.Errorf("%q is no allowance: write \"caps\", \"permit HOST:PORT\", \"unlimited\", or what may be carried in a day, like \"50MB\"", t)
	}
	return nil
}

// MarshalText is what UnmarshalText reads.
func (c Choice) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// String is the same; "" for none.
func (c Choice) String() string {
	switch {
	case c.Caps:
		return "caps"
	case c.Unlimited:
		return "unlimited"
	case c.Permit != "":
		return "permit " + c.Permit
	case c.Daily > 0:
		return strings.ReplaceAll(c.Daily.String(), " ", "")
	}
	return ""
}

// DayLimit is what may be carried in all on a day.
type DayLimit struct {
	// Bytes are the bound of the day; 0 with Free set is none, without it nothing may be
	// carried.
	Bytes     unit.Bytes
	Unlimited bool
	Reason    string // for people
}

// Err is the error that nothing may be carried, if so.
func (t DayLimit) Err() error {
	if t.Unlimited || t.Bytes > 0 {
		return nil
	}
	return errors.New(t.Reason)
}
