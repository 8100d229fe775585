// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"mpbond/base/unit"
)

// PolicyStatus summarizes the policy in force.
type PolicyStatus struct {
	File   string    `json:"file"`   // its source
	Rules  int       `json:"rules"`  // in force; none at a helper
	Tables int       `json:"tables"` // device tables in force
	Loaded time.Time `json:"loaded"` // when they were read
	// Error is why the current file is not in force; the previous one still is.
	Error string `json:"error,omitempty"`
	// Blocked and Direct count connections, and destinations of datagrams.
	Blocked int64 `json:"blocked"`
	Direct  int64 `json:"direct"`
}

// Policy is the policy file of a primary or helper and what is in force. At a helper only the
// device tables are.
type Policy struct {
	File string `json:"file"` // its path; it need not exist
	// Text is the current text of the file, in force or not; "" if there is none.
	Text string `json:"text"`
	// Version changes with Text; "" if there is no file.
	Version string `json:"version"`
	// ReadOnly is set if this mpbond, such as a service, must not write the file: edit it in place.
	ReadOnly bool `json:"read_only,omitempty"`
	// Refused is why Text is not in force; the previous text still is.
	Refused *PolicyError `json:"refused,omitempty"`

	Loaded  *time.Time   `json:"loaded,omitempty"` // when the policy in force was read; omitted without a file
	Default string       `json:"default"`          // for connections that no rule matches: allow or deny
	Rules   []PolicyRule `json:"rules"`            // in force, in order: the first match decides; none at a helper
	// Devices are the device tables in force, by name; never null.
	Devices []PolicyDevice `json:"devices"`
	// Blocked and Direct count connections, and destinations of datagrams.
	Blocked int64 `json:"blocked"`
	Direct  int64 `json:"direct"`
}

// PolicyError is why a policy is unusable, and where.
type PolicyError struct {
	Text    string `json:"text"`
	Line    int    `json:"line,omitempty"`    // from 1; omitted if not about one line
	Column  int    `json:"column,omitempty"`  // from 1, in bytes
	Nearest string `json:"nearest,omitempty"` // the name that was probably meant
	Hint    string `json:"hint,omitempty"`
}

// PolicyRule is one rule in force and what it means now.
type PolicyRule struct {
	Name string `json:"name"`
	Line int    `json:"line,omitempty"` // in the text in force
	// When lists the conditions by key: app, cgroup, label, uid, domain, address, port. Without
	// conditions the rule matches everything.
	When map[string][]string `json:"when,omitempty"`
	PolicyClass
	// Matched counts the connections, and destinations of datagrams, that it has decided since it
	// is in force.
	Matched int64 `json:"matched"`
}

// PolicyClass says how a connection is carried: its mode, priority, weight and devices.
type PolicyClass struct {
	Mode     string   `json:"mode"` // usual, bond, single, latency, redundant, direct or block
	Device   []string `json:"device,omitempty"`
	Pipe     []string `json:"pipe,omitempty"`
	Priority string   `json:"priority,omitempty"` // high, normal or low; omitted if the bond does not carry it
	Weight   int      `json:"weight,omitempty"`
	// Subflows may carry it now; empty if it waits for one, or if the bond does not carry it.
	Subflows []uint32 `json:"subflows,omitempty"`
	Reason   string   `json:"reason"` // for people
}

// PolicyDevice is a [device.NAME] table in force. Fields that the table does not set are omitted.
type PolicyDevice struct {
	Name                string     `json:"name"`
	Line                int        `json:"line,omitempty"` // in the text in force
	Tier                string     `json:"tier,omitempty"` // primary, secondary or backup
	Metered             *bool      `json:"metered,omitempty"`
	BatteryFloorPercent int        `json:"battery_floor_percent,omitempty"`
	MaxTemperatureC     float64    `json:"max_temperature_c,omitempty"`
	DailyCapBytes       unit.Bytes `json:"daily_cap_bytes,omitempty"`
	MonthlyCapBytes     unit.Bytes `json:"monthly_cap_bytes,omitempty"`
	ResetDay            int        `json:"reset_day,omitempty"`
	WarnAtPercent       float64    `json:"warn_at_percent,omitempty"` // of its caps
	StopAtPercent       float64    `json:"stop_at_percent,omitempty"` // of its caps
}

// PolicyText is a new text for the policy file.
type PolicyText struct {
	Text string `json:"text" maxLength:"1048576"`
	// Version is that of the text which this one was made from. If the file has another version
	// now, nothing changes. Without it any version is replaced.
	Version *string `json:"version,omitempty" maxLength:"64"`
}

// PolicyCheck asks whether a policy is usable, and what would happen to a connection. It changes
// nothing.
type PolicyCheck struct {
	Text *string     `json:"text,omitempty" maxLength:"1048576"` // omitted: the policy in force
	Flow *PolicyFlow `json:"flow,omitempty"`
}

// PolicyFlow is a connection, or the datagrams of a socket to one destination. Omitted fields of
// the program are unknown and match no rule that needs them.
type PolicyFlow struct {
	Host   string  `json:"host" minLength:"1" maxLength:"255"` // name or address
	Port   uint16  `json:"port" minimum:"1"`
	Name   string  `json:"name,omitempty" maxLength:"255"` // of the destination, if Host is an address
	App    string  `json:"app,omitempty" maxLength:"4096"` // path of the executable
	Cgroup string  `json:"cgroup,omitempty" maxLength:"4096"`
	Label  string  `json:"label,omitempty" maxLength:"64"`
	UID    *uint32 `json:"uid,omitempty"`
	DSCP   uint8   `json:"dscp,omitempty" maximum:"63"`
}

// PolicyAnswer is the result of a check of a usable text.
type PolicyAnswer struct {
	Rules int `json:"rules"`
	// Rule names the matching rule, "" for none. Verdict says how the flow is carried.
	Rule    string       `json:"rule,omitempty"`
	Verdict *PolicyClass `json:"verdict,omitempty"`
}

// PolicyManager manages the policy of a primary or helper. Its functions are safe for concurrent
// use. Errors are faults; an error about a text is of kind Config and has a method Place.
type PolicyManager struct {
	Get   func() Policy
	Put   func(PolicyText) (Policy, error)
	Check func(PolicyCheck) (PolicyAnswer, error)
}
