// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/wire"
)

// Fleet answers the codes of a fleet's invitations, which any server of the fleet accepts. Its methods are
// called concurrently. Errors are faults whose texts the caller may see.
type Fleet interface {
	// Registration returns the registration of a code that has not expired by its ID.
	Registration(ctx context.Context, code string) (Registration, error)
	// Offer returns the fleet's key and the servers of the fleet, for Self.JoinFleet of the caller.
	Offer() (identity.PublicKey, []byte, error)
	// Enroll uses up a code for a device, which signed ClaimText by the code's key, and returns the device's
	// name. One device can use a code, whichever server is asked; it may do so again until the code expires.
	Enroll(ctx context.Context, code string, d Enrollee) (name string, err error)
}

// Enrollee is a device that has proved that it knows a fleet's code.
type Enrollee struct {
	Key   identity.PublicKey
	Name  string // as it calls itself
	Claim [ed25519.SignatureSize]byte
}

// Register returns the registration of a fleet's code.
func (c Code) Register() (Registration, error) {
	return register(newFleetContext(c.ID(), identity.PublicKey{}, identity.PublicKey{}, nil), c.Secret)
}

// ID returns the public name of a fleet's code. The code cannot be derived from it.
func (c Code) ID() string { return c.publicName().String() }

// publicName returns the frame that names a fleet's code.
func (c Code) publicName() wire.PairCode {
	sum := sha256.Sum256([]byte("mpbond fleet code 1\x00" + c.Secret))
	return wire.PairCode{ID: [12]byte(sum[:12])}
}

// claimKey returns the private key that a user of a fleet's code derives from it. Its public key is in the
// invitation, which the fleet's key signed. So a server that never learns the code cannot enroll a device.
func (c Code) claimKey() (ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, []byte(c.Secret), nil, "mpbond fleet claim 1", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// ClaimKey returns the public key of the claims of a fleet's code.
func (c Code) ClaimKey() (ed25519.PublicKey, error) {
	key, err := c.claimKey()
	if err != nil {
		return nil, err
	}
	return key.Public().(ed25519.PublicKey), nil
}

// SignClaim returns a device's claim of a fleet's code.
func (c Code) SignClaim(device identity.PublicKey) (sig [ed25519.SignatureSize]byte, err error) {
	key, err := c.claimKey()
	if err == nil {
		copy(sig[:], ed25519.Sign(key, ClaimText(c.ID(), device)))
	}
	return sig, err
}

// ClaimText returns what a device signs with the key of a code's claims.
func ClaimText(code string, device identity.PublicKey) []byte {
	return append([]byte("mpbond fleet claim 1\x00"+code+"\x00"), device[:]...)
}

// FleetFingerprint returns the part of a fleet's code that names the fleet's key: 100 bits of a hash.
func FleetFingerprint(key identity.PublicKey) string {
	sum := sha256.Sum256(append([]byte("mpbond fleet key 1\x00"), key[:]...))
	var b [fleetLen]byte
	for i := range b {
		bit := 5 * i // of the hash, which is longer
		pair := uint16(sum[bit/8])<<8 | uint16(sum[bit/8+1])
		b[i] = alphabet[pair>>(11-bit%8)&31]
	}
	return string(b[:])
}

var (
	errNoFleet    = errors.New("this server belongs to no fleet")
	errOtherFleet = fault.New(fault.WrongKey,
		errors.New("the server that answers belongs to another fleet than the code"),
		"ask the fleet's operator for a new code; if it happens again, somebody may intercept the connection")
)

// pairByFleetCode serves a caller that names a fleet's code: it checks the proof, offers the fleet and
// enrolls the caller.
func (a *Acceptor) pairByFleetCode(ctx context.Context, c *channel, code string) (p identity.Peer, err error) {
	refuse := func(err error) error {
		why := wire.CodeClosed
		if fault.Is(err, fault.Limit) || fault.Is(err, fault.Unreachable) {
			why = wire.CodeLimit
		}
		c.sendPairingRefusal(why, err.Error())
		return err
	}
	ke1, err := c.readPairStep(1)
	if err != nil {
		return p, err
	}
	if a.Fleet == nil {
		return p, refuse(errNoFleet)
	}
	r, err := a.Fleet.Registration(ctx, code)
	if err != nil {
		return p, refuse(err)
	}
	right, err := a.exchangeKeys(c, newFleetContext(code, c.peer, a.self.Key.Public(), c.binding), r, ke1)
	if err != nil || !right {
		c.sendPairingRefusal(wire.CodeForbidden, "the code is wrong or no longer valid")
		return p, cmp.Or(err, errWrongCode)
	}
	_ = c.tls.SetDeadline(time.Now().Add(identityTimeout))
	key, offer, err := a.Fleet.Offer()
	if err != nil {
		return p, refuse(err)
	}
	for _, f := range []wire.Frame{a.self.identityFor(wire.PairPrimary), wire.PairFleet{Key: key, Offer: offer}} {
		if err := c.sendPairingFrame(f); err != nil {
			return p, err
		}
	}
	who, err := c.readIdentity()
	if err != nil {
		return p, err
	}
	payload, err := c.expectPairingFrame(wire.TypePairClaim)
	if err != nil {
		return p, err
	}
	claim, err := wire.ParsePairClaim(payload)
	if err != nil {
		return p, fault.New(fault.Protocol, err, hintVersion)
	}
	if who.Roles&wire.PairPrimary == 0 {
		return p, refuse(fault.New(fault.Usage, errors.New("a fleet's code is for a primary"), ""))
	}
	name, err := a.Fleet.Enroll(ctx, code, Enrollee{c.peer, who.Name, claim.Sig})
	if err != nil {
		return p, refuse(err)
	}
	if err := c.sendPairingFrame(wire.PairDone{}); err != nil {
		a.log.Warn("the device may not know that it has joined the fleet", "device", name, "err", err,
			"hint", "if so, it uses its code again")
	}
	return identity.Peer{Name: name, Roles: []identity.Role{identity.RolePrimary}, Key: c.peer}, nil
}

// fleetOffer is what a server has offered with a fleet's code.
type fleetOffer struct {
	key   identity.PublicKey
	offer []byte
	claim [ed25519.SignatureSize]byte // to send
}

// readFleetOffer reads the offer of a fleet's server, and checks that it is of the code's fleet.
func (a *caller) readFleetOffer(c *channel) (*fleetOffer, error) {
	payload, err := c.expectPairingFrame(wire.TypePairFleet)
	if err != nil {
		return nil, err
	}
	f, err := wire.ParsePairFleet(payload)
	if err != nil {
		return nil, fault.New(fault.Protocol, err, hintVersion)
	}
	if FleetFingerprint(f.Key) != a.code.Fleet {
		return nil, errOtherFleet
	}
	if a.self.JoinFleet == nil {
		return nil, fault.New(fault.Unsupported, errors.New("this device cannot join a fleet"),
			"run `mpbond pair` on a primary")
	}
	if err := a.self.CheckFleet(f.Key, f.Offer); err != nil { // before the code is used up
		return nil, err
	}
	claim, err := a.code.SignClaim(a.self.Key.Public())
	return &fleetOffer{f.Key, f.Offer, claim}, err
}
