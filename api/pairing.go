package api

import "time"

// Invitation is a code by which one device can be paired, and what has become
// of it: the answer to POST /v2/invitation, which makes a new one, and to GET.
// There are none at a primary, which is told the codes of others.
type Invitation struct {
	Code  string    `json:"code"`  // for `mpbond pair`
	QR    string    `json:"qr"`    // the text of its picture
	Until time.Time `json:"until"` // it holds
	// State is "" while there never was one, "open", "paired", "expired",
	// "used_up" (tried in vain too often) or "replaced".
	State string `json:"state"`
	// Device and ID are whom it paired, in state "paired".
	Device string `json:"device,omitempty"`
	ID     string `json:"id,omitempty"`
}

// InvitationManager makes codes. Its functions are called from many goroutines; errors
// are faults.
type InvitationManager struct {
	Invite  func() (Invitation, error)
	Current func() Invitation
}

// DeviceChange is the body of PATCH /v2/devices/NAME, by which a device that is
// trusted gets another name, or is paused or resumed: one of these. The answer is
// 204.
type DeviceChange struct {
	Name *string `json:"name,omitempty" maxLength:"64"` // from now on: letters, digits and "._-"
	// Paused: it is not used, as helper or primary, until it is resumed. Servers
	// cannot be paused.
	Paused *bool `json:"paused,omitempty"`
}

// PairRequest is the body of POST /v2/pair, by which a primary is paired with
// the devices that show these codes. The answer is a Pairing, of which GET
// tells what becomes.
type PairRequest struct {
	// Codes as the other devices show them, like K7QF-3M2A@vps.example.org:7600;
	// that of a helper on the same local network does without the address.
	Codes []string `json:"codes" minItems:"1" maxItems:"8"`
	// As refuses devices that say they are something else than "server" or
	// "helper"; a second server is taken with "server" only.
	As string `json:"as,omitempty" enum:"server,helper"`
}

// States of a Pairing, and of the devices in it.
const (
	PairRunning = "running"
	PairCalling = "calling" // of a device: is called
	PairKnown   = "known"   // of a device: has proved the code, and is not written down yet
	PairDone    = "paired"
	PairFailed  = "failed" // of a Pairing: at least one device
)

// Pairing is what has become of the last POST /v2/pair.
type Pairing struct {
	// State is "" while there never was one, "running", "paired" (with all), or
	// "failed" (with one of them, at least).
	State   string         `json:"state"`
	Began   time.Time      `json:"began,omitzero"`
	Devices []PairedDevice `json:"devices"` // in the order of the codes; never null
}

// PairedDevice is one device of a Pairing.
type PairedDevice struct {
	State string   `json:"state"` // "calling", "known", "paired" or "failed"
	ID    string   `json:"id,omitempty"`
	Name  string   `json:"name,omitempty"`  // of one that is paired
	Roles []string `json:"roles,omitempty"` // that it may have towards this one
	Error string   `json:"error,omitempty"` // of one that failed
	Kind  string   `json:"kind,omitempty"`  // of the error, as in a Problem
	Hint  string   `json:"hint,omitempty"`  // what may help
}

// DeviceManager changes what is known of other devices. Its functions are called from
// many goroutines; errors are faults.
type DeviceManager struct {
	Rename func(from, to string) error
	// Pause has a device not used, or used again.
	Pause func(name string, paused bool) error
	// Revoke has a device trusted no longer; what is open with it ends at once.
	Revoke func(name string) error
}

// PairingManager pairs with devices that show codes. Its functions are called from many
// goroutines; errors are faults.
type PairingManager struct {
	Pair    func(PairRequest) (Pairing, error)
	Current func() Pairing
}
