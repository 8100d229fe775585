package api

import (
	"time"

	"mpbond/base/unit"
)

// PolicyStatus is the policy that is in force.
type PolicyStatus struct {
	File   string    `json:"file"`   // that it was read from
	Rules  int       `json:"rules"`  // in force; at a helper none are
	Tables int       `json:"tables"` // of devices, in force
	Loaded time.Time `json:"loaded"` // when they were read
	// Error is why the file as it is now is not in force: then what was read
	// before is.
	Error string `json:"error,omitempty"`
	// Blocked and Direct count connections, and destinations of datagrams.
	Blocked int64 `json:"blocked"`
	Direct  int64 `json:"direct"`
}

// Policy is the policy file of a primary or helper and what is in force. At a helper
// only the tables of devices are.
type Policy struct {
	File string `json:"file"` // its path; it need not exist
	// Text is the file's as it is now, in force or not; "" if there is none.
	Text string `json:"text"`
	// Version changes with Text, and is "" if there is no file.
	Version string `json:"version"`
	// ReadOnly tells that this mpbond may not write the file, as a service may not:
	// it is to be changed by hand.
	ReadOnly bool `json:"read_only,omitempty"`
	// Refused is why Text is not in force. Then what was in force before still is.
	Refused *PolicyError `json:"refused,omitempty"`

	Loaded  *time.Time   `json:"loaded,omitempty"` // when what is in force was read; none: there was no file
	Default string       `json:"default"`          // what happens to what no rule matches: allow or deny
	Rules   []PolicyRule `json:"rules"`            // in force, in their order; the first that matches decides; at a helper none are
	// Devices are the tables of devices in force, by name; never null.
	Devices []PolicyDevice `json:"devices"`
	// Blocked and Direct count connections, and destinations of datagrams.
	Blocked int64 `json:"blocked"`
	Direct  int64 `json:"direct"`
}

// PolicyError is why a policy cannot be used, and where.
type PolicyError struct {
	Text    string `json:"text"`
	Line    int    `json:"line,omitempty"`    // from 1; none: not of one line
	Column  int    `json:"column,omitempty"`  // from 1, in bytes
	Nearest string `json:"nearest,omitempty"` // the name that was probably meant
	Hint    string `json:"hint,omitempty"`
}

// PolicyRule is one rule in force, with what it means now.
type PolicyRule struct {
	Name string `json:"name"`
	Line int    `json:"line,omitempty"` // in the text in force
	// When has what it asks for, by key: app, cgroup, label, uid, domain, address,
	// port. Without any it matches everything.
	When map[string][]string `json:"when,omitempty"`
	PolicyClass
	// Matched counts connections, and destinations of datagrams, that it has
	// decided about since it is in force.
	Matched int64 `json:"matched"`
}

// PolicyClass is what happens to a connection.
type PolicyClass struct {
	Mode     string   `json:"mode"` // usual, bond, single, latency, redundant, direct or block
	Device   []string `json:"device,omitempty"`
	Pipe     []string `json:"pipe,omitempty"`
	Priority string   `json:"priority,omitempty"` // high, normal or low; none where the bond does not carry it
	Weight   int      `json:"weight,omitempty"`
	// Subflows are the subflows that may carry it now: none where it waits for one, or
	// is not carried by the bond.
	Subflows []uint32 `json:"subflows,omitempty"`
	Reason   string   `json:"reason"` // in words
}

// PolicyDevice is what a [device.NAME] table in force says. What is left out is not
// said.
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
	StopAtPercent       float64    `json:"stop_at_percent,omitempty"` // the same
}

// PolicyText is a new text for the policy file.
type PolicyText struct {
	Text string `json:"text" maxLength:"1048576"`
	// Version is that of the text that this one is made from; if the file is
	// another one by now, nothing is changed. None: whatever it is.
	Version *string `json:"version,omitempty" maxLength:"64"`
}

// PolicyCheck asks whether a policy could be used, and what would happen to a
// connection. Nothing is changed.
type PolicyCheck struct {
	Text *string     `json:"text,omitempty" maxLength:"1048576"` // none: what is in force
	Flow *PolicyFlow `json:"flow,omitempty"`
}

// PolicyFlow is a connection, or the datagrams of a socket to one destination. Of
// the program what is left out is unknown, and matches no rule that asks for it.
type PolicyFlow struct {
	Host   string  `json:"host" minLength:"1" maxLength:"255"` // name or address
	Port   uint16  `json:"port" minimum:"1"`
	Name   string  `json:"name,omitempty" maxLength:"255"` // of the destination, where Host is an address
	App    string  `json:"app,omitempty" maxLength:"4096"` // path of the executable
	Cgroup string  `json:"cgroup,omitempty" maxLength:"4096"`
	Label  string  `json:"label,omitempty" maxLength:"64"`
	UID    *uint32 `json:"uid,omitempty"`
	DSCP   uint8   `json:"dscp,omitempty" maximum:"63"`
}

// PolicyAnswer is what a check finds: the text, if one was given, could be used.
type PolicyAnswer struct {
	Rules int `json:"rules"`
	// Rule is the one that matches, "" for none; Verdict what happens. Both are of
	// the flow that was asked about.
	Rule    string       `json:"rule,omitempty"`
	Verdict *PolicyClass `json:"verdict,omitempty"`
}

// PolicyManager keeps the policy of a primary or helper. Its functions are called from many
// goroutines. Errors are faults; one about a text is of kind Config, and tells
// where by a method Place.
type PolicyManager struct {
	Get   func() Policy
	Put   func(PolicyText) (Policy, error)
	Check func(PolicyCheck) (PolicyAnswer, error)
}
