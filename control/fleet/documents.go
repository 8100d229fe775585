// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/link/pairing"
)

// Limits of documents.
const (
	// MaxServers bounds the servers of a fleet: a primary names them all to its helpers (package wire).
	MaxServers = 64
	// maxAddresses bounds the addresses of a server.
	maxAddresses = 4
	// MaxGroups bounds the groups of a device, maxName the bytes of a name.
	MaxGroups = 16
	maxName   = 64
	// clockError is how far the clocks of two devices may differ: documents from the near future are valid, and those
	// that have just expired.
	clockError = 10 * time.Minute
)

// ServerList lists the servers of a fleet. Primaries use no other ones.
type ServerList struct {
	Fleet  string `json:"fleet"`  // name of the fleet
	Number uint64 `json:"number"` // a list with a higher number replaces one with a lower one
	// A list that has expired changes nothing at a primary.
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`
	Servers []Server  `json:"servers"`
}

// Server is a server of a fleet.
type Server struct {
	Name      string             `json:"name"`
	Region    string             `json:"region"`
	Key       identity.PublicKey `json:"key"`
	Addresses []string           `json:"addresses"` // "host:port", best first
}

func (ServerList) kind() string { return "list" }

// find returns the server with a name.
func (l ServerList) find(name string) (Server, bool) {
	i := slices.IndexFunc(l.Servers, func(s Server) bool { return s.Name == name })
	if i < 0 {
		return Server{}, false
	}
	return l.Servers[i], true
}

// OpenList returns the list in a signed document, after it has checked the signature, the dates and the
// limits.
func OpenList(key identity.PublicKey, s Signed, now time.Time) (l ServerList, err error) {
	if err := s.decodeVerified(key, &l); err != nil {
		return ServerList{}, err
	}
	switch {
	case now.After(l.Expires.Add(clockError)):
		err = fault.New(fault.Integrity, fmt.Errorf("the list of servers expired on %s",
			l.Expires.Format("2 January 2006 15:04 MST")), "check the clock; the fleet's operator runs `mpbond fleet renew`")
	case l.Issued.After(now.Add(clockError)):
		err = fault.New(fault.Integrity,
			fmt.Errorf("the list of servers was signed %s from now by this machine's clock",
				l.Issued.Sub(now).Round(time.Minute)), "check the clocks of this machine and of the fleet's operator")
	default:
		err = fault.New(fault.Integrity, l.validate(), "the fleet's operator signs a list that is valid")
	}
	if err != nil {
		return ServerList{}, err
	}
	return l, nil
}

// validate returns the first problem of a list.
func (l ServerList) validate() error {
	if err := identity.CheckName(l.Fleet); err != nil {
		return err
	}
	if len(l.Servers) > MaxServers {
		return fmt.Errorf("the fleet has %d servers, over %d", len(l.Servers), MaxServers)
	}
	for i, s := range l.Servers {
		if len(s.Addresses) == 0 || len(s.Addresses) > maxAddresses {
			return fmt.Errorf("server %q has %d addresses; it needs 1 to %d", s.Name, len(s.Addresses), maxAddresses)
		}
		if err := s.Peer(l.Fleet).Validate(); err != nil {
			return err
		}
		if err := checkRegion(s.Region); err != nil {
			return err
		}
		for _, o := range l.Servers[:i] {
			if o.Name == s.Name || o.Key == s.Key {
				return fmt.Errorf("servers %q and %q have the same name or key", o.Name, s.Name)
			}
		}
	}
	return nil
}

// Peer returns the server's entry for the trust file of a primary.
func (s Server) Peer(fleet string) identity.Peer {
	return identity.Peer{Name: s.Name, Roles: []identity.Role{identity.RoleServer}, Key: s.Key,
		Addresses: s.Addresses, Fleet: fleet}
}

// checkRegion returns an error unless r is a valid region. Empty means none.
func checkRegion(r string) error {
	if r == "" {
		return nil
	}
	if err := identity.CheckName(r); err != nil {
		return fmt.Errorf("region: %w", err)
	}
	return nil
}

// Invitation lets one device join the fleet.
type Invitation struct {
	Code    string            `json:"code"`  // ID of the code, which reveals nothing of it
	Claim   ed25519.PublicKey `json:"claim"` // whose private key only a user of the code can derive
	Issued  time.Time         `json:"issued"`
	Expires time.Time         `json:"expires"`
	Region  string            `json:"region,omitempty"` // whose servers the code names first
	Name    string            `json:"name,omitempty"`   // of the device; empty: its own
	Terms
}

// Terms say what the fleet grants a device.
type Terms struct {
	Groups []string   `json:"groups,omitempty"`
	Quota  unit.Bytes `json:"quota,omitempty"` // of a calendar month of the servers' clocks, both directions; 0: none
}

func (Invitation) kind() string { return "invitation" }

// Ruling is the operator's later decision about a device. The newest one counts.
type Ruling struct {
	Key     identity.PublicKey `json:"key"`
	At      time.Time          `json:"at"`
	Revoked bool               `json:"revoked,omitempty"`
	Paused  bool               `json:"paused,omitempty"`
	Terms
}

func (Ruling) kind() string { return "ruling" }

// deviceRecord is a record in Devices. Each part proves itself: Invitation by the fleet's key, Claim by the
// code, Ruling by the fleet's key. So whoever can only write records can make no device.
type deviceRecord struct {
	Invitation Signed             `json:"invitation"`
	Key        identity.PublicKey `json:"key"`
	Name       string             `json:"name"`
	Claim      []byte             `json:"claim"` // signature by Invitation.Claim of pairing.ClaimText
	Enrolled   time.Time          `json:"enrolled"`
	Server     string             `json:"server"`           // that paired it
	Ruling     *Signed            `json:"ruling,omitempty"` // nil: none so far
}

// Device is a device of a fleet.
type Device struct {
	Key      identity.PublicKey
	Name     string
	Code     string // ID of the code that it has used
	Enrolled time.Time
	Server   string // that paired it
	Terms
	Revoked, Paused bool
	ruled           time.Time // when the ruling was made
	invited         time.Time // when the invitation was made
}

// openDevice checks a record and returns its device.
func openDevice(fleet identity.PublicKey, r deviceRecord) (Device, error) {
	var inv Invitation
	if err := r.Invitation.decodeVerified(fleet, &inv); err != nil {
		return Device{}, err
	}
	if len(inv.Claim) != ed25519.PublicKeySize || !ed25519.Verify(inv.Claim, pairing.ClaimText(inv.Code, r.Key),
		r.Claim) {
		return Device{}, fault.New(fault.Integrity, errors.New("the device's claim does not match its invitation"), "")
	}
	if err := identity.CheckName(r.Name); err != nil {
		return Device{}, fault.New(fault.Integrity, err, "")
	}
	if inv.Name != "" && inv.Name != r.Name {
		return Device{}, fault.New(fault.Integrity, errors.New("the device has another name than its invitation"), "")
	}
	d := Device{Key: r.Key, Name: r.Name, Code: inv.Code, Enrolled: r.Enrolled, Server: r.Server, Terms: inv.Terms,
		invited: inv.Issued}
	if r.Ruling == nil {
		return d, nil
	}
	var ruling Ruling
	if err := r.Ruling.decodeVerified(fleet, &ruling); err != nil {
		return Device{}, err
	}
	switch {
	case ruling.Key != r.Key:
		return Device{}, fault.New(fault.Integrity, errors.New("the ruling is about another device"), "")
	case ruling.At.Before(inv.Issued): // the operator has invited it again since then
		return d, nil
	}
	d.Terms, d.Revoked, d.Paused, d.ruled = ruling.Terms, ruling.Revoked, ruling.Paused, ruling.At
	return d, nil
}

// isNewerThan reports whether d rests on a newer decision of the operator than o, or on the same one.
func (d Device) isNewerThan(o Device) bool {
	return !d.decided().Before(o.decided())
}

// decided returns when the operator made the newest decision about the device.
func (d Device) decided() time.Time {
	if d.ruled.After(d.invited) {
		return d.ruled
	}
	return d.invited
}

// Peer returns the device as an entry of a trust file.
func (d Device) Peer() identity.Peer {
	return identity.Peer{Name: d.Name, Roles: []identity.Role{identity.RolePrimary}, Key: d.Key, Paused: d.Paused}
}

// ServerState is what a running server reports of itself in Servers.
type ServerState struct {
	Server
	Version  string    `json:"version"`
	Since    time.Time `json:"since"` // start of the process
	At       time.Time `json:"at"`    // of this report, by the server's clock
	Draining bool      `json:"draining,omitempty"`
	Load     Load      `json:"load"`
	// Applied is the revision of the newest record in Devices that the server has applied.
	Applied uint64 `json:"applied"`
}

// clockOffset returns how far the server's clock is ahead of this one. The state may be as old as ServerLife.
func (s ServerState) clockOffset(now time.Time) time.Duration { return s.At.Sub(now) }

// Load is what a server carries.
type Load struct {
	Bonds   int        `json:"bonds"`
	Streams int        `json:"streams"`
	Rate    unit.Rate  `json:"rate"`           // both directions, of the last seconds
	CPU     float64    `json:"cpu"`            // share of the machine's processors that the process uses, 0 to 1
	Memory  unit.Bytes `json:"memory"`         // of the process
	Full    bool       `json:"full,omitempty"` // it has no room for more devices
}

// Order is what the operator orders a server to do.
type Order struct {
	Server   string    `json:"server"`
	At       time.Time `json:"at"`
	Draining bool      `json:"draining"`
}

func (Order) kind() string { return "order" }

// Offer is what a server gives a primary: the list, and what it knows of the servers on it. Only the list
// is signed. A primary that believes wrong hints chooses a slower server of the fleet, and no other one.
type Offer struct {
	List  Signed `json:"list"`
	Hints []Hint `json:"hints"`
}

// OfferDest is the destination of streams by which a primary asks its server for an Offer. No app can mean it: the
// name is reserved (RFC 6761 section 6.4).
const OfferDest = "fleet.mpbond.invalid:1"

// Hint describes a running server. Servers without one are not running.
type Hint struct {
	Name     string  `json:"name"`
	Draining bool    `json:"draining,omitempty"`
	Full     bool    `json:"full,omitempty"`
	CPU      float64 `json:"cpu"`
}

// Keys of records in Orders.
const listKey = "list"

func drainKey(server string) string { return "drain." + server }
