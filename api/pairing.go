// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Invitation is a code for pairing one device and its state: the answer to POST /v2/invitation,
// which creates a code, and to GET. A primary has none: it takes the codes of others.
type Invitation struct {
	Code  string    `json:"code"`  // for `mpbond pair`
	QR    string    `json:"qr"`    // the text in its QR code
	Until time.Time `json:"until"` // end of its validity
	// State is "" if there was none yet, "open", "paired", "expired", "used_up" (too many failed
	// attempts) or "replaced".
	State string `json:"state"`
	// Device and ID are those of the paired device, in state "paired".
	Device string `json:"device,omitempty"`
	ID     string `json:"id,omitempty"`
}

// InvitationManager creates codes. Its functions are safe for concurrent use; errors are faults.
type InvitationManager struct {
	Invite  func() (Invitation, error)
	Current func() Invitation
}

// DeviceChange is the body of PATCH /v2/devices/NAME, which renames, pauses or resumes a trusted
// device: one of these at a time. The answer is 204.
type DeviceChange struct {
	Name *string `json:"name,omitempty" maxLength:"64"` // new name: letters, digits and "._-"
	// Paused pauses a device, which is then not used as helper or primary, or resumes it. Servers
	// cannot be paused.
	Paused *bool `json:"paused,omitempty"`
}

// PairRequest is the body of POST /v2/pair, which pairs a primary with the devices that show these
// codes. The answer is a Pairing; GET returns its state.
type PairRequest struct {
	// Codes as the other devices show them, like K7QF-3M2A@vps.example.org:7600. On one local
	// network the code of a helper needs no address.
	Codes []string `json:"codes" minItems:"1" maxItems:"8"`
	// As refuses devices with another role than "server" or "helper"; a second server is accepted
	// with "server" only.
	As string `json:"as,omitempty" enum:"server,helper"`
}

// States of a Pairing, and of the devices in it.
const (
	PairRunning = "running"
	PairCalling = "calling" // of a device: is being called
	PairKnown   = "known"   // of a device: has proved the code, not saved yet
	PairDone    = "paired"
	PairFailed  = "failed" // of a Pairing: at least one device failed
)

// Pairing is the state of the last POST /v2/pair.
type Pairing struct {
	// State is "" if there was none yet, "running", "paired" (with all), or "failed" (with at least
	// one).
	State   string         `json:"state"`
	Began   time.Time      `json:"began,omitzero"`
	Devices []PairedDevice `json:"devices"` // in the order of the codes; never null
}

// PairedDevice is one device of a Pairing.
type PairedDevice struct {
	State string   `json:"state"` // "calling", "known", "paired" or "failed"
	ID    string   `json:"id,omitempty"`
	Name  string   `json:"name,omitempty"`  // of a paired device
	Roles []string `json:"roles,omitempty"` // its roles towards this device
	Error string   `json:"error,omitempty"` // of a failed device
	Kind  string   `json:"kind,omitempty"`  // of the error, as in a Problem
	Hint  string   `json:"hint,omitempty"`  // what may help
}

// DeviceManager changes the trusted devices. Its functions are safe for concurrent use; errors are
// faults.
type DeviceManager struct {
	Rename func(from, to string) error
	// Pause pauses a device, or resumes it.
	Pause func(name string, paused bool) error
	// Revoke ends the trust in a device and all its connections.
	Revoke func(name string) error
}

// PairingManager pairs with devices by their codes. Its functions are safe for concurrent use;
// errors are faults.
type PairingManager struct {
	Pair    func(PairRequest) (Pairing, error)
	Current func() Pairing
}
