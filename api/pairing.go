package api

import "time"

// Invitation is a code by which one device can be paired, and what has become
// of it: the answer to POST /v1/invitation, which makes a new one, and to GET.
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

// Inviter makes codes. Its functions are called from many goroutines; errors
// are faults.
type Inviter struct {
	Invite  func() (Invitation, error)
	Current func() Invitation
}
