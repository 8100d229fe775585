// SPDX-License-Identifier: Apache-2.0

// Package allowance decides how much a helper may carry for onloading: its allowance. Package
// onload/relay carries nothing without one. This package uses no sockets, files or clocks: callers
// pass the usage, the answers of a permit service, and the time.
//
//	allow.go   the choice of the owner, and the limit of a day
//	track.go   caps: what a data plan usually leaves unused
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

// Choice is how the allowance is determined, as the owner writes it: "50MB" a day, "caps", "permit
// HOST:PORT" or "unlimited". The zero Choice allows nothing.
type Choice struct {
	Daily     policy.Volume // fixed
	Caps      bool          // what the data plan usually leaves unused
	Permit    string        // address of the operator's permit service
	Unlimited bool          // the link costs nothing by volume
}

var _ encoding.TextUnmarshaler = (*Choice)(nil)

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Choice) UnmarshalText(t []byte) error {
	text := strings.TrimSpace(string(t))
	*c = Choice{}
	if at, ok := strings.CutPrefix(text, "permit"); ok {
		if c.Permit = strings.TrimSpace(at); c.Permit == "" || at == c.Permit || strings.ContainsAny(c.Permit, " \t") {
			return fmt.Errorf("%q has no service address: "+
				"use \"permit HOST:PORT\", like \"permit permits.example.org:7605\"", t)
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
		return fmt.Errorf("invalid allowance %q: "+
			"use \"caps\", \"permit HOST:PORT\", \"unlimited\", or a volume per day, like \"50MB\"", t)
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (c Choice) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// String returns the text that UnmarshalText parses, or "" for none.
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

// DayLimit is how much may be carried in total on a day.
type DayLimit struct {
	// Bytes is the limit of the day. 0 means nothing, unless Unlimited is set.
	Bytes     unit.Bytes
	Unlimited bool
	Reason    string // for users
}

// Err returns the reason as an error if nothing may be carried.
func (t DayLimit) Err() error {
	if t.Unlimited || t.Bytes > 0 {
		return nil
	}
	return errors.New(t.Reason)
}
